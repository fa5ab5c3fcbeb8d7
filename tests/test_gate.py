"""`compare --fail-on-slower`: every exit code, and that a zero means what it says."""

from unittest import mock

import pandas as pd
import pytest
from facts import lacking
from rows import group, row, rows

from gpubench.analysis import verdicts
from gpubench.analysis.compare import Compared, Question, Workload, compare
from gpubench.analysis.gate import gate
from gpubench.analysis.metrics import METRICS
from gpubench.analysis.stats import Ratio
from gpubench.analysis.verdicts import Comparison
from gpubench.rows import write as records
from gpubench.rows.read import Loaded

EVEN = [100.0, 100.1, 100.2, 99.9, 99.8, 100.05]
BASE = rows(EVEN)
FAILED = row(status="failed", reason="it broke", seconds=None, measured="", precision="bf16", trial=6)


def bf16(times, **changes):
    return rows(times, precision="bf16", **changes)


def times(factor, spread=1.0):
    return [100 * factor + (value - 100) * spread for value in EVEN]


def code_of(tmp_path, *groups, limit=0.05):
    path = tmp_path / "rows.csv"
    path.unlink(missing_ok=True)
    for workload in groups:
        records.append(path, workload)
    return gate(compare([path], Question(by="precision", baseline="fp32")), limit)


@pytest.mark.parametrize(("groups", "code", "words"), [
    ([BASE, bf16(times(1.1))], 1, "bf16, 10.0% more time (+9"),
    ([BASE, bf16(times(1.0))], 0, "all 1 intervals end below"),
    ([BASE, bf16(times(0.5))], 0, "all 1 intervals end below"),
    ([BASE, rows(EVEN, session="s2"), bf16(times(0.5))], 0, "all 1 intervals end below"),
    ([BASE, bf16(times(1.05))], 3, "undecided"),
    ([BASE, bf16(times(1.0, spread=80))], 3, "undecided"),
    ([BASE, bf16(times(2.0)[:1])], 3, "undecided"),
    ([BASE, bf16(times(1.0)[:3])], 3, "undecided"),
    ([rows(EVEN[:3]), bf16(times(1.3)[:3])], 1, "bf16, 30.0% more time"),
    ([rows(EVEN[:3]), bf16(times(0.7)[:3])], 0, "all 1 intervals end below"),
    ([BASE, bf16(times(1.0), torch="2.1.0")], 3, "undecided"),
    ([BASE], 3, "nothing is compared with fp32"),
    ([BASE, bf16(times(1.0)), rows(EVEN, model="resnet34")], 3, "resnet34 fp32 on RTX 2080 Ti: fp32 has no"),
    ([BASE, bf16(times(1.0)), [FAILED]], 4, "1 trial(s) failed"),
    ([BASE, bf16(times(1.1)), [FAILED]], 1, "1 trial(s) failed"),
])  # fmt: skip
def test_the_exit_code_and_why(tmp_path, groups, code, words):
    found, lines = code_of(tmp_path, *groups)
    assert (found, words in "\n".join(lines)) == (code, True), lines


