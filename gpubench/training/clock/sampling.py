"""Decides how much of a run is measured: when the warm-up ends, and when there are enough timed laps. Pure Python."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import correlation, fmean, linear_regression
from typing import Any

from gpubench.suite.trial import Lap, Mode

FLAT = 0.05
"""Step times are steady if the halves of the last laps differ by at most this share."""

DRIFT = 0.2
"""Timed laps are unsteady if their halves differ by more than this share, even after a flat warm-up."""


@dataclass(frozen=True)
class Sampling:
    """How much of a run a mode measures. None means all of it."""

    epochs: int | None
    """Least number of epochs begun before the trial ends."""
    lap_seconds: float
    """Least length of a lap, long enough that a synchronisation is a small part of it."""
    warmup_seconds: float
    """Longest warm-up, if it does not become flat."""
    train_seconds: float | None
    valid_seconds: float | None
    timed_laps: int
    """Least number of timed laps of a sampled phase."""
    resident_laps: int
    """Number of laps on one resident batch after the training."""
    resident_seconds: float
    steps: bool = False
    """Whether to take one warm-up step instead of waiting for a steady state, and one validation batch."""
    timed_steps: int = 0
    """Least number of timed steps of a phase, unless its time exceeds `train_limit`."""
    train_limit: float = 0.0
    """With `steps`: seconds after which the training stops even with fewer timed steps."""
    most_laps: int | None = None
    """Approximate largest number of laps in an epoch of a phase, so that a full run's row stays short."""
    least_warmup_seconds: float = 0.0
    """Shortest warm-up if the card's sensors cannot be read: its clock and temperature change with the load."""
    long_laps: bool = False
    """Whether laps start as long as in the previous epoch, so that a short epoch is one lap."""


def sampling_for(mode: Mode, *, accelerator: bool) -> Sampling:
    """Return the sampling of a mode. On a CPU steps are long and the warm-up is short."""
    least, warmup = (5.0, 30.0) if accelerator else (0.0, 3.0)
    if mode == "full":
        return Sampling(
            None, 0.25, warmup, None, None, 0, 2, 1.0, most_laps=32, least_warmup_seconds=least, long_laps=accelerator
        )
    if mode == "sampled" and accelerator:  # its laps vary less than a CPU's, and it is warm by then
        return Sampling(2, 0.25, warmup, 2.0, 0.75, 2, 1, 0.5, least_warmup_seconds=least)
    if mode == "sampled":
        return Sampling(2, 0.25, warmup, 4.0, 1.5, 3, 2, 1.0, least_warmup_seconds=least)
    if mode == "quick":
        return Sampling(1, 0.0, 0.0, 0.0, 0.0, 0, 1, 0.0, steps=True, timed_steps=3, train_limit=5.0)
    # A probe: its rate chooses the fastest batch, so two short steps are not enough. An accelerator also needs steps
    # on a resident batch, in which its allocator shows whether the batch fits.
    return Sampling(1, 0.5, 0.0, 0.5, 0.0, 0, int(accelerator), 0.0, steps=True, timed_steps=2, train_limit=10.0)


HEATING_SECONDS, TREND = 300.0, 0.03
"""A trend goes on for so long, as a cooler heats up, and is reported if it changes step times by more than TREND."""

TREND_LAPS, TREND_Z = 8, 3.29
"""Least number of laps with a trend, and its distance from none in standard deviations (more for few laps): that of
0.1% of steady samples with independent laps, and of 2 to 8% if neighbours correlate by 0.6."""


