"""When a run stops (early, `--until`, `--budget`), its message, and resuming it."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from facts import lacking
from inside import answering
from test_forecast import CASE

from gpubench.analysis.compare import compare
from gpubench.interval import drifts, median_interval
from gpubench.runner.early import decided_early
from gpubench.runner.options import Options
from gpubench.runner.rounds import half_width, why_stop, widths_of
from gpubench.runner.run import run
from gpubench.suite.trial import Measurement

SCRIPTED = Path(__file__).parent / "suites" / "scripted.py"
TIGHT = [1.0, 1.001, 1.002, 0.999, 0.998, 1.0]


FASTER_IN_HALF = """
from gpubench import Suite

def train(trial, clock):
    raise NotImplementedError

SUITE = Suite(train=train, models=("gains", "equal"), params={}, version=1, torch=False)
"""


def faster_in_half(case):
    """The result of a trial of this suite."""
    is_fast = case["model"] == "gains" and case["precision"] == "bf16"
    return Measurement("ok", seconds=2.0 - is_fast, samples_per_second=1.0)


def test_a_model_stops_after_three_rounds_if_its_ratio_is_decided(rounds_of, cli, tmp_path, capsys):
    """A ratio of 2 takes three rounds, equal times six. The same command again adds no trial, but --repeats does."""
    command = ["run", "--suite", tmp_path / "half.py", "--device", "cpu", "--precision", "fp32,bf16", "--dry-run"]
    assert "up to 6 rounds" in cli(*command).stdout
    for wishes, trials, words in (
        ({}, 18, ("24 trials at most", "after 3 rounds: gains", "6 trials")),
        ({}, 18, ("all trials are done",)),
        ({"repeats": 6}, 24, ()),
    ):
        _, lines = rounds_of(faster_in_half, code=0, precision="fp32,bf16", **wishes)
        assert lacking("\n".join([*lines, capsys.readouterr().err]), *words) == []
        assert len(pd.read_csv(tmp_path / "a.csv")) == trials
    assert lacking(cli("compare", tmp_path / "a.csv").stdout, "2.00", "faster") == []


@pytest.mark.parametrize(
    ("seconds", "width"),
    [
        ([100.0, 110.0, 120.0, 90.0, 80.0, 100.0], 0.2),
        ([40.0, 44.0, 41.0, 39.0, 40.0, 38.0], 0.075),
        ([float(n * 7 % 17 + 1) for n in range(17)], 5 / 9),
        ([7.0] * 6, 0.0),
        (TIGHT, 0.002),
        (TIGHT[:5], math.inf),
    ],
)
def test_half_width_is_a_share_of_the_median(seconds, width):
    assert half_width(seconds) == pytest.approx(width)
    assert median_interval(list(range(1, 18))) == (5, 13)
    assert median_interval(list(range(1, 18)), until=True) == (4, 14)


def test_widths_and_budgets_at_their_limits():
    wide = {"a": [100.0, 110.0, 120.0, 90.0, 80.0, 100.0], "b": [40.0, 44.0, 41.0, 39.0, 40.0, 36.0], "c": []}
    assert widths_of(wide) == {"a": pytest.approx(0.2), "b": pytest.approx(0.1)}
    assert why_stop(widths_of(wide), 0.2) == "2 of 2 intervals are within 20%"
    assert why_stop(widths_of(wide), 0.19) is None
    assert why_stop(widths_of(wide), 0.19, budget_seconds=60, needed_seconds=60) is None
    assert lacking(why_stop(widths_of(wide), 0.125, 60.4, 60.5), "60 s", "1 of 2", "12.5%", "a (20%)") == []
    why = why_stop(widths_of(wide), 0.01, 0.0, 1.0)
    assert why.endswith("; 0 of 2 intervals are within 1%, not yet a (20%), b (10%)")
    assert why_stop(widths_of({"a": TIGHT, "broken": []}), 0.01) == "1 of 1 intervals are within 1%"
    assert why_stop(widths_of({"broken": []}), 0.01)
    steady, drifting = [1.000, 1.002, 1.001, 1.003, 0.999, 1.001], [1.000, 1.001, 1.002, 1.003, 1.004, 1.005]
    assert why_stop(widths_of({"a": steady}), 0.01)
    assert why_stop(widths_of({"a": steady, "b": drifting}), 0.01) is None
    assert "b (too few trials, or they drift)" in why_stop(widths_of({"a": steady, "b": drifting}), 0.01, 10.0, 11.0)


def test_rounds_are_added_and_a_budget_ends_them(cli, tmp_path, monkeypatch):
    # These times are mostly noise, so the width is mocked.
    monkeypatch.setattr("gpubench.runner.rounds.half_width", lambda seconds: 0.5 if len(seconds) > 5 else math.inf)
    base = ["run", "--suite", SCRIPTED, "--device", "cpu", "--precision", "fp32", "--models", "short"]
    base += ["--set", "step_ms=200"]  # simulated time: a budget of 12 s is a few trials
    done = cli(*base, "--until", "90%", "--out", "easy.csv")
    assert done.returncode == 0, done.stderr
    rows = pd.read_csv(tmp_path / "easy.csv")
    assert len(rows) == 6
    assert lacking(done.stderr, "6 rounds", "1 of 1", "90%") == []
    assert list(rows["trial"]) == list(range(len(rows)))
    assert set(rows["until"]) == {0.9}

    done = cli(*base, "--until", "0.0001%", "--budget", "12s", "--out", "hard.csv")
    assert done.returncode == 0, done.stderr
    assert lacking(done.stderr, "12 s", "0 of 1", "0.0001%") == []
    before = pd.read_csv(tmp_path / "hard.csv")
    assert len(before) >= 6

    done = cli(*base, "--until", "90%", "--out", "hard.csv")
    assert done.returncode == 2
    assert "differs in until" in done.stderr
    done = cli(*base, "--until", "0.0001%", "--budget", "1s", "--out", "hard.csv")
    assert done.returncode == 0, done.stderr
    after = pd.read_csv(tmp_path / "hard.csv")
    assert list(after["trial"]) == list(range(len(after)))
    assert len(after) > len(before)


@pytest.fixture
def rounds_of(tmp_path, monkeypatch):
    """Runs trials whose result is `result_of(case)`; returns the rounds of each case, and the printed lines."""
    monkeypatch.setattr("gpubench.hardware.host.reference_seconds", lambda: 0.1)
    (tmp_path / "half.py").write_text(FASTER_IN_HALF)

    def run_all(result_of, code=4, **wishes):
        asked, lines = {}, []

        def ended(trial):
            if trial["case"]["mode"] != "probe":
                asked.setdefault((trial["case"]["model"], trial["case"]["precision"]), []).append(trial["index"])
            return result_of(trial["case"])

        usual = {"suites": (str(tmp_path / "half.py"),), "device": "cpu", "out": tmp_path / "a.csv"}
        assert run(Options(**usual, **wishes), lines.append, answering(ended)).exit_code == code
        return asked, lines

    return run_all


@pytest.mark.parametrize(
    ("batch", "status", "rows", "told"),
    [
        ("8", "goal_missed", 6, ["6 of 6", "already in", "0 to do"]),
        ("fastest", "unsupported", 1, ["1 of 1", "0 to do"]),
    ],
)
def test_only_ok_trials_count_and_a_finished_run_adds_no_row(rounds_of, tmp_path, batch, status, rows, told):
    result = Measurement(status, seconds=1.0, measured=True)
    wishes = {"until": 0.01, "precision": "fp32", "models": ("equal",), "batch": batch}
    for trials, words in ((range(rows * (rows > 1)), []), ((), told)):  # no case has a time, so there is no seventh
        asked, lines = rounds_of(lambda case: result, 4 * (rows > 1), **wishes)
        assert [index for case in asked.values() for index in case] == list(trials)
        assert lacking("\n".join(lines), *words) == []
        assert len(pd.read_csv(tmp_path / "a.csv")) == rows


def test_a_case_that_was_unsupported_is_tried_again_by_the_same_command(rounds_of, tmp_path):
    good, bad = Measurement("ok", seconds=1.0, samples_per_second=1.0), Measurement("unsupported", "not installed")
    wishes = {"precision": "fp32,bf16", "models": ("equal",), "batch": "fastest", "repeats": 3}
    rounds_of(lambda case: good if case["precision"] == "fp32" else bad, 0, **wishes)

    def stopped(case):
        raise KeyboardInterrupt

    for result_of, code, rows in ((stopped, 130, 4), (lambda case: good, 0, 6)):  # it is installed meanwhile
        _, lines = rounds_of(result_of, code, **wishes)
        assert lacking("\n".join(lines), "all trials are done; trying unsupported cases again") == []
        assert len(pd.read_csv(tmp_path / "a.csv")) == rows


def test_ratios_are_looked_at_after_a_round_whose_last_case_cannot_run(rounds_of):
    def result_of(case):
        seconds = 2.0 if case["precision"] == "fp32" else 1.0
        good = Measurement("ok", seconds=seconds, samples_per_second=1.0)
        return good if case["model"] == "gains" else Measurement("failed", "no step ran")

    asked, _ = rounds_of(result_of, precision="fp32,bf16", batch="fastest")
    assert asked == {("gains", precision): [0, 1, 2] for precision in ("fp32", "bf16")}


def test_the_forecast_after_a_trial_is_of_those_that_wait(rounds_of, monkeypatch):
    left = []
    news = lambda forecast, waiting, searches, now: left.append((len(waiting), searches))  # noqa: E731
    monkeypatch.setattr("gpubench.runner.rounds.Forecast.news", news)
    good = Measurement("ok", seconds=1.0, samples_per_second=1.0)
    rounds_of(lambda case: good, code=0, precision="fp32", models=("equal",), repeats=3)
    assert left == [(2, 0), (1, 0), (0, 0)]


@pytest.mark.parametrize("stop_at", [2, 7, 13, 15])
def test_a_run_that_was_stopped_ends_early_without_rows_of_trials_that_it_left_out(rounds_of, tmp_path, stop_at):
    done = []

    def result_of(case):
        done.append(case)
        if len(done) == stop_at:
            raise KeyboardInterrupt
        return faster_in_half(case)

    for code in (130, 0):
        rounds_of(result_of, code, precision="fp32,bf16")
    result = compare([tmp_path / "a.csv"])
    found = {(c.subject.model, c.subject.trials, c.verdict) for c in result.comparisons}
    assert (found, result.failed) == ({("equal", 6, "same"), ("gains", 3, "faster")}, 0)


def test_all_precisions_of_a_model_stop_together():
    cases = [replace(CASE, precision=precision) for precision in ("fp32", "bf16", "fp16")]
    for times, stop in (
        ((3, 2, 1), True),
        ((3, 2, 1.99), False),  # fp32 would no longer alternate with the others
        ((3, 2, None), True),  # a case that fails in every round is ignored
        ((3, None, None), False),
    ):
        seconds = {case.label: [time] * 3 for case, time in zip(cases, times, strict=True) if time}
        assert decided_early(cases, seconds) == ({case.label for case in cases} if stop else set())
        assert not decided_early([*cases, replace(CASE, device="cuda:1")], seconds)
        assert not decided_early([replace(case, studies=("ladder",)) for case in cases], seconds)


@pytest.mark.parametrize(("values", "drifting"), [
    ([1, 2, 3, 4, 5, 6], True), ([1, 2, 3, 10, 11, 12, 11.5, 10.5, 3.5, 2.5], True),
    ([3, 1, 6, 2, 5, 4], False), ([1, 2, 1, 2, 1, 2, 1, 2], False),
    ([1, 2, 3, 4, 5], False), ([1, 1, 1, 1, 1, 1], False),
])  # fmt: skip
def test_trials_close_to_their_neighbours_drift(values, drifting):
    assert drifts(values) == drifting


def test_drift_has_5_percent_false_positives():
    dice = random.Random(4)
    found = sum(drifts([dice.random() for _ in range(20)]) for _ in range(2000)) / 2000
    assert 0.03 < found < 0.07
