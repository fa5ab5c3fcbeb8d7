"""`gpubench run --sweep`: which values are tried, for how long, which go on, and that a killed sweep goes on."""

from pathlib import Path

import pytest

from gpubench.commands.sweep.search import Search, kept, parse_search, rungs
from gpubench.errors import UserError
from gpubench.rows.read import load
from gpubench.runner.signals import INTERRUPTED

RATES = Path(__file__).parent / "suites" / "rates.py"
RUN = ("run", "--suite", RATES, "--device", "cpu", "--precision", "fp32", "--batch", 4)


def test_values_double_from_one_end_of_the_range_to_the_other():
    assert Search("lr", 0.1, 3.2).coarse() == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert Search("lr", 0.1, 0.11).coarse() == [0.1, 0.105, 0.11]


def test_finer_values_lie_halfway_to_the_next():
    search = Search("lr", 0.1, 3.2)
    assert search.neighbours(0.4) == [0.283, 0.566]
    assert search.neighbours(0.283) == [0.2, 0.4]
    assert search.neighbours(0.1) == [0.141], "the end of the range has one neighbour"
    assert search.neighbours(3.2) == [2.26]


def test_a_rung_is_three_times_as_long_and_a_third_goes_on():
    assert rungs(90) == [10, 30, 90]
    assert rungs(4) == [1, 4]
    assert rungs(1) == [1]
    assert kept([3, 1, 2, 5, 4, 6], 6) == [3, 1]
    assert kept([3, 1, 2, 5], 6) == [3, 1], "of those that were tried, whatever became of them"
    assert kept([3, 1], 2) == [3]
    assert kept([], 6) == []


@pytest.mark.parametrize(
    "text", ["lr", "lr=0.1", "lr=0.1:3.2", "lr=3.2:0.1:log", "=1:2:log", "lr=0:1:log", "lr=a:b:log"]
)
def test_a_range_that_is_none_is_refused(text):
    with pytest.raises(UserError, match=r"lr=0\.1:3\.2:log"):
        parse_search(text)


def tried(path):
    """(lr, epochs, status) of each row."""
    frame = load([path]).frame
    params = [dict(pair.split("=") for pair in text.split()) for text in frame["params"]]
    return [
        (float(each["lr"]), int(each["epochs"]), status) for each, status in zip(params, frame["status"], strict=True)
    ]


def test_a_sweep_ends_with_a_table_and_the_command_to_run_next(cli, tmp_path, monkeypatch):
    command = (*RUN, "--sweep", "lr=0.1:3.2:log", "--out", "sweep.csv", "--seed", 7)
    monkeypatch.setattr("sys.argv", ["gpubench", *map(str, command)])
    done = cli(*command)
    assert done.returncode == 0, done.stderr
    rows = tried(tmp_path / "sweep.csv")
    assert sorted(rows[:6]) == [
        *((lr, 1, "ok") for lr in (0.1, 0.2, 0.4, 0.8)),
        *((lr, 1, "failed") for lr in (1.6, 3.2)),
    ]
    assert sorted(rows[6:8]) == [(0.4, 3, "ok"), (0.8, 3, "ok")] or sorted(rows[6:8]) == [
        (0.2, 3, "ok"),
        (0.4, 3, "ok"),
    ]
    assert rows[8] == (0.4, 9, "ok")
    assert sorted(rows[9:]) == [(0.283, 9, "ok"), (0.566, 9, "ok")]
    *_, last = done.stdout.strip().splitlines()
    assert last == (
        f"next: gpubench run --suite {RATES} --device cpu --precision fp32 --batch 4 --full --seed 8 --set lr=0.4"
    )
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert [line[0] for line in lines][:4] == ["0.4", "0.283", "0.566", "0.4"], (
        "whole runs first, the best of them first"
    )
    assert [line[-1] for line in lines][-2:] == ["failed", "failed"]