class Stop:
    """Decides for one phase of one epoch which laps are warm-up and when there are enough laps."""

    def __init__(
        self, sampling: Sampling, phase: str, *, first_epoch: bool, settled: Callable[[], bool] | None = None
    ) -> None:
        self._sampling, self._phase, self._first_epoch = sampling, phase, first_epoch
        self._settled = settled or (lambda: self._warmed_seconds >= sampling.least_warmup_seconds)
        self._limit = sampling.train_seconds if phase == "train" else sampling.valid_seconds
        self._warmup: list[Lap] = []
        self._timed_laps, self._timed_steps, self._timed_seconds, self._steps = 0, 0, 0.0, 0
        self._full = sampling.epochs is None
        self.reason = ""
        """Why the warm-up ended."""
        self.unsteady = False
        """Whether step times were still changing at its end."""
        # --quick and probes take only one validation batch.
        single_valid = sampling.steps and phase != "train"
        self.kind: Any = "timed" if single_valid else "warmup"

    def add(self, lap: Lap) -> None:
        """Count the lap that has just ended, and set `kind` to that of the next lap."""
        self._steps += lap.steps
        if self.kind == "timed":
            self._timed_laps += 1
            self._timed_steps += lap.steps
            self._timed_seconds += lap.seconds
            return
        self._warmup.append(lap)
        if self._sampling.steps:
            self.kind, self.reason = "timed", "one warm-up step; steadiness not looked for"
        elif not self._first_epoch:
            self.kind = "timed"  # the first lap has the phase's start-up; the device is warm
        else:
            flat = self._flat()
            moving = "the card's clock or temperature" if flat else "step times"
            self.reason = flat if flat and self._settled() else self._too_long(moving)
            if self.reason:
                self.kind = "timed"

    @property
    def reached(self) -> bool:
        """Whether the phase can stop here."""
        if self._full or self._limit is None or self.kind != "timed" or not self._timed_laps:
            return False
        if self._sampling.steps and self._phase == "train":
            enough = self._timed_steps >= self._sampling.timed_steps and self._timed_seconds >= self._limit
            return enough or self._timed_seconds >= self._sampling.train_limit
        return self._timed_laps >= self._sampling.timed_laps and self._timed_seconds >= self._limit

    def share(self, total_steps: int) -> float:
        """Return approximately how much of this phase is done, 0 to 1."""
        by_steps = self._steps / total_steps if total_steps else 0.0
        if self._full or not self._limit:
            return by_steps
        return min(1.0, max(by_steps, self._timed_seconds / self._limit))

    def _flat(self) -> str:
        window = 2 if self._warmup[-1].seconds >= 1.0 else 4
        if len(self._warmup) <= window:  # the first lap always includes start-up
            return ""
        times = [lap.seconds / max(1, lap.samples) for lap in self._warmup[-window:]]
        half = window // 2
        early, late = sum(times[:half]) / half, sum(times[half:]) / half
        change = abs(late / early - 1) if early > 0 else 0.0
        scatter = (max(times) - min(times)) / (2 * early) if early > 0 else 0.0
        # A change smaller than the laps' scatter is not a trend, unless the scatter comes from a trend or a slow lap.
        if change > min(max(FLAT, scatter), 2 * FLAT):
            return ""
        spent = sum(lap.seconds for lap in self._warmup)
        return f"flat: last {window} laps within {change:.1%} after {len(self._warmup)} warm-up laps, {spent:.1f} s"

    @property
    def _warmed_seconds(self) -> float:
        # Without the first lap, which includes start-up of any length.
        return sum(lap.seconds for lap in self._warmup[1:])

    def _too_long(self, moving: str) -> str:
        """Return why the warm-up ends although it is not flat, or an empty string; set `unsteady`."""
        spent = self._warmed_seconds
        if spent < self._sampling.warmup_seconds:
            return ""
        if self._warmup[-1].seconds >= self._sampling.warmup_seconds / 2:
            return f"long laps: {len(self._warmup)} warm-up laps, {spent:.1f} s"
        self.unsteady = True
        return f"unsteady: {moving} still moved after {len(self._warmup)} laps, {spent:.1f} s"


def _pace(laps: Sequence[Lap]) -> float:
    """Return the seconds per sample."""
    return sum(lap.seconds for lap in laps) / max(1, sum(lap.samples for lap in laps))


def without_slow_start(laps: Sequence[Lap]) -> Sequence[Lap]:
    """Return the timed laps of a stage without its first epoch if the later ones are faster.

    Cold files make a first epoch slow. It counts once in the run, so its pace is no drift.
    """
    later = [lap for lap in laps if lap.epoch > laps[0].epoch]
    return later if later and _pace(later) < _pace([lap for lap in laps if lap.epoch == laps[0].epoch]) else laps


def drift(laps: Sequence[Lap]) -> str:
    """Return why these timed laps are not a steady state, or an empty string."""
    half = len(laps) // 2
    if half < 2:
        return ""
    early, late = _pace(laps[:half]), _pace(laps[-half:])
    if early <= 0 or abs(late / early - 1) <= DRIFT:
        return ""
    return f"unsteady: a step took {late / early - 1:+.0%} in the second half of the timed laps"


def trend(laps: Sequence[Lap], most_seconds: float) -> float:
    """Return the share by which step times change in `most_seconds` if these laps' trend goes on; 0 without a trend."""
    times = [lap.started + lap.seconds / 2 for lap in laps]
    paces = [_pace([lap]) for lap in laps]
    if len(laps) < TREND_LAPS or min(paces) == max(paces) or any(lap.earlier for lap in laps):
        return 0.0
    # Fisher's transformation of a correlation, whose tails are heavier for few laps; a perfect one has no end.
    z = math.atanh(min(abs(correlation(times, paces)), 1 - 1e-9)) * math.sqrt(len(laps) - 3)
    if z < TREND_Z * (1 + 2 / len(laps)):
        return 0.0
    slope: float = linear_regression(times, paces).slope / fmean(paces)
    return slope * min(most_seconds, HEATING_SECONDS)