@pytest.mark.parametrize(("arguments", "words"), [
    (("--baseline", "fp32", "--fail-on-slower", "5"), "write it as a percentage"),
    (("--fail-on-slower", "5%"), "needs --baseline"),
])  # fmt: skip
def test_a_mistake_is_2(cli, tmp_path, arguments, words):
    records.append(tmp_path / "rows.csv", BASE + bf16(EVEN))
    done = cli("compare", "rows.csv", "--by", "precision", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def compared(low, value, high, verdict="undecided", model="m", axis="precision", base=None):
    """A case of bf16 over fp32 with such an interval."""
    ours, theirs = group(EVEN, model=model, precision="bf16"), base or group(EVEN, model=model)
    return Comparison(axis, ours, theirs, "bf16", "fp32", Ratio(value, low, high, 0.01), verdict)


def by_low(comparison, limit):
    """A p value that goes by the interval, which is not that of the groups' times."""
    return 0.0 if (comparison.ratio.low or 0) > limit else 1.0


def gated(*comparisons, more=(), limit=0.05, p_above=by_low, problems=(), **changes):
    """What is said of these comparisons, and of the groups `more`."""
    groups = [group for comparison in comparisons for group in (comparison.subject, comparison.other)]
    workload = Workload([*groups, *more], list(comparisons))
    named = {"baseline": ("precision", "fp32")}
    result = Compared([workload], [], Loaded(pd.DataFrame(), list(problems)), **named | changes)
    with mock.patch.object(verdicts, "p_above", p_above):
        return gate(result, limit)


OPEN = "undecided whether it is 5% slower than fp32"


@pytest.mark.parametrize(("low", "value", "high", "code", "words"), [
    (1.051, 1.1, 1.2, 1, "m bf16 on Ti, bf16, 10.0% more time (+5.1% to +20.0%): more than 5% slower than fp32"),
    (1.05, 1.1, 1.2, 3, "m bf16 on Ti, bf16, 10.0% more time (+5.0% to +20.0%): " + OPEN),
    (0.9, 1.0, 1.05, 3, "m bf16 on Ti, bf16, 0.0% less time (-10.0% to +5.0%): " + OPEN),
    (0.7, 0.8, 1.049, 0, "no case is 5% slower than fp32: all 1 intervals end below +5%"),
    (None, 2.0, None, 3, "m bf16 on Ti, bf16, 100.0% more time: " + OPEN),
    (1.2, 2.0, None, 3, "m bf16 on Ti, bf16, 100.0% more time: " + OPEN),
])  # fmt: skip
def test_the_limit_is_1_and_the_share(low, value, high, code, words):
    verdict = "undecided" if low and high else "one run"
    assert gated(compared(low, value, high, verdict)) == (code, [words])


@pytest.mark.parametrize(
    ("verdict", "slow", "quick"),
    [
        ("slower", 1, 0), ("same", 1, 0), ("one specimen", 1, 0), ("few specimens", 1, 0),
        ("not judged", 3, 3), ("incomplete", 3, 3), ("conflict", 3, 3), ("one run", 3, 3), ("few trials", 3, 3),
        ("card + stack", 3, 3),
    ],
)  # fmt: skip
def test_a_ratio_that_may_not_be_judged_decides_nothing(verdict, slow, quick):
    assert gated(compared(1.2, 1.3, 1.4, verdict))[0] == slow
    assert gated(compared(0.6, 0.7, 0.8, verdict))[0] == quick


def test_without_an_interval_a_baseline_or_the_axis_nothing_is_decided():
    assert gated(compared(None, 0.5, None, "faster"))[0] == 3
    assert gated(compared(None, 2.0, None, "slower"))[0] == 3
    assert gated(compared(0.4, 0.5, None, "faster"))[0] == 3
    other = compared(1.2, 1.3, 1.4, axis="card", model="n", base=group(model="n", precision="tf32"))
    assert gated(compared(0.8, 0.9, 0.95), other)[0] == 0
    assert gated(other, more=[group()]) == (3, ["nothing is compared with fp32"])
    lacks = gated(compared(0.8, 0.9, 0.95), failed=1, metric=METRICS["energy"])
    assert lacks == (4, ["1 trial(s) failed or have no energy"])
    assert gated(compared(0.8, 0.9, 0.95), baseline=None) == (3, ["nothing is compared with "])
    assert gated(compared(1.04, 1.1, 1.2), p_above=lambda comparison, limit: 0.0)[0] == 3, "its interval is not above"


def test_the_order_of_what_is_said_and_which_of_it_decides():
    slow, open_, good = (
        compared(1.2, 1.3, 1.4),
        compared(1.0, 1.05, 1.1, model="n"),
        compared(0.8, 0.9, 0.95, model="o"),
    )
    alone = group(model="p")
    code, lines = gated(good, open_, slow, more=[alone], failed=2, problems=["a.csv, line 3: torn"])
    assert code == 1
    assert [line.rpartition(": ")[2] for line in lines] == [
        "more than 5% slower than fp32",
        OPEN,
        "fp32 has no counterpart",
        "2 trial(s) failed",
        "torn",
    ]
    assert lacking(lines[2], "resnet p fp32") == []
    assert lacking(lines[3], 2, "failed") == []
    assert lacking(lines[4], "a.csv", "line 3", "torn") == []
    assert gated(good, open_, more=[alone], failed=2)[0] == 4
    assert gated(good, open_, problems=["x"])[0] == 4
    assert gated(good, failed=1) == (4, ["1 trial(s) failed"])
    assert gated(good, failed=1, missed=2) == (4, ["1 trial(s) failed", "2 trial(s) missed the goal"])
    assert gated(good, missed=2) == (4, ["2 trial(s) missed the goal"])
    assert gated(good, problems=["x"]) == (4, ["a file has a problem: x"])
    assert gated(good, open_)[0] == 3
    assert gated(good, more=[alone]) == (3, ["resnet p fp32 on Ti: fp32 has no counterpart"])
    assert gated(good, good) == (0, ["no case is 5% slower than fp32: all 2 intervals end below +5%"])


def test_two_sessions_that_differ_by_what_days_differ_are_undecided(tmp_path):
    """8% between two sessions: their 95% interval with 2% between days lies above, and days may differ by 4%."""
    path = tmp_path / "rows.csv"
    for session, factor, version in (("s1", 1.0, "2.14.0"), ("s2", 1.12, "2.15.0")):
        records.append(path, rows([factor * value for value in EVEN], session=session, torch=version))
    code, lines = gate(compare([path], Question(by="torch", baseline="2.14.0")), 0.05)
    assert (code, lines[1][:12]) == (3, "two sessions")
    assert "--session" in lines[1]


def test_a_slow_case_has_to_stand_out_of_all_that_are_compared(tmp_path):
    """Six trials a side reach p = 0.0011: enough in a table of 40 ratios, and not in one of 50."""
    found = {}
    for number in (40, 50):
        path = tmp_path / f"{number}"
        path.mkdir()
        cases = [rows(EVEN, model=f"m{i}") + bf16(times(1.1 if i == 7 else 1.0), model=f"m{i}") for i in range(number)]
        found[number], _ = code_of(path, *cases)
    assert found == {40: 1, 50: 3}


def specimens(seconds, **changes):
    """Six trials each on six cards, whose own speed is in `seconds`."""
    return [
        each
        for number, second in enumerate(seconds)
        for each in rows([second + x / 1000 for x in range(6)], device_hash=f"{number:04}", **changes)
    ]


def test_specimens_of_both_sides_are_paired_with_or_without_spread(tmp_path):
    """Cards differ by 15%, and each is 20% slower in bf16: the gate sees each card's own ratio, as the verdict does."""
    speeds = [100.0, 103.0, 106.0, 109.0, 112.0, 115.0]
    slower = specimens([1.2 * speed for speed in speeds], precision="bf16")
    code, lines = code_of(tmp_path, specimens(speeds), slower)
    assert code == 1, lines
    even = [row(device_hash=f"{n}", trial=trial) for n in range(8) for trial in range(6)]
    slower = [
        row(device_hash=f"{n}", trial=trial, seconds=120.0, precision="bf16") for n in range(8) for trial in range(6)
    ]
    code, lines = code_of(tmp_path, even, slower)
    assert code == 1, lines


def test_many_days_of_one_device_are_one_specimen(tmp_path):
    path = tmp_path / "rows.csv"
    for day in range(6):
        for factor, version, device in ((1.0, "2.14.0", "d1"), (1.13, "2.15.0", "d2")):
            times = [factor * value + day / 100 for value in EVEN]
            records.append(path, rows(times, session=f"{device}{day}", torch=version, device_hash=device))
    assert gate(compare([path], Question(by="torch", baseline="2.14.0")), 0.05)[0] == 3
