"""How much of a run each mode measures, and when a phase has seen enough: every bound by its number."""

import random
from dataclasses import replace

import pytest
from facts import lacking

from gpubench.suite.trial import Lap
from gpubench.training.clock.drift import drift, trend, without_slow_start
from gpubench.training.clock.sampling import StopRule, sampling_for


def lap(seconds, samples=10, steps=1):
    return Lap("train", 0, "warmup", steps, samples, seconds, 0.0)


SAMPLED = sampling_for("sampled", accelerator=False)


def stop(sampling=SAMPLED, phase="train", *, first=True, settled=None):
    return StopRule(sampling, phase, first_epoch=first, settled=settled)


def warmed(*seconds, sampling=SAMPLED, settled=None):
    """(kind of the next lap, why) after warm-up laps of so many seconds for ten samples."""
    one = stop(sampling, settled=settled)
    for each in seconds:
        one.add(lap(each))
    assert one.unsteady == one.reason.startswith("unsteady")
    return one.kind, one.reason


@pytest.mark.parametrize(("seconds", "reason"), [
    ([9.0, 0.5, 0.5, 0.5], ""), ([9.0, 2.0], ""), ([9.0, 1.4, 1.0], ""), ([9.0, 1.7, 1.2], ""),
    ([9.0, 0.5, 0.5, 0.5, 0.5], "flat: last 4 laps within 0.0% after 5 warm-up laps, 11.0 s"),
    ([9.0, 2.0, 2.0], "flat: last 2 laps within 0.0% after 3 warm-up laps, 13.0 s"),
    ([9.0, 1.0, 1.04], "flat: last 2 laps within 4.0% after 3 warm-up laps, 11.0 s"),
    ([9.0, 1.0, 1.06], ""), ([9.0, 1.06, 1.0], ""),  # a change is all of the scatter of two laps
    # Halves of 1.0 and 1.07, where the laps scatter by 9%; then by 5%, and halves of 1.0 and 1.11.
    ([9.0, 0.45, 0.55, 0.535, 0.535], "flat: last 4 laps within 7.0% after 5 warm-up laps, 11.1 s"),
    ([9.0, 0.5, 0.5, 0.535, 0.535], ""), ([9.0, 0.4, 0.6, 0.555, 0.555], ""),
    ([9.0, 1.8, 1.25], "unsteady: step times still moved after 3 laps, 3.0 s"),
    ([9.0, 1.0, 2.0], "long laps: 3 warm-up laps, 3.0 s"), ([9.0, 1.6, 1.5], "long laps: 3 warm-up laps, 3.1 s"),
])  # fmt: skip
def test_when_the_warm_up_is_over(seconds, reason):
    assert warmed(*seconds) == ("timed" if reason else "warmup", reason)


def test_laps_are_flat_by_the_seconds_of_a_sample():
    one = stop()
    for seconds, samples in ((9.0, 10), (1.0, 10), (2.0, 20)):
        one.add(lap(seconds, samples))
    assert lacking(one.reason, "flat", "2 laps", "0.0%", 3, "12.0 s") == []
    assert warmed(0.0, 0.0, 0.0, 0.0, 0.0)[0] == "timed"


def test_the_least_warm_up_of_an_accelerator_a_card_a_later_epoch_and_a_quick_run():
    sampling = replace(SAMPLED, least_warmup_seconds=4.0, warmup_seconds=30.0)
    assert warmed(9.0, 1.5, 1.5, sampling=sampling) == ("warmup", "")
    assert warmed(9.0, 2.0, 2.0, sampling=sampling)[0] == "timed"
    assert warmed(9.0, 1.25, 1.25, settled=lambda: False) == ("warmup", "")
    kind, reason = warmed(9.0, 1.25, 1.25, 1.25, settled=lambda: False)
    assert kind == "timed"
    assert lacking(reason, "unsteady", "clock", "temperature", "4 laps", "3.8 s") == []
    one = stop(first=False)
    assert one.kind == "warmup"
    one.add(lap(1.0))
    assert (one.kind, one.reason) == ("timed", "")
    quick = stop(sampling_for("quick", accelerator=True))
    quick.add(lap(1.0))
    assert (quick.kind, quick.reason) == ("timed", "one warm-up step; not checked whether steady")


def reached(sampling, *laps, phase="train"):
    """After how many timed laps of (seconds, steps) the phase can stop; None where it cannot."""
    one = stop(sampling, phase, first=False)
    one.add(lap(9.0))
    assert not one.reached
    for number, (seconds, steps) in enumerate(laps, start=1):
        one.add(lap(seconds, steps=steps))
        if one.reached:
            return number
    return None


