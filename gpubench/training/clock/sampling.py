"""How much of a run each mode (sampled, full, quick, probe) measures, and when a phase may end.

Clock asks a `StopRule` after each lap: is the warm-up over, and are there enough timed laps?
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gpubench.suite.trial import Lap, Mode

FLAT = 0.05
"""Step times are steady if both halves of the last laps differ by at most this share (if laps scatter: twice)."""


@dataclass(frozen=True)
class Sampling:
    """How much of a run a mode measures. A field that is None sets no limit."""

    epochs: int | None
    """Least number of epochs to train in each stage, or all of a shorter stage; None: all epochs."""
    lap_seconds: float = 0.25
    """Laps get more steps until they take this time, of which a synchronisation is a small part."""
    warmup_seconds: float = 0.0
    """Longest warm-up, if step times do not become flat or the card does not settle."""
    least_warmup_seconds: float = 0.0
    """Shortest warm-up if the card's sensors cannot be read, because clock and temperature change under load."""
    train_seconds: float | None = None
    """Least time of the timed laps of training; `valid_seconds` is that of the other phases."""
    valid_seconds: float | None = None
    timed_laps: int = 0
    """Least number of timed laps of a sampled phase."""
    resident_laps: int = 1
    """Least number of laps on the resident batch of each stage, after the training."""
    resident_seconds: float = 0.0
    """Least time of the laps on the resident batch of each stage."""
    steps: bool = False
    """Whether to take only one warm-up step, steady or not, and only one timed lap of validation."""
    timed_steps: int = 0
    """With `steps`: least number of timed steps of training, unless their time exceeds `train_limit`."""
    train_limit: float = 0.0
    """With `steps`: seconds after which the training stops even with fewer timed steps."""
    most_laps: int | None = None
    """Approximate largest number of laps in a pass, so that a full run's row stays short."""
    long_laps: bool = False
    """Whether an epoch's first lap has as many steps as a long lap of the epoch before; short epochs are one lap."""


def sampling_for(mode: Mode, *, accelerator: bool) -> Sampling:
    """Return the sampling of a mode. On a CPU steps are long and the warm-up is short."""
    if mode in {"quick", "probe"}:
        short = Sampling(1, steps=True, valid_seconds=0.0)
        if mode == "quick":
            # Half a second, because three steps of a small network take milliseconds.
            return replace(short, lap_seconds=0.05, train_seconds=0.5, timed_steps=3, train_limit=5.0)
        # A probe's rate chooses the fastest batch, so two short steps are not enough. An accelerator also needs steps
        # on a resident batch, in which its allocator shows whether the batch fits.
        probe = replace(short, lap_seconds=0.5, train_seconds=0.5, timed_steps=2, train_limit=10.0)
        return replace(probe, resident_laps=int(accelerator))
    least, longest = (5.0, 30.0) if accelerator else (0.0, 3.0)
    usual = Sampling(2, warmup_seconds=longest, least_warmup_seconds=least)
    if mode == "full":
        laps = replace(usual, most_laps=32, long_laps=accelerator)
        return replace(laps, epochs=None, resident_laps=2, resident_seconds=1.0)
    if accelerator:  # its laps vary less than a CPU's, and its warm-up was longer
        return replace(usual, train_seconds=2.0, valid_seconds=0.75, timed_laps=2, resident_seconds=0.5)
    resident = replace(usual, resident_laps=2, resident_seconds=1.0)
    return replace(resident, train_seconds=4.0, valid_seconds=1.5, timed_laps=3)


class StopRule:
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
        """Whether step times, or the card's clock or temperature, still changed at the end of the warm-up."""
        self.kind: Any = "warmup"

    def add(self, lap: Lap) -> None:
        """Count the lap that has just ended, and set `kind` to the kind of the next lap."""
        self._steps += lap.steps
        if self.kind == "timed":
            self._timed_laps += 1
            self._timed_steps += lap.steps
            self._timed_seconds += lap.seconds
            return
        self._warmup.append(lap)
        if self._sampling.steps:
            self.kind, self.reason = "timed", "one warm-up step; not checked whether steady"
        elif not self._first_epoch:
            self.kind = "timed"  # the device is warm: only the first lap is warm-up, for the start-up of the phase
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
        # A change within the laps' scatter is no trend. But a trend or a slow lap adds scatter, so 2 * FLAT at most.
        if change > min(max(FLAT, scatter), 2 * FLAT):
            return ""
        spent = sum(lap.seconds for lap in self._warmup)
        return f"flat: last {window} laps within {change:.1%} after {len(self._warmup)} warm-up laps, {spent:.1f} s"

    @property
    def _warmed_seconds(self) -> float:
        # Without the first lap, which includes start-up of any length.
        return sum(lap.seconds for lap in self._warmup[1:])

    def _too_long(self, moving: str) -> str:
        """Return why the warm-up ends without a steady state, or an empty string if it goes on; set `unsteady`."""
        spent = self._warmed_seconds
        if spent < self._sampling.warmup_seconds:
            return ""
        if self._warmup[-1].seconds >= self._sampling.warmup_seconds / 2:
            return f"long laps: {len(self._warmup)} warm-up laps, {spent:.1f} s"
        self.unsteady = True
        return f"unsteady: {moving} still moved after {len(self._warmup)} laps, {spent:.1f} s"
