"""Laps of one pass over a loader: collects them while the steps run, and chooses the length of the next lap."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpubench.suite.trial import Lap
from gpubench.training.clock.projection import Phase
from gpubench.training.clock.sampling import Sampling, StopRule


class Laps:
    """The laps of one phase in one epoch; the first begins at time `now`. A pass has `total_steps` (0 if unknown).

    The first lap has `steps` steps, which an earlier pass may have determined. The number of steps doubles while laps
    are too short to time well, so that the device's queue is rarely drained.
    """

    def __init__(
        self, phase: str, epoch: int, stop: StopRule, sampling: Sampling, total_steps: int, now: float, steps: int = 1
    ) -> None:
        self.done: list[Lap] = []
        self.stop = stop
        self.wait = 0.0
        """Seconds of the running lap spent waiting for the loader."""
        self._phase, self._epoch, self._total_steps, self._started = phase, epoch, total_steps, now
        self._steps = self._samples = self._first_samples = 0
        self._lap_seconds, self._lap_steps = sampling.lap_seconds, steps
        most = sampling.most_laps
        self._least_steps = -(-total_steps // most) if most and total_steps else 1

    def step(self, samples: int) -> None:
        """Count a step with this many samples."""
        self._first_samples = self._first_samples or samples
        self._steps += 1
        self._samples += samples

    @property
    def due(self) -> bool:
        """Whether the running lap has all its steps."""
        return self._steps >= self._lap_steps

    @property
    def long_enough(self) -> int:
        """Number of steps that make a lap long enough, at the rate of the last lap; at most a whole pass."""
        last, steps = self.done[-1], self._lap_steps
        while steps < self._total_steps and steps * last.seconds < self._lap_seconds * last.steps:
            steps *= 2
        return min(steps, self._total_steps or steps)

    @property
    def nothing_left(self) -> bool:
        """Whether a lap was stored, and nothing has run since."""
        return bool(self.done) and not self._steps and not self.wait

    def running(self, now: float) -> Lap:
        """Return the running lap as if it ended now."""
        seconds = now - self._started
        return Lap(
            self._phase, self._epoch, self.stop.kind, self._steps, self._samples, seconds, self.wait, self._started
        )

    def close(self, lap: Lap, now: float) -> None:
        """Store `lap`, the running lap of all processes, and begin the next one."""
        self.done.append(lap)
        self.stop.add(lap)
        if lap.seconds < self._lap_seconds or self._lap_steps < self._least_steps:
            self._lap_steps = min(self._lap_steps * 2, self._total_steps or self._lap_steps * 2)
        self._started, self._steps, self._samples, self.wait = now, 0, 0, 0.0

    def end(self, lap: Lap) -> None:
        """Store the rest after the last whole lap: a shorter lap, or the time of waiting for the loader's end."""
        if lap.steps or not self.done:
            self.done.append(lap)
            return
        last = self.done[-1]
        self.done[-1] = replace(
            last, seconds=last.seconds + lap.seconds, wait_seconds=last.wait_seconds + lap.wait_seconds
        )

    def as_phase(self, samples: int | None, world: int, *, cut: bool, left: bool) -> Phase:
        """Return this pass for the projection.

        Args:
            samples: samples of a whole pass in all processes, or None if unknown.
            world: number of processes that share the samples.
            cut: whether the pass was stopped because it had enough laps.
            left: whether the suite left its loop; what ran counts as a whole pass.
        """
        done_samples = sum(lap.samples for lap in self.done)
        # If the loader came to its end, the samples are complete.
        whole = done_samples if samples is None else samples
        if samples is None and cut:
            whole = self._total_steps * self._first_samples * world
        if self._total_steps and sum(lap.steps for lap in self.done) >= self._total_steps:
            cut = False  # stopped exactly at the end
        total = done_samples if left else max(done_samples, whole)
        return Phase(self._phase, self._epoch, tuple(_some_timed(self.done)), total, cut)


def _some_timed(laps: list[Lap]) -> list[Lap]:
    """Return the laps; if the phase ended during its warm-up, all but the first of several laps become timed."""
    if any(lap.kind == "timed" for lap in laps):
        return laps
    first = laps[:1] if len(laps) > 1 else []
    return [*first, *(replace(lap, kind="timed") for lap in laps[len(first) :])]


def length_of(loader: Iterable[Any]) -> int | None:
    """Return the steps in one pass, or None if the loader has no length, such as torch's for an IterableDataset."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return None


def first_dimension(batch: Any) -> int:
    """Return the samples in a batch: the first dimension of its first tensor, or the length of its first flat list."""
    element = batch
    while not (shape := getattr(element, "shape", None)):
        inner: Any = None
        if isinstance(element, Mapping | tuple | list):
            parts = element.values() if isinstance(element, Mapping) else element
            inner = next((part for part in parts if hasattr(part, "__len__") and getattr(part, "shape", 0) != ()), None)
        if inner is None or isinstance(inner, str):
            return 1 if (length := length_of(element)) is None else length
        element = inner
    return int(shape[0])