@pytest.mark.parametrize(("mode", "phase", "laps", "number"), [
    ("full", "train", [(100.0, 9)] * 9, None), ("sampled", "train", [(1.5, 9)] * 9, 3),
    ("sampled", "train", [(9.0, 9)] * 9, 3), ("sampled", "train", [(1.0, 9)] * 9, 4),
    ("sampled", "valid", [(0.5, 9)] * 9, 3), ("sampled", "valid", [(0.3, 9)] * 9, 5),
    ("quick", "train", [(0.1, 1)] * 9, 5), ("quick", "train", [(0.2, 1)] * 9, 3),
    ("quick", "train", [(2.5, 1)] * 9, 2), ("quick", "train", [(5.0, 1)] * 9, 1),
    ("quick", "valid", [(0.1, 1)] * 9, 1), ("probe", "train", [(0.125, 1)] * 9, 4),
    ("probe", "train", [(0.5, 1)] * 9, 2), ("probe", "train", [(0.1, 8)] * 9, 5),
    ("probe", "train", [(10.0, 1)] * 9, 1), ("probe", "valid", [(0.1, 1)] * 9, 1),
])  # fmt: skip
def test_when_a_phase_has_seen_enough(mode, phase, laps, number):
    assert reached(sampling_for(mode, accelerator=False), *laps, phase=phase) == number


def test_how_much_of_the_work_is_done():
    one = stop(first=False)
    one.add(lap(9.0, steps=20))
    assert (one.share(80), one.share(0)) == (0.25, 0.0)
    one.add(lap(1.0, steps=4))
    assert (one.share(80), one.share(0)) == (0.3, 0.25)
    one.add(lap(2.0, steps=4))
    assert (one.share(80), one.share(28)) == (0.75, 1.0)
    one.add(lap(2.0, steps=4))
    assert one.share(80) == 1.0
    full = stop(sampling_for("full", accelerator=False))
    full.add(lap(900.0, steps=20))
    assert full.share(80) == 0.25
    quick = stop(sampling_for("quick", accelerator=False), "valid")
    quick.add(lap(900.0, steps=20))
    assert quick.share(80) == 0.25


def timed(*seconds, samples=10):
    return [Lap("train", 0, "timed", 1, samples, each, 0.0) for each in seconds]


@pytest.mark.parametrize(("laps", "change"), [
    (timed(1.0, 1.0, 9.0), ""), (timed(1.0, 1.0, 1.2, 1.2), ""), (timed(1.0, 1.0, 1.25, 1.25), "+25%"),
    (timed(1.0, 1.0, 0.75, 0.75), "-25%"), (timed(1.0, 1.0, 99.0, 1.5, 1.5), "+50%"),
    (timed(1.0, 1.0) + timed(2.0, 2.0, samples=20), ""), (timed(0.0, 0.0, 1.0, 1.0), ""),
])  # fmt: skip
def test_a_drift(laps, change):
    assert drift(laps) == (change and f"unsteady: step times changed by {change} in the second half of the timed laps")


def paced(*seconds, epoch=0, began=0.0):
    """Timed laps of ten samples, one after another."""
    starts = [began + sum(seconds[:number]) for number in range(len(seconds))]
    return [Lap("train", epoch, "timed", 1, 10, each, 0.0, start) for each, start in zip(seconds, starts, strict=True)]


def test_what_is_a_trend_or_a_slow_start():
    rising = [1.0]
    for _ in range(9):
        rising.append(rising[-1] * 1.01)
    assert trend(paced(*rising), 10.0) == pytest.approx(0.1, rel=0.1)
    assert trend(paced(*reversed(rising)), 10.0) == pytest.approx(-0.1, rel=0.1)
    assert trend(paced(*rising), 1000.0) == pytest.approx(3, rel=0.1)
    assert trend(paced(*rising[:7]), 10.0) == 0  # too few
    # Laps of another process have another clock.
    assert trend([replace(lap, earlier=True) for lap in paced(*rising)], 10.0) == 0
    assert trend([], 10.0) == 0
    assert trend(paced(*[1.0] * 10), 10.0) == 0
    assert trend(paced(1.0, 1.03, 0.99, 1.02, 1.0, 1.04, 0.98, 1.03, 1.01, 1.02), 10.0) == 0
    assert trend(paced(*[1.0] * 9, 4.0), 10.0) == 0
    slow, fast = paced(*[2.0] * 4), paced(*[1.0] * 4, epoch=1, began=8.0)
    assert without_slow_start([*slow, *fast]) == fast
    rising = [*paced(*[1.0] * 4), *paced(*[2.0] * 4, epoch=1, began=4.0)]
    assert without_slow_start(rising) == rising
    assert without_slow_start(slow) == slow
    assert without_slow_start([]) == []


@pytest.mark.parametrize(("correlation", "least", "most"), [(0.0, 0, 0.002), (0.6, 0.02, 0.1)])
@pytest.mark.parametrize("laps", [12, 40])
def test_how_often_steady_laps_show_a_trend(correlation, least, most, laps):
    """What docs/method.md says of independent step times, and of neighbours that correlate."""
    dice, hits = random.Random(1), 0
    for _ in range(1000):
        deviation, seconds = 0.0, []
        for _ in range(laps + 20):
            deviation = correlation * deviation + dice.gauss(0, 0.02)
            seconds.append(1 + deviation)
        hits += trend(paced(*seconds[20:]), 10.0) != 0
    assert least <= hits / 1000 <= most
