"""Scripts of benchmarks/: the commands for a day with a card, simulated runs, the fuzzer, kills, mutations."""

import argparse
import csv
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from conftest import imported_script

from gpubench.suite import files

ROOT = Path(__file__).parents[1]


@pytest.fixture
def on_a_card():
    return imported_script("on_a_card")


@pytest.fixture
def go(on_a_card, tmp_path, monkeypatch, capsys):
    """Runs these stages, which are modules in the folder; returns the lines of stages.csv."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def call(stages, *arguments):
        monkeypatch.setattr(on_a_card, "STAGES", stages)
        monkeypatch.setattr(sys, "argv", ["on_a_card.py", "--out", "card", *map(str, arguments)])
        on_a_card.main()
        with Path("card/stages.csv").open() as file:
            return [(line["stage"], line["ended"]) for line in csv.DictReader(file)]

    return call


@pytest.fixture
def in_background():
    """Ctrl-C is ignored, as in a shell's background job."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_all_suites_run_within_27_minutes_and_no_stage_outlasts_a_call(on_a_card):
    assert sum(stage.seconds for stage in on_a_card.STAGES.values()) <= 27 * 60
    assert all(stage.seconds <= 9 * 60 - on_a_card.GRACE_SECONDS for stage in on_a_card.STAGES.values())
    commands = " ".join(stage.command for stage in on_a_card.STAGES.values())
    assert all(f"--suite {each} " in commands for each in files.built_in_names())


@pytest.mark.parametrize(("small", "side_by_side"), [(False, 1), (False, 2), (True, 2)])
def test_every_run_is_a_plan(on_a_card, small, side_by_side, cli):
    for name, stage in on_a_card.STAGES.items():
        if stage.command.startswith("gpubench run"):
            options = argparse.Namespace(
                out=Path("card"), data=None, device="cpu", small=small, side_by_side=side_by_side
            )
            command = on_a_card.command_of(name, options)[3:]
            done = cli(*command, "--dry-run")
            assert done.returncode == 0, (name, done.stderr)


def test_what_ended_is_not_run_again_unless_it_is_asked_for(on_a_card, go, tmp_path):
    (tmp_path / "fails.py").write_text("raise SystemExit(3)")
    stages = {"fine": on_a_card.Stage("this", 300), "fails": on_a_card.Stage("fails", 300)}
    assert go(stages) == [("fine", "0"), ("fails", "3")]
    assert go(stages) == [("fine", "0"), ("fails", "3")]
    assert go(stages, "--stages", "fails")[2:] == [("fails", "3")]
    assert "The Zen of Python" in (tmp_path / "card/fine.log").read_text()


@pytest.mark.e2e
def test_what_is_cut_off_goes_on_until_its_time_is_spent(on_a_card, go, in_background, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\ntry:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    print('kept', flush=True)"
    )
    stages = {"slow": on_a_card.Stage("slow", 15, resumes=True)}
    assert go(stages) == [("slow", "cut off")]
    assert "kept" in (tmp_path / "card/slow.log").read_text()
    assert go(stages) == [("slow", "cut off")], "its time is spent"
    assert go(stages, "--stretch", 2)[1:] == [("slow", "cut off")]


@pytest.fixture
def card_time():
    return imported_script("card_time")


@pytest.mark.parametrize(
    ("number", "mode", "first_ratio", "everything", "rows"), [(0, "sampled", 3.1, 42, 39), (1, "quick", 1.7, 8, 10)]
)
def test_minutes_not_hours(card_time, number, mode, first_ratio, everything, rows):
    """Minutes of made-up cards; on the code before, 30 until the first row of the first card."""
    timed = card_time.simulate(card_time.CARDS[number], card_time.LOW, mode=mode)
    assert timed.rows == rows
    assert timed.first_row < timed.first_ratio < first_ratio * 60
    assert timed.everything < everything * 60


def test_forks_take_less_time_and_a_whole_run_waits_for_a_batch_that_fits(card_time):
    forked, fresh = (
        card_time.simulate(card_time.CARDS[1], card_time.HIGH, forked=forked, mode="quick") for forked in (True, False)
    )
    assert forked.rows == fresh.rows
    assert forked.first_row < fresh.first_row
    assert forked.everything < 0.85 * fresh.everything
    timed = card_time.simulate(card_time.CARDS[0], card_time.LOW, mode="full", models=("resnet18",))
    assert (timed.rows, timed.trials) == (2, 4), "each case's whole run, and a quick one before it"


