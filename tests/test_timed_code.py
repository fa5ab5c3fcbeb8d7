"""The digest of the code that a suite times: what changes it, what does not, and which modules belong to it."""

import ast
import importlib
from pathlib import Path

import pytest

import gpubench.training
from gpubench.suite import files, timed_code

SUITE = '''"""A suite."""

from gpubench import Suite
from gpubench.training import Stepper


def train(trial, clock):
    """Trains."""
    for _ in clock.resident():
        x = 1  # one
    return {}


SUITE = Suite(train=train, models=("m",), version=1, params={})
'''


def digest(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(text)
    return timed_code.digest_of([path])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# one", "# two, really"),
        ('"""Trains."""', '"""Says more."""'),
        ('"""Trains."""', '"""Says more,\n\n    in # three lines."""'),
        ("\n\n\ndef train", "\n\ndef train"),
        ("return {}", "return {}   "),
    ],
)
def test_prose_leaves_the_digest_as_it_is(tmp_path, old, new):
    assert digest(tmp_path, SUITE) == digest(tmp_path, SUITE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"), [("x = 1", "x = 2"), ("import Stepper", "import Stepper, shards"), ("x = 1", 'x = "# one"')]
)
def test_code_changes_it(tmp_path, old, new):
    assert digest(tmp_path, SUITE) != digest(tmp_path, SUITE.replace(old, new))


def test_the_modules_that_train_and_read_data_belong_to_it(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SUITE)
    parts = timed_code.parts_of([path])
    wanted = {"worker/run_trial.py", "training/clock/clock.py", "training/precision.py", "data/datasets.py"}
    assert {"suite/mine.py", *(f"gpubench/{module}" for module in wanted)} <= set(parts)
    assert not [name for name in parts if name.startswith(("gpubench/analysis/", "gpubench/show/", "gpubench/runner/"))]


def test_an_edit_of_a_module_that_runs_the_training_changes_it(tmp_path, monkeypatch):
    before = digest(tmp_path, SUITE)
    package = tmp_path / "gpubench"
    for module in [file for pattern in timed_code.TIMED for file in timed_code.PACKAGE.glob(pattern)]:
        copy = package / module.relative_to(timed_code.PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(module.read_text())
    monkeypatch.setattr(timed_code, "PACKAGE", package)
    assert digest(tmp_path, SUITE) == before
    clock = package / "training/clock/clock.py"
    clock.write_text(clock.read_text().replace("perf_counter", "monotonic"))
    assert digest(tmp_path, SUITE) != before


def test_what_training_offers_is_there_and_typed():
    tree = ast.parse(Path(gpubench.training.__file__).read_text())
    typed = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("gpubench")
        for alias in node.names
    }
    assert {name: f"gpubench.training.{home}" for name, home in gpubench.training._HOME_OF.items()} == typed
    for name, module in typed.items():
        assert getattr(gpubench.training, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="it has Clock"):
        gpubench.training.Clok  # noqa: B018


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('def g(): "doc"; return 1', 'def g(): "doc"; return 2'),
        ('class A(int): "doc"', 'class A(float): "doc"'),
        ('x = """a\n\nb"""', 'x = """a\nb"""'),
        ('x = """a  \nb"""', 'x = """a\nb"""'),
        ("from gpubench.training import Stepper", "from gpubench.training import *"),
    ],
)
def test_code_beside_prose_and_texts_of_the_code_count(tmp_path, one, other):
    assert digest(tmp_path, one + "\n") != digest(tmp_path, other + "\n")


def test_files_of_one_name_are_two_and_odd_characters_shift_no_line(tmp_path):
    for name in ("__init__.py", "sub/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    assert {"suite/__init__.py", "suite/sub/__init__.py"} <= set(timed_code.parts_of(files.sources(tmp_path)))
    text = "x = 1\n\f\ny = '\u2028'  # one\nz = 2  # é\n"
    assert digest(tmp_path, text) == digest(tmp_path, text.replace("# one", "# two").replace("# é", "# an e"))
