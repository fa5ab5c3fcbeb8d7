"""benchmarks/on_a_card.py: its stages are commands that plan, its time is 27 minutes, and it goes on where it ended."""

import argparse
import csv
import signal
import sys
from pathlib import Path

import pytest

from gpubench.suite import files


@pytest.fixture
def script(benchmark_script):
    return benchmark_script("on_a_card")


@pytest.fixture
def go(script, tmp_path, monkeypatch, capsys):
    """Runs these stages, which are modules in the folder; returns the lines of stages.csv."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def call(stages, *arguments):
        monkeypatch.setattr(script, "STAGES", stages)
        monkeypatch.setattr(sys, "argv", ["on_a_card.py", "--out", "card", *map(str, arguments)])
        script.main()
        with Path("card/stages.csv").open() as file:
            return [(line["stage"], line["ended"]) for line in csv.DictReader(file)]

    return call


@pytest.fixture
def in_background():
    """Ctrl-C is ignored, as in a shell's background job."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_everything_fits_27_minutes_and_no_call_of_nine_leaves_a_stage_for_ever(script):
    assert sum(stage.seconds for stage in script.STAGES.values()) <= 27 * 60
    assert all(stage.seconds <= 9 * 60 - script.GRACE_SECONDS for stage in script.STAGES.values())


def test_every_suite_runs(script):
    commands = " ".join(stage.command for stage in script.STAGES.values())
    assert all(f"--suite {each} " in commands for each in files.built_in_names())


@pytest.mark.parametrize("small", [False, True])
def test_every_run_is_a_plan(script, small, cli):
    for name, stage in script.STAGES.items():
        if stage.command.startswith("gpubench run"):
            options = argparse.Namespace(out=Path("card"), data=None, device="cpu", small=small)
            command = script.command_of(name, options)[3:]
            done = cli(*command, "--dry-run")
            assert done.returncode == 0, (name, done.stderr)


def test_what_ended_is_not_run_again_unless_it_is_asked_for(script, go, tmp_path):
    (tmp_path / "fails.py").write_text("raise SystemExit(3)")
    stages = {"fine": script.Stage("this", 20), "fails": script.Stage("fails", 20)}
    assert go(stages) == [("fine", "0"), ("fails", "3")]
    assert go(stages) == [("fine", "0"), ("fails", "3")]
    assert go(stages, "--stages", "fails")[2:] == [("fails", "3")]
    assert "The Zen of Python" in (tmp_path / "card/fine.log").read_text()


def test_what_is_cut_off_goes_on_until_its_time_is_spent(script, go, in_background, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('kept', flush=True)"
    )
    stages = {"slow": script.Stage("slow", 1.5, resumes=True)}
    assert go(stages) == [("slow", "cut off")]
    assert "kept" in (tmp_path / "card/slow.log").read_text()
    assert go(stages) == [("slow", "cut off")], "its time is spent"
    assert go(stages, "--stretch", 2)[1:] == [("slow", "cut off")]
