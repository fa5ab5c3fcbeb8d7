"""Searches for the largest (--batch max) or fastest batch: decides which to probe next. batches.py runs the probes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

STEP = 8
"""Batches of 8 and more are multiples of 8, which suits tensor cores."""
AIM = 0.97
"""A predicted batch should fill this share of the memory that is still free with the largest fitting batch."""
ROUGH_AIM = 0.85
"""AIM of a prediction from one small probe, if no second probe checks the prediction."""
FAR = 4
"""If two batches differ by a larger factor, their geometric mean is tried next, else their mean."""
FINENESS = 32
"""A large batch is found to within 1/32 of itself: the memory of two equal processes may differ by more."""
FARTHEST = 512
"""The next batch to probe is at most this many times the largest batch that fitted."""


@dataclass(frozen=True)
class ProbeResult:
    """What a probe of one batch measured."""

    fits: bool
    rate: float = 0.0
    """Samples per second."""
    memory_bytes: int = 0
    resting_bytes: int = 0
    """Memory in use between steps: weights, optimizer, data. 0 if unknown."""


Probe = Callable[[int], ProbeResult | None]


@dataclass(frozen=True)
class SearchResult:
    """The batch that a search found, with all probes."""

    batch: int | None
    capped: bool = False
    curve: tuple[tuple[int, float, int], ...] = ()
    """(batch, samples per second or 0 if it did not fit, peak memory in bytes), by batch."""
    reason: str = ""


class _Tried:
    """Runs probes and stores their results, so that no batch is probed twice.

    `probe` ends the search by returning None for every further batch. These count as not fitting and are not stored.
    """

    def __init__(self, probe: Probe, capacity_bytes: int | None = None) -> None:
        self._probe, self._capacity_bytes = probe, capacity_bytes
        self.probes: dict[int, ProbeResult] = {}

    def __call__(self, batch: int) -> ProbeResult:
        if batch not in self.probes:
            result = self._probe(batch)
            if result is None:
                return ProbeResult(fits=False)
            self.probes[batch] = result
        return self.probes[batch]

    @property
    def fitting(self) -> list[int]:
        return sorted(batch for batch, probe in self.probes.items() if probe.fits)

    def result(self, batch: int | None, cap: int) -> SearchResult:
        curve = tuple(
            (size, round(probe.rate, 3) if probe.fits else 0.0, probe.memory_bytes)
            for size, probe in sorted(self.probes.items())
        )
        return SearchResult(batch, batch == cap, curve, "" if batch else "not even a batch of 1 fits in memory")

    def below_step(self, cap: int) -> SearchResult:
        """Return the result of a search among 4, 2 and 1."""
        allowed = [batch for batch in (4, 2, 1) if batch <= cap]
        fitting = next((batch for batch in allowed if self(batch).fits), None)
        return self.result(fitting, allowed[0] if cap < STEP else cap)

    def predicted(self, aim: float = AIM) -> int | None:
        """Return the batch that should fill the share `aim` of the memory free with the largest fitting batch, or None.

        Memory is taken as linear in the batch: a line through the two largest batches that fitted. If only one fitted,
        the line begins at batch 0 with the memory between steps.
        """
        if self._capacity_bytes is None:
            return None
        large = self.fitting[-1]
        last = self(large)
        if len(self.fitting) > 1:
            small = self.fitting[-2]
            slope = (last.memory_bytes - self(small).memory_bytes) / (large - small)
        else:
            slope = (last.memory_bytes - last.resting_bytes) / large if last.resting_bytes else 0.0
        if slope <= 0:
            return None
        return _multiple(int(large + aim * (self._capacity_bytes - last.memory_bytes) / slope))


def largest_batch(probe: Probe, *, capacity_bytes: int | None, cap: int, rough: bool = False) -> SearchResult:
    """Return the largest multiple of 8 that fits (else 4, 2, 1 or None), at most `cap`; above 256 to within 1/32.

    Memory is about linear in the batch. A small probe and its memory between steps predict the largest batch, which is
    the result if it reaches `cap` or if `rough` (quick runs on a card). Else a second probe improves the prediction,
    bisection does the rest, and one or two larger batches are probed: they can fit although a smaller one did not.
    """
    tried, top = _Tried(probe, capacity_bytes), _multiple(cap)
    if top < STEP or not tried(STEP).fits:
        return tried.below_step(cap)
    low, high = STEP, None  # low fits; high is the smallest probed one that does not
    predicted = tried.predicted(ROUGH_AIM)
    if predicted and (rough or predicted >= top):
        return tried.result(min(max(STEP, predicted), top), top)
    guess, stride = max(2 * STEP, min(tried.predicted() or 0, low * FARTHEST)), STEP
    while high is None:
        guess = min(guess, top)
        if not tried(guess).fits:
            high = guess
        elif guess == top:
            return tried.result(top, top)
        else:
            low, predicted = guess, tried.predicted()
            if predicted is None:
                guess = low * 2
            elif predicted >= low + _fineness(low):
                guess = min(predicted, low * FARTHEST)
            elif (edge := tried.predicted(1.0) or 0) >= low + STEP and low < STEP * FINENESS:
                guess = edge  # below 256 a batch is found exactly
            elif low >= STEP * FINENESS:
                return tried.result(low, top)
            else:  # close to the limit: try the next few
                guess, stride = low + stride, stride * 2
    aim: float | None = AIM * AIM  # the prediction was too large: aim at less memory
    while high - low > _fineness(low):
        predicted = tried.predicted(aim) if aim else None
        middle = predicted if predicted and predicted < high else _between(low, high)
        if predicted and predicted < low + _fineness(low):
            middle = low + _fineness(low)
        if tried(middle).fits:
            low, aim = middle, AIM
        else:
            high, aim = middle, None  # no new prediction before another batch fits
    for larger in (high + STEP, high + 2 * STEP) if high <= STEP * FINENESS else (high + _fineness(high),):
        if larger <= top:
            tried(larger)
    return tried.result(tried.fitting[-1], top)


def fastest_batch(probe: Probe, *, cap: int) -> SearchResult:
    """Return the fastest batch: doubles until two in a row are no faster or one does not fit, then tries neighbours."""
    tried, top = _Tried(probe), _multiple(cap)
    if top < STEP or not tried(STEP).fits:
        return tried.below_step(cap)
    batch, falls = STEP, 0
    while falls < 2:
        best_rate = max(tried(fitting).rate for fitting in tried.fitting)
        batch = min(batch * 2, top)
        if batch in tried.probes or not tried(batch).fits:
            break
        falls = 0 if tried(batch).rate > best_rate else falls + 1
    best = max(tried.fitting, key=lambda fitting: tried(fitting).rate)
    for neighbour in map(_multiple, (best * 3 // 4, best * 3 // 2)):
        if STEP <= neighbour <= top:
            tried(neighbour)
    return tried.result(max(tried.fitting, key=lambda fitting: tried(fitting).rate), top)


def _between(low: int, high: int) -> int:
    """Return the mean of two batches, or their geometric mean if they are far apart, as a multiple of 8."""
    return _multiple(math.isqrt(low * high) if high > FAR * low else (low + high) // 2)


def _multiple(batch: int) -> int:
    return batch // STEP * STEP


def _fineness(batch: int) -> int:
    return max(STEP, _multiple(batch // FINENESS))
