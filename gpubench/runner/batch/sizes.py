"""Decides which batch to probe next in a search for the largest or the fastest. `search.py` runs the probes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

STEP = 8
"""Batches are multiples of 8, which suits tensor cores."""

AIM = 0.97
"""Share of the free memory that a prediction from two probes uses."""
ROUGH_AIM = 0.85
"""The same for a prediction from one small probe that is not checked."""
FAR = 4
"""Ratio from which on the next batch between two is their geometric mean."""

FINENESS = 32
"""A large batch is found to a 32nd, because processes differ by more than that."""
FARTHEST = 512
"""Largest ratio of a prediction to the largest batch that fitted."""


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe of one batch."""

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

    `probe` returns None once the search should end: no further batch fits then, and none is stored.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self.probes: dict[int, ProbeResult] = {}

    def __call__(self, batch: int) -> ProbeResult:
        if batch not in self.probes:
            result = self._probe(batch)
            if result is None:
                return ProbeResult(fits=False)
            self.probes[batch] = result
        return self.probes[batch]

    @property
    def curve(self) -> tuple[tuple[int, float, int], ...]:
        return tuple(
            (batch, round(p.rate, 3) if p.fits else 0.0, p.memory_bytes) for batch, p in sorted(self.probes.items())
        )

    @property
    def fitting(self) -> list[int]:
        return sorted(batch for batch, probe in self.probes.items() if probe.fits)

    def answer(self, batch: int | None, cap: int | None) -> SearchResult:
        reason = "" if batch else "not even a batch of 1 fits in memory"
        return SearchResult(batch, batch is not None and batch == cap, self.curve, reason)


def largest_batch(probe: Probe, *, capacity_bytes: int | None, cap: int | None, rough: bool = False) -> SearchResult:
    """Return the largest multiple of 8 that fits (or 4, 2, 1 if 8 does not), at most `cap`; above 256 to a 32nd.

    Memory is about linear in the batch. A small probe and its memory between steps predict the largest batch, and a
    second probe at the prediction improves it; bisection does the rest. A larger batch can fit even if a smaller one
    did not (another algorithm or fragmentation), so larger ones are probed as well. With `rough`, for quick runs, the
    first prediction is the result.
    """
    tried = _Tried(probe)
    top = _multiple(cap) if cap else None
    if (top is not None and top < STEP) or not tried(STEP).fits:
        return _tiny(tried, cap)
    low, high = STEP, None  # low fits; high is the smallest that does not
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
                guess = edge  # so small a batch is found exactly
            elif low >= STEP * FINENESS:
                return tried.answer(low, top)
            else:  # close to the limit: try the next few
                guess, stride = low + stride, stride * 2
    aim: float | None = AIM * AIM  # the prediction was too large: use less of it
    while high - low > _fineness(low):
        predicted = _line(tried, capacity_bytes, aim) if aim else None
        middle = predicted if predicted and predicted < high else _between(low, high)
        if predicted and predicted < low + _fineness(low):
            middle = low + _fineness(low)
        if tried(middle).fits:
            low, aim = middle, AIM
        else:
            high, aim = middle, None  # no new prediction before another batch fits
    for larger in (high + STEP, high + 2 * STEP) if high <= STEP * FINENESS else (high + _fineness(high),):
        if (top is None or larger <= top) and tried(larger).fits:
            low = larger
    return tried.answer(max(low, *tried.fitting), top)


def fastest_batch(probe: Probe, *, cap: int | None) -> SearchResult:
    """Return the batch with the highest rate: double from 8 until it has fallen twice, then try neighbours."""
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
    """Return the mean, or the geometric mean if they are far apart."""
    return _multiple(math.isqrt(low * high) if high > FAR * low else (low + high) // 2)


def _multiple(batch: int) -> int:
    return batch // STEP * STEP


def _fineness(batch: int) -> int:
    return max(STEP, _multiple(batch // FINENESS))


def _tiny(tried: _Tried, cap: int | None) -> SearchResult:
    allowed = [batch for batch in (4, 2, 1) if cap is None or batch <= cap]
    top = allowed[0] if cap is not None and cap < STEP and allowed else None
    return tried.answer(next((batch for batch in allowed if tried(batch).fits), None), top)


def _line(tried: _Tried, capacity_bytes: int | None, aim: float = AIM) -> int | None:
    """Return the batch that is predicted to use `aim` of the free memory, or None.

    Memory is taken as linear between the two largest fitting probes, or between one probe and its memory between steps.
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
