"""The laps of one pass over a loader: how long each is, and what the pass amounts to."""

from dataclasses import replace

import pytest

from gpubench.suite.trial import Lap
from gpubench.training.clock.laps import Laps
from gpubench.training.clock.sampling import StopRule, sampling_for

FULL = replace(sampling_for("full", accelerator=False), lap_seconds=0.5, most_laps=None)


def laps_of(sampling=FULL, total_steps=0, *, phase="train", epoch=3, now=50.0):
    stop = StopRule(sampling, phase, first_epoch=False)
    return Laps(phase, epoch, stop, sampling, total_steps, now)


def run(laps, steps, step_seconds, samples=10, *, start=50.0):
    """Take so many steps of so many seconds; the steps of each lap that was closed, and the time."""
    now, found = start, []
    for _ in range(steps):
        now += step_seconds
        laps.step(samples)
        if laps.due:
            lap = laps.running(now)
            found.append(lap.steps)
            laps.close(lap, now)
    return found, now


def test_how_long_laps_are():
    assert run(laps_of(), 100, 0.125)[0] == [1, 2, *[4] * 24]
    assert run(laps_of(), 9, 0.5)[0] == [1] * 9
    assert run(laps_of(total_steps=6), 6, 0.001)[0] == [1, 2]
    assert run(laps_of(total_steps=3), 20, 0.001)[0] == [1, 2, *[3] * 5]
    assert run(laps_of(replace(FULL, most_laps=4)), 9, 1.0)[0] == [1] * 9


@pytest.mark.parametrize(
    ("most", "steps"), [(4, [1, 2, 4, 8, 16, 32, 32, 32]), (3, [1, 2, 4, 8, 16, 32, 64]), (None, [1] * 127)]
)
def test_a_pass_is_cut_into_about_so_many_laps(most, steps):
    """Of 127 steps a quarter is 32, a third 43: laps are doubled until they are that long."""
    sampling = replace(FULL, most_laps=most)
    assert run(laps_of(sampling, 127), 127, 1.0)[0] == steps


def test_what_a_lap_holds_which_are_timed_and_where_waiting_goes():
    laps = laps_of()
    laps.step(7)
    laps.step(8)
    laps.wait += 0.25
    assert laps.running(54.0) == Lap("train", 3, "warmup", 2, 15, 4.0, 0.25, 50.0)
    laps.close(laps.running(54.0), 55.0)
    laps.step(9)
    assert laps.running(58.5) == Lap("train", 3, "timed", 1, 9, 3.5, 0.0, 55.0)
    assert kinds("warmup", "warmup", "warmup") == ["warmup", "timed", "timed"]
    assert kinds("warmup") == ["timed"]
    assert kinds("warmup", "warmup", "timed") == ["warmup", "warmup", "timed"]
    assert kinds() == []
    laps = laps_of()
    laps.wait = 0.25
    run(laps, 2, 1.0)
    laps.end(Lap("train", 3, "timed", 0, 0, 2.0, 1.5, 52.0))
    assert [(lap.steps, lap.seconds, lap.wait_seconds) for lap in laps.done] == [(1, 1.0, 0.25), (1, 3.0, 1.5)]
    empty = laps_of()
    empty.end(Lap("train", 3, "warmup", 0, 0, 2.0, 1.5, 50.0))
    assert [(lap.steps, lap.seconds) for lap in empty.done] == [(0, 2.0)]


@pytest.mark.parametrize(("total_steps", "samples", "world", "cut", "left", "expected"), [
    (8, None, 1, False, False, (30, False)), (8, None, 1, True, False, (80, True)),
    (8, None, 4, True, False, (320, True)), (8, 75, 1, True, False, (75, True)),
    (8, 75, 1, False, False, (75, False)), (8, 20, 1, False, False, (30, False)),
    (8, 75, 1, False, True, (30, False)), (0, 75, 1, True, False, (75, True)), (2, 75, 1, True, False, (75, False)),
    (4, None, 1, True, False, (40, True)),
])  # fmt: skip
def test_what_the_projection_needs_to_know(total_steps, samples, world, cut, left, expected):
    """After three steps of ten samples."""
    laps = laps_of(total_steps=total_steps)
    run(laps, 3, 1.0)
    phase = laps.as_phase(samples, world, cut=cut, left=left)
    assert (phase.total_samples, phase.cut) == expected
    assert (phase.name, phase.epoch, phase.samples) == ("train", 3, 30)


def kinds(*given):
    laps = laps_of()
    laps.done = [Lap("train", 3, kind, 1, 10, 1.0, 0.0) for kind in given]
    return [lap.kind for lap in laps.as_phase(None, 1, cut=False, left=False).laps]
