"""What a run says before its first trial: how much, how long, on which data, until when, and what cannot run."""

from dataclasses import replace
from datetime import datetime

from facts import lacking

from gpubench.runner.forecast import Forecast, data_of
from gpubench.runner.options import Options
from gpubench.suite.trial import Case, Trial

NOW = datetime(2026, 11, 22, 15, 28)
CASE = Case(
    suite="demo", suite_version=1, suite_digest="", suite_path="demo.py", model="small", precision="fp32",
    device="cpu", params={}, batch_policy="fixed", batch_size=8, mode="sampled", data="cifar100",
)  # fmt: skip


def said(number, case=CASE, searches=0, slowdown=1.0, **options):
    return Forecast(Options(**options), slowdown).lines([Trial(case, 0, 42)] * number, searches, NOW)


def test_a_sampled_run_gets_the_usual_time_with_searches_and_warming():
    first, second = said(42)
    assert lacking(first, "42 trials", "21 min", "cifar100", "real", "15:49") == []
    assert lacking(second, "30 min", "--time-limit") == []
    assert said(1, replace(CASE, precision="fp16"), mode="quick")[0].startswith("1 trial, about 23 s;")
    assert said(30, slowdown=9.0, time_limit_seconds=10.0)[0].startswith("30 trials, about 5 min;")
    on_card = replace(CASE, device="cuda:0")
    assert lacking(said(18, on_card, searches=2)[0], "18 trials", 2, "18 min") == []
    assert said(3, on_card, searches=2, mode="quick")[0].startswith("3 trials and 2 batch searches, about 2 min 13 s;")


def test_of_a_whole_run_no_time_is_invented():
    lines = said(1, mode="full")
    assert lines[0] == "1 whole run; data: cifar100 (real)"
    assert not any(character.isdigit() for line in lines[1:] for character in line)
    assert lacking(said(2, mode="full", time_limit_seconds=5400.0)[1], "1 h 30 min", "--time-limit") == []


def test_a_run_until_goes_on_to_its_budget_at_most():
    first = said(42, until=0.01, budget_seconds=1800.0)[0]
    assert lacking(first, "42 trials", "21 min", "30 min", "cifar100", "15:58") == []
    assert "about 21 min;" in said(42, until=0.01, budget_seconds=60.0)[0]
    forecast = Forecast(Options(until=0.01))
    forecast.add(CASE, 40.0)
    assert forecast.news([CASE] * 2, 0, NOW) == "at least 80 s left"  # more rounds may follow


def test_what_cannot_run_is_counted_with_its_reason():
    refused = replace(CASE, refusal="Lightning is not installed: pip install it")
    lines = Forecast(Options()).lines([Trial(refused, 0, 42)] * 2 + [Trial(CASE, 0, 42)], 0, NOW)
    assert lines[0].startswith("1 trial, about 38 s;")
    pair = [Trial(replace(CASE, precision=name), index, 42) for index in range(6) for name in ("fp32", "bf16")]
    assert Forecast(Options()).lines(pair, 0, NOW)[0].startswith("12 trials at most, about 3 min 8 s to 6 min 8 s;")
    assert lacking(lines[2], "2 cases", "Lightning is not installed: pip install it") == []
    (line,) = said(1, refused)
    assert lacking(line, "1 case", "Lightning is not installed: pip install it") == []


def test_data_is_real_made_up_or_somebodys():
    names = ("cifar10+cifar100", "synthetic", "my-text", "")
    assert data_of(replace(CASE, data=name) for name in names) == (
        "cifar10+cifar100 (real), synthetic (generated), my-text (your own)"
    )


def test_the_time_left_is_told_anew_when_trials_take_longer_than_was_said(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("gpubench.runner.forecast.time.monotonic", lambda: now[0])
    forecast, slow = Forecast(Options(mode="quick")), replace(CASE, model="large")
    waiting = [CASE, slow, slow]
    forecast.lines([Trial(CASE, 0, 42)] * 4, 0, NOW)  # 68 s
    now[0] = 16.0
    forecast.add(CASE, 16.0)
    assert forecast.news(waiting, 0, NOW) == ""  # 48 s, as was said
    assert forecast.end == 68.0
    now[0] = 136.0
    forecast.add(slow, 120.0)
    assert lacking(forecast.news([CASE, slow], 0, NOW), "2 min 16 s", "15:30") == []
    now[0] = 256.0
    forecast.add(slow, 120.0)
    assert forecast.news([CASE], 0, NOW) == ""  # as was said
    assert lacking(forecast.news([CASE], 2, NOW), "1 min 36 s") == []  # two searches more
    assert Forecast(Options()).news([], 0, NOW) == ""


def test_a_busy_cpu_makes_trials_on_it_longer_and_those_on_a_card_not():
    assert "about 38 s;" in said(2, mode="quick")[0]
    assert "about 68 s;" in said(2, mode="quick", slowdown=2.0)[0]
    on_card = replace(CASE, device="cuda:0")
    assert said(2, on_card, mode="quick", slowdown=2.0) == said(2, on_card, mode="quick")
