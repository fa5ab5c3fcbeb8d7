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


def test_finer_values_lie_between_the_best_and_its_neighbours():
    search = Search("lr", 0.1, 3.2)
    assert search.finer(0.4) == [0.283, 0.566]
    assert search.finer(0.1) == [0.141], "the end of the range has one neighbour"
    assert search.finer(3.2) == [2.26]


def test_a_rung_is_three_times_as_long_and_a_third_goes_on():
    assert rungs(90) == [10, 30, 90]
    assert rungs(4) == [1, 4]
    assert rungs(1) == [1]
    assert kept([3, 1, 2, 5, 4, 6]) == [3, 1]
    assert kept([3, 1]) == [3]
    assert kept([]) == []


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
    assert rows[6:] == [(0.4, 3, "ok"), *((0.4, 9, "ok"),), *rows[8:]]
    assert sorted(rows[8:]) == [(0.283, 9, "ok"), (0.566, 9, "ok")]
    *_, last = done.stdout.strip().splitlines()
    assert last == (
        f"next: gpubench run --suite {RATES} --device cpu --precision fp32 --batch 4 --full --seed 8 --set lr=0.4"
    )
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert [line[0] for line in lines][:4] == ["0.4", "0.283", "0.566", "0.4"], (
        "whole runs first, the best of them first"
    )
    assert [line[-1] for line in lines][-2:] == ["failed", "failed"]


def test_a_sweep_that_was_stopped_goes_on(cli, tmp_path):
    command = (*RUN, "--sweep", "lr=0.1:3.2:log", "--out", "sweep.csv")
    whole = cli(*command).stdout
    path = tmp_path / "sweep.csv"
    rows = tried(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]))
    assert cli(*command).stdout == whole
    done = [row for row in tried(path) if row[2] == "ok"]
    assert sorted(done) == sorted(row for row in rows if row[2] == "ok"), "nothing that was finished is trained again"
    assert cli(*command).stdout == whole


def test_a_sweep_that_is_interrupted_asks_for_no_more(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("gpubench.runner.run.run", lambda options, found: INTERRUPTED)
    done = cli(*RUN, "--sweep", "lr=0.1:3.2:log", "--out", "sweep.csv")
    assert done.returncode == INTERRUPTED
    assert done.stdout == ""


def test_the_end_of_the_range_may_not_be_the_best(cli):
    assert "lr=0.1 is an end of the range" in cli(*RUN, "--sweep", "lr=0.01:0.1:log").stdout


def test_values_that_all_fail_end_the_sweep(cli):
    done = cli(*RUN, "--sweep", "lr=2:8:log")
    assert done.returncode == 4
    assert "no try of 1 epochs has a result" in done.stderr


def test_a_file_holds_one_recipe_and_its_tries(cli):
    cli(*RUN, "--sweep", "lr=0.1:0.4:log", "--set", "epochs=1", "--out", "sweep.csv")
    done = cli(*RUN, "--full", "--set", "epochs=1", "--set", "lr=0.4", "--out", "sweep.csv")
    assert done.returncode == 2
    assert "differs in params" in done.stderr


def test_a_sweep_shares_its_file_with_no_other_case(cli):
    cli(*RUN, "--models", "other", "--full", "--set", "epochs=1", "--out", "rows.csv")
    done = cli(*RUN, "--sweep", "lr=0.1:0.4:log", "--out", "rows.csv")
    assert done.returncode == 2
    assert "give it a file of its own" in " ".join(done.stderr.split())


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
    ],
)
def test_what_a_sweep_refuses(cli, more, words):
    done = cli(*RUN, "--sweep", "lr=0.1:0.4:log", *more)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())


def test_a_sweep_needs_a_parameter_of_the_suite(cli):
    done = cli(*RUN, "--sweep", "rate=0.1:0.4:log")
    assert done.returncode == 2
    assert "no such parameter" in done.stderr
    done = cli(*RUN, "--sweep", "epochs=1:9:log")
    assert done.returncode == 2
    assert "only what may have a fraction" in done.stderr
