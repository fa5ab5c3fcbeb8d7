"""How much of a run is measured: when warm-up is over, when there are enough timed laps. Pure Python."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.suite.trial import Lap, Mode

FLAT = 0.05
"""Step times are steady when the halves of the last laps differ by no more than this."""

DRIFT = 0.2
"""Timed laps whose halves differ by more than this were not a steady state, however flat the warm-up was."""


@dataclass(frozen=True)
class Sampling:
    """How much of a run a mode measures. None means everything."""

    epochs: int | None
    """Least epochs begun before the trial ends."""
    lap_seconds: float
    """Least length of a lap, so that a synchronisation is a small part of it."""
    warmup_seconds: float
    """When the warm-up ends even though it is not flat."""
    train_seconds: float | None
    valid_seconds: float | None
    timed_laps: int
    """Timed laps a sampled phase has at least (unless its time is far over)."""
    resident_laps: int
    """Laps on one resident batch after the training."""
    resident_seconds: float
    steps: bool = False
    """Take one warm-up step instead of looking for a steady state, and one validation batch."""
    timed_steps: int = 0
    """Timed steps a phase has at least, unless its time passes `train_limit`."""
    train_limit: float = 0.0
    """With `steps`: when the training stops even though there were too few of them."""
    most_laps: int | None = None
    """About how many laps one epoch of a phase is cut into, so that a full run's row stays short."""
    least_warmup_seconds: float = 0.0
    """However flat, not before, where nobody reads the card: its clock and heat follow the load."""
    long_laps: bool = False
    """Begin a phase with laps as long as they were in the epoch before, so that a short epoch is one lap."""


def sampling_for(mode: Mode, *, accelerator: bool) -> Sampling:
    """The sampling of a mode. On a CPU steps are long and warm-up is short."""
    least, warmup = (5.0, 30.0) if accelerator else (0.0, 3.0)
    if mode == "full":
        return Sampling(
            None, 0.25, warmup, None, None, 0, 2, 1.0, most_laps=32, least_warmup_seconds=least, long_laps=accelerator
        )
    if mode == "sampled" and accelerator:  # whose laps scatter less than a CPU's, and which is warm by then
        return Sampling(2, 0.25, warmup, 2.0, 0.75, 2, 1, 0.5, least_warmup_seconds=least)
    if mode == "sampled":
        return Sampling(2, 0.25, warmup, 4.0, 1.5, 3, 2, 1.0, least_warmup_seconds=least)
    if mode == "quick":
        return Sampling(1, 0.0, 0.0, 0.0, 0.0, 0, 1, 0.0, steps=True, timed_steps=3, train_limit=5.0)
    # A probe: its rate chooses the fastest batch, so that two short steps would not do. Whether a batch fits, an
    # accelerator's allocator shows in steps that are all alike.
    return Sampling(1, 0.5, 0.0, 0.5, 0.0, 0, int(accelerator), 0.0, steps=True, timed_steps=2, train_limit=10.0)


class Stop:
    """Decides for one phase of one epoch which laps are warm-up and when there are enough."""

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
        """What ended the warm-up."""
        self.unsteady = False
        """Whether the pace still moved then."""
        # One validation batch is all that --quick and a probe take.
        single_valid = sampling.steps and phase != "train"
        self.kind: Any = "timed" if single_valid else "warmup"

    def add(self, lap: Lap) -> None:
        """Take the lap that has just ended into account; `kind` then says what the next one is."""
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
            self.kind = "timed"  # the first lap holds the phase's start-up; the device is warm
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
        """Roughly how much of this phase's work is done, 0 to 1."""
        by_steps = self._steps / total_steps if total_steps else 0.0
        if self._full or not self._limit:
            return by_steps
        return min(1.0, max(by_steps, self._timed_seconds / self._limit))

    def _flat(self) -> str:
        window = 2 if self._warmup[-1].seconds >= 1.0 else 4
        if len(self._warmup) <= window:  # the first lap always holds start-up
            return ""
        times = [lap.seconds / max(1, lap.samples) for lap in self._warmup[-window:]]
        half = window // 2
        early, late = sum(times[:half]) / half, sum(times[half:]) / half
        change = abs(late / early - 1) if early > 0 else 0.0
        scatter = (max(times) - min(times)) / (2 * early) if early > 0 else 0.0
        # A change inside the laps' own scatter is no trend, unless the scatter is a trend's or a slow lap's.
        if change > min(max(FLAT, scatter), 2 * FLAT):
            return ""
        spent = sum(lap.seconds for lap in self._warmup)
        return f"flat: last {window} laps within {change:.1%} after {len(self._warmup)} warm-up laps, {spent:.1f} s"

    @property
    def _warmed_seconds(self) -> float:
        # The first lap holds start-up, however long that is; it says nothing of what follows.
        return sum(lap.seconds for lap in self._warmup[1:])

    def _too_long(self, moving: str) -> str:
        """Why the warm-up ends though it is not flat, or an empty string; sets `unsteady`."""
        spent = self._warmed_seconds
        if spent < self._sampling.warmup_seconds:
            return ""
        if self._warmup[-1].seconds >= self._sampling.warmup_seconds / 2:
            return f"long laps: {len(self._warmup)} warm-up laps, {spent:.1f} s"
        self.unsteady = True
        return f"unsteady: {moving} still moved after {len(self._warmup)} laps, {spent:.1f} s"


def drift(laps: Sequence[Lap]) -> str:
    """Why these timed laps are no steady state, or an empty string."""
    half = len(laps) // 2
    if half < 2:
        return ""
    early, late = (
        sum(lap.seconds for lap in part) / max(1, sum(lap.samples for lap in part))
        for part in (laps[:half], laps[-half:])
    )
    if early <= 0 or abs(late / early - 1) <= DRIFT:
        return ""
    return f"unsteady: a step took {late / early - 1:+.0%} in the second half of the timed laps"
