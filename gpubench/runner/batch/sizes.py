"""The search for the largest batch that fits, and for the fastest: which to try next. `search.py` runs the tries."""

import math
from collections.abc import Callable
from dataclasses import dataclass

STEP = 8
"""Batches are multiples of 8, which tensor cores want."""

AIM = 0.97
"""Share of the memory still free that a prediction from two probes aims at."""
ROUGH_AIM = 0.85
"""The same where one small probe has to do and nothing is tried afterwards."""
FAR = 4
"""Between a batch that fits and one so many times larger that does not, the middle is one of factors."""
LEAP = 8
"""The most by which one answer makes a first look's batch larger."""
ROOMY = 1.5
"""A batch that can be so many times larger was predicted badly."""

FINENESS = 32
"""A large batch is found to a 32nd: more probes would buy less than processes differ by."""
FARTHEST = 512
"""A prediction is trusted up to so many times the largest batch that fitted."""


@dataclass(frozen=True)
class Probe:
    """What one batch did."""

    fits: bool
    rate: float = 0.0
    """Samples per second."""
    memory_bytes: int = 0
    resting_bytes: int = 0
    """What stays between steps: weights, optimizer, data. 0 where nobody tells."""


@dataclass(frozen=True)
class Found:
    """The answer of a search, and everything that was tried."""

    batch: int | None
    capped: bool = False
    curve: tuple[tuple[int, float, int], ...] = ()
    """(batch, samples per second or 0 where it did not fit, peak memory in bytes), by batch."""
    reason: str = ""


class _Tried:
    """Probes that remember, so that no batch is ever tried twice."""

    def __init__(self, probe: Callable[[int], Probe]) -> None:
        self._probe = probe
        self.probes: dict[int, Probe] = {}

    def __call__(self, batch: int) -> Probe:
        if batch not in self.probes:
            self.probes[batch] = self._probe(batch)
        return self.probes[batch]

    @property
    def curve(self) -> tuple[tuple[int, float, int], ...]:
        return tuple(
            (batch, round(p.rate, 3) if p.fits else 0.0, p.memory_bytes) for batch, p in sorted(self.probes.items())
        )

    @property
    def fitting(self) -> list[int]:
        return sorted(batch for batch, probe in self.probes.items() if probe.fits)

    def answer(self, batch: int | None, cap: int | None) -> Found:
        reason = "" if batch else "not even a batch of 1 fits in memory"
        return Found(batch, batch is not None and batch == cap, self.curve, reason)


def largest_batch(
    probe: Callable[[int], Probe], *, capacity_bytes: int | None, cap: int | None, rough: bool = False
) -> Found:
    """The largest multiple of 8 that fits (or 4, 2, 1 where 8 does not), at most `cap`; above 256 to a 32nd.

    A small probe, and what of it rests between steps, give a line of memory over batch, which predicts the answer; a
    second probe there makes the line a good one, and a search brackets the edge where it is not. Near the edge a larger
    batch can fit where a smaller one did not (another algorithm, another fragmentation), so a larger one is tried as
    well. With `rough` the first prediction is the answer, for a first look.
    """
    tried = _Tried(probe)
    top = _multiple(cap) if cap else None
    if (top is not None and top < STEP) or not tried(STEP).fits:
        return _tiny(tried, cap)
    low, high = STEP, None  # low fits; high is the smallest known not to
    guess, stride = _line(tried, capacity_bytes) or 2 * STEP, STEP
    if rough and (predicted := _line(tried, capacity_bytes, ROUGH_AIM)):
        return tried.answer(min(max(STEP, predicted), top or predicted), top)
    guess = max(2 * STEP, min(guess, low * FARTHEST))
    while high is None:
        guess = min(guess, top) if top else guess
        if not tried(guess).fits:
            high = guess
        elif guess == top:
            return tried.answer(top, top)
        else:
            low, predicted = guess, _line(tried, capacity_bytes)
            if predicted is None:
                guess = low * 2
            elif predicted >= low + _fineness(low):
                guess = min(predicted, low * FARTHEST)
            elif (edge := _line(tried, capacity_bytes, 1.0) or 0) >= low + STEP and low < STEP * FINENESS:
                guess = edge  # so small a batch is found to the last eight
            elif low >= STEP * FINENESS:
                return tried.answer(low, top)
            else:  # at the predicted edge: the answer is most likely one of the next few
                guess, stride = low + stride, stride * 2
    aim: float | None = AIM * AIM  # the line was too bold: trust it for less
    while high - low > _fineness(low):
        predicted = _line(tried, capacity_bytes, aim) if aim else None
        middle = predicted if predicted and predicted < high else _between(low, high)
        if predicted and predicted < low + _fineness(low):
            middle = low + _fineness(low)
        if tried(middle).fits:
            low, aim = middle, AIM
        else:
            high, aim = middle, None  # the line is not asked again before it has another point
    for larger in (high + STEP, high + 2 * STEP) if high <= STEP * FINENESS else (high + _fineness(high),):
        if (top is None or larger <= top) and tried(larger).fits:
            low = larger
    return tried.answer(max(low, *tried.fitting), top)


