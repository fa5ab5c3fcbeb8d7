"""The fuzzer finds what it is to find, and in a small run of it finds nothing.

That run's seed is fixed, so that a failure is always of the change at hand; the command draws another each time.
"""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def fuzz(benchmark_script):
    return benchmark_script("fuzz")


@pytest.mark.e2e
def test_a_small_run_finds_nothing():
    done = subprocess.run(
        [sys.executable, "benchmarks/fuzz.py", "--quick", "--jobs", "2", "--seed", "20261123"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"--seed \d+\n", done.stdout)
    assert len(done.stdout.splitlines()) == 8


def raises(rng, folder):
    return 1 / 0


def warns(rng, folder):
    warnings.warn("divide by zero", RuntimeWarning, stacklevel=1)


@pytest.mark.parametrize(
    ("kind", "words"),
    [(raises, "ZeroDivisionError"), (warns, "RuntimeWarning: divide by zero")],
)
def test_what_goes_wrong_is_found(fuzz, tmp_path, monkeypatch, kind, words):
    monkeypatch.setitem(fuzz.KINDS, "load", kind)
    assert words in fuzz.once("load", "1", 0, tmp_path)[2]