def run_script(name, *arguments):
    command = [sys.executable, f"benchmarks/{name}.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.e2e
def test_a_small_run_finds_nothing():
    done = run_script("fuzz", "--quick", "--jobs", "2", "--seed", "20261123")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"--seed \d+\n", done.stdout)
    assert len(done.stdout.splitlines()) == 8


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (lambda rng, folder: 1 / 0, "ZeroDivisionError"),
        (lambda rng, folder: warnings.warn("zero", RuntimeWarning, stacklevel=1), "RuntimeWarning: zero"),
    ],
)
def test_what_goes_wrong_is_found(tmp_path, monkeypatch, kind, words):
    fuzz = imported_script("fuzz")
    monkeypatch.setitem(fuzz.KINDS, "load", kind)
    assert words in fuzz.once("load", "1", 0, tmp_path)[2]


APEX = """
from contextlib import contextmanager
from types import SimpleNamespace
def initialize(model, optimizer, opt_level, verbosity):
    optimizer._amp_stash = SimpleNamespace(already_patched=False)
    return model, optimizer
@contextmanager
def scale_loss(loss, optimizer):
    assert loss.is_cuda  # which the script replaces
    yield FACTOR * loss
def master_params(optimizer):
    return optimizer.param_groups[0]["params"]
"""


@pytest.mark.e2e
@pytest.mark.parametrize(("factor", "code"), [("1", 0), pytest.param("-1", 1, marks=pytest.mark.slow)])
def test_losses_are_compared_with_those_of_a_made_up_apex(tmp_path, factor, code):
    """Its amp leaves everything in fp32, as O0 does, or trains in the wrong direction."""
    (tmp_path / "apex/amp").mkdir(parents=True)
    (tmp_path / "apex/__init__.py").touch()
    (tmp_path / "apex/amp/__init__.py").write_text(APEX.replace("FACTOR", factor))
    done = run_script("against_apex", "--apex", tmp_path, "--levels", "O0", "--models", "lstm", "--steps", "3")
    assert done.returncode == code, done.stderr
    assert ("lstm, O0 and fp32: losses differ by at most 0\n" in done.stdout) == (code == 0), done.stdout


@pytest.mark.e2e
@pytest.mark.parametrize(("kills", "accidents"), [(2, 1), pytest.param(6, 6, marks=pytest.mark.slow)])
def test_nothing_is_lost_doubled_or_left_over(capsys, kills, accidents):
    code = imported_script("kills").main(["--count", str(kills), "--accidents", str(accidents)])
    assert code == 0, capsys.readouterr().out


mutations = imported_script("mutations")


def test_what_becomes_of_a_line():
    expected = {
        "a < 3": ["(a <= 3)", "(a >= 3)", "a < 4"],
        "a == 'card'": ["(a != 'card')", "a == 'card_'"],
        "x = a * b + 2": ["x = (a * b - 2)", "x = (a / b) + 2", "x = a * b + 3"],
        "x = a and not b": ["x = (a or not b)", "x = a and (b)"],
        "x = f(True, 0.25, -y)": ["x = f(False, 0.25, -y)", "x = f(True, 0.25, (y))", "x = f(True, 0.5, -y)"],
        "a += b": ["a -= b"],
        "x = row['seconds']": ["x = row['seconds_']"],
        "x = a if b else c": ["x = a if (not b) else c"],
        "é = 'ß' if a else b": ["é = 'ß' if (not a) else b"],
    }
    found = {source: mutations.mutations_of("a.py", source, 1000, 1) for source in expected}
    assert {source: sorted(each.mutated for each in changes) for source, changes in found.items()} == expected


def test_the_table_names_modules_and_tests_that_there_are():
    for module, tests in mutations.TESTS.items():
        assert (ROOT / module).is_file()
        assert [name for name in tests if not (ROOT / "tests" / f"{name}.py").is_file()] == []