def roomier(small: tuple[int, int], last: tuple[int, int], *, capacity_bytes: int, cap: int | None) -> int | None:
    """A larger batch for a first look, where the one that a single probe predicted left much of the memory free.

    Of a network with many weights most of a small probe's memory does not grow with the batch: gradients, say. `small`
    and `last` are (batch, peak memory in bytes) of that probe and of the trial that followed.
    """
    (batch, before), (larger, now) = small, last
    slope = (now - before) / (larger - batch) if larger > batch else 0.0
    most = larger * LEAP
    found = min(most, int(larger + ROUGH_AIM * (capacity_bytes - now) / slope)) if slope > 0 else most
    found = _multiple(min(found, cap or found))
    return found if found >= ROOMY * larger else None


def fastest_batch(probe: Callable[[int], Probe], *, cap: int | None) -> Found:
    """The batch with the highest rate: doubling from 8 until the rate has fallen twice, then its neighbours."""
    tried = _Tried(probe)
    top = _multiple(cap) if cap else None
    if (top is not None and top < STEP) or not tried(STEP).fits:
        return _tiny(tried, cap)
    batch, falls = STEP, 0
    while falls < 2:
        best_rate = max(tried(b).rate for b in tried.fitting)
        batch = min(batch * 2, top) if top else batch * 2
        if batch in tried.probes or not tried(batch).fits:
            break
        falls = 0 if tried(batch).rate > best_rate else falls + 1
    best = max(tried.fitting, key=lambda b: tried(b).rate)
    for neighbour in (best * 3 // 4, best * 3 // 2):
        neighbour = _multiple(neighbour)
        if neighbour >= STEP and (top is None or neighbour <= top):
            tried(neighbour)
    best = max(tried.fitting, key=lambda b: tried(b).rate)
    return tried.answer(best, top)


def _between(low: int, high: int) -> int:
    """Halfway; by factors where they are far apart."""
    return _multiple(math.isqrt(low * high) if high > FAR * low else (low + high) // 2)


def _multiple(batch: int) -> int:
    return batch // STEP * STEP


def _fineness(batch: int) -> int:
    return max(STEP, _multiple(batch // FINENESS))


def _tiny(tried: _Tried, cap: int | None) -> Found:
    allowed = [batch for batch in (4, 2, 1) if cap is None or batch <= cap]
    top = allowed[0] if cap is not None and cap < STEP and allowed else None
    return tried.answer(next((batch for batch in allowed if tried(batch).fits), None), top)


def _line(tried: _Tried, capacity_bytes: int | None, aim: float = AIM) -> int | None:
    """Where memory as a line over the batch says that `aim` of what is still free is used.

    The line goes through the two largest fitting probes, or through a single one and what of it rests.
    """
    if capacity_bytes is None:
        return None
    large = tried.fitting[-1]
    last = tried(large)
    if len(tried.fitting) > 1:
        small = tried.fitting[-2]
        slope = (last.memory_bytes - tried(small).memory_bytes) / (large - small)
    else:
        slope = (last.memory_bytes - last.resting_bytes) / large if last.resting_bytes else 0.0
    if slope <= 0:
        return None
    return _multiple(int(large + aim * (capacity_bytes - last.memory_bytes) / slope))