@pytest.mark.parametrize("best", ["0.4", "0.3"])
@pytest.mark.parametrize("lines", [5, 8, 10, 100])
def test_a_sweep_that_was_stopped_goes_on(cli, tmp_path, best, lines):
    command = (*RUN, "--set", f"best={best}", "--sweep", "lr=0.1:3.2:log", "--out", "sweep.csv")
    whole = cli(*command).stdout
    path = tmp_path / "sweep.csv"
    rows = tried(path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    assert cli(*command).stdout == whole
    done = [row for row in tried(path) if row[2] == "ok"]
    assert sorted(done) == sorted(row for row in rows if row[2] == "ok"), "nothing that was finished is trained again"


def test_a_best_value_that_falls_with_the_length_is_followed(cli):
    falling = ("--set", "best=0.8", "--set", "drift=0.9")  # at nine epochs the best is 0.34
    assert "--set lr=0.4" in cli(*RUN, *falling, "--sweep", "lr=0.1:0.8:log", "--out", "sweep.csv").stdout


def test_a_shorter_sweep_in_the_same_file_is_judged_by_its_own_tries(cli):
    command = (*RUN, "--sweep", "lr=0.1:0.8:log", "--out", "sweep.csv")
    cli(*command)
    lines = cli(*command, "--set", "epochs=3").stdout.splitlines()
    assert {line.split()[1] for line in lines if line.strip()[:1].isdigit()} == {"1", "3"}


def test_a_value_of_which_a_trial_failed_is_none(cli, tmp_path):
    command = (*RUN, "--repeats", 2, "--sweep", "lr=0.1:0.4:log", "--set", "epochs=1", "--set", "odd=true")
    done = cli(*command, "--out", "sweep.csv")
    assert done.returncode == 0
    assert "--set lr=0.2" in done.stdout or "--set lr=0.283" in done.stdout
    *_, last = (line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit())
    assert (last[0], last[-1]) == ("0.4", "failed")


def test_a_sweep_that_is_interrupted_asks_for_no_more(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("gpubench.runner.run.run", lambda options: INTERRUPTED)
    done = cli(*RUN, "--sweep", "lr=0.1:3.2:log", "--out", "sweep.csv")
    assert done.returncode == INTERRUPTED
    assert done.stdout == ""


def test_the_end_of_the_range_may_not_be_the_best(cli):
    assert "lr=0.1 is an end of the range" in cli(*RUN, "--sweep", "lr=0.01:0.1:log", "--out", "sweep.csv").stdout


def test_values_that_all_fail_end_the_sweep(cli):
    done = cli(*RUN, "--sweep", "lr=2:8:log", "--out", "sweep.csv")
    assert done.returncode == 4
    assert "no try at 1 of 9 epochs has a result" in done.stderr


def test_a_file_holds_one_recipe_and_its_tries(cli):
    cli(*RUN, "--sweep", "lr=0.1:0.4:log", "--set", "epochs=1", "--out", "sweep.csv")
    done = cli(*RUN, "--full", "--set", "epochs=1", "--set", "lr=0.4", "--out", "sweep.csv")
    assert done.returncode == 2
    assert "differs in params" in done.stderr


def test_a_sweep_shares_its_file_with_no_other_case(cli, tmp_path):
    cli(*RUN, "--models", "other", "--full", "--set", "epochs=1", "--out", "rows.csv")
    done = cli(*RUN, "--sweep", "lr=0.1:0.4:log", "--out", "rows.csv")
    assert done.returncode == 2
    assert "give it a file of its own" in " ".join(done.stderr.split())
    assert len(load([tmp_path / "rows.csv"]).frame) == 1, "before anything trains"


def test_a_dry_run_trains_nothing(cli, tmp_path):
    done = cli(*RUN, "--sweep", "lr=0.1:0.4:log", "--dry-run")
    assert done.returncode == 0
    assert "3 cases" in done.stdout
    assert "3 for 1 epoch, 1 for 3 epochs, 1 for 9 epochs" in " ".join(done.stderr.split())
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--models", "only,other"), "searches one case"),
        (("--precision", "both"), "searches one case"),
        (("--quick",), "leave out --quick"),
        (("--sweep", "lr=1:2:log"), "searches one parameter"),
        (("--synthetic",), "leave out --synthetic"),
        (("--set", "epochs=0"), "--set epochs=N"),
        (("--batch", "fastest"), "give its number"),
        (("--precision", "fp32,bf16"), "searches one case"),
        (("--set", "lr=0.1"), "leave one of them out"),
        (("--out", "results"), "give --out FILE.csv"),
    ],
)
def test_what_a_sweep_refuses(cli, more, words):
    done = cli(*RUN, "--out", "sweep.csv", "--sweep", "lr=0.1:0.4:log", *more)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())


def test_a_sweep_needs_a_parameter_of_the_suite(cli):
    done = cli(*RUN, "--out", "sweep.csv", "--sweep", "rate=0.1:0.4:log")
    assert done.returncode == 2
    assert "--sweep rate: suite rates has no such parameter" in done.stderr
    done = cli(*RUN, "--out", "sweep.csv", "--sweep", "epochs=1:9:log")
    assert done.returncode == 2
    assert "only what may have a fraction" in done.stderr
