"""benchmarks/against_airbench.py: which runs of ours count, and how accuracies are compared."""

from argparse import Namespace
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "results"


@pytest.fixture
def script(benchmark_script):
    return benchmark_script("against_airbench")


def test_of_result_files_whole_runs_of_todays_recipe_count_once(script):
    files = [RESULTS / f"2026-11-cifar10-{name}-cpu.csv" for name in ("record", "ladder", "speedrun")]
    found = script.accuracies_in([*files, *files], Namespace(precision="bf16", device="cpu"))
    assert sorted(found) == [*range(2001, 2013), *range(3001, 3006)], "not those of older versions"
    assert found[2001] == 0.942
    assert script.accuracies_in(files, Namespace(precision="fp32", device="cpu")) == {}
    assert script.accuracies_in(files, Namespace(precision="bf16", device="cuda")) == {}
