"""Times steps on a batch that is already on the device, after the training: the rate without the input pipeline."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from gpubench.suite.trial import Lap
from gpubench.training.clock.sampling import Sampling
from gpubench.training.clock.timer import Timer

STRAGGLES = 0.1
"""A process is a straggler if its step takes longer than the median process's by more than this share."""
Watch = Callable[[], Iterable[AbstractContextManager[Any]]]
"""Yields the contexts of a stage's untimed steps; each step has run before the next context is made."""


class Resident:
    """Stores the largest batch of each stage, and times steps on it.

    The first steps of a stage are untimed, inside the contexts of `watch`, which check operands and count work. After
    those of the first stage `watched` is called.
    """

    def __init__(
        self, sampling: Sampling, timer: Timer, watch: Watch, watched: Callable[[], None] = lambda: None
    ) -> None:
        self._sampling, self._timer, self._watch, self._when_watched = sampling, timer, watch, watched
        self._batches: dict[int, tuple[Any, int]] = {}  # by stage: a batch and its samples
        self._alone: list[float] = []  # seconds of a step without communication, per rank
        self.laps: list[Lap] = []
        self.watched: dict[int, int] = {}
        """Number of samples in a step that ran inside `watch`, by stage."""
        self.together = True
        """False while steps must not communicate between processes."""

    def keep(self, stage: int, batch: Any, samples: int) -> None:
        """Store the batch for its stage, unless there is one with more samples."""
        if stage not in self._batches or samples >= self._batches[stage][1]:
            self._batches[stage] = (batch, samples)

    def steps(self) -> Iterator[Any]:
        """Yield the batch of each stage over and over; see `Clock.resident`."""
        for stage in sorted(self._batches):
            batch, size = self._batches.pop(stage)
            for context in self._watch():
                with context:
                    yield batch
            if not self.watched:
                self._when_watched()
            self.watched[stage] = size
            yield from self._timed_steps(stage, batch, size)
        if self._timer.peers.world > 1 and self.laps:  # `batch` is the last stage's
            yield from self._steps_alone(batch, sum(lap.steps for lap in self._last_laps))

    def _timed_steps(self, stage: int, batch: Any, size: int) -> Iterator[Any]:
        timer, wanted, steps_per_lap, spent = self._timer, self._sampling.resident_laps, 1, 0.0
        laps: list[Lap] = []
        if not self._sampling.steps:
            yield batch  # warm-up
        while len(laps) < wanted or spent < self._sampling.resident_seconds:
            timer.synchronize()
            started = timer.now()
            for _ in range(steps_per_lap):
                yield batch
            timer.synchronize()
            seconds = timer.now() - started
            own_lap = Lap("train", stage, "resident", steps_per_lap, steps_per_lap * size, seconds, 0.0, started)
            lap = timer.agreed(own_lap)
            if lap.seconds < self._sampling.lap_seconds:
                steps_per_lap *= 2  # too short to count
                continue
            spent += lap.seconds
            laps.append(lap)
        self.laps += laps

    def _steps_alone(self, batch: Any, steps: int) -> Iterator[Any]:
        """Yield the batch for one warm-up step and `steps` timed ones, without communication between processes."""
        timer, self.together = self._timer, False
        yield batch
        timer.synchronize()
        timer.agree()
        started = timer.now()
        for _ in range(steps):
            yield batch
        timer.synchronize()
        step_seconds = (timer.now() - started) / steps
        self._alone = [numbers[0] for numbers in timer.agree([step_seconds])]
        self.together = True

    @property
    def _last_laps(self) -> list[Lap]:
        return [lap for lap in self.laps if lap.epoch == self.laps[-1].epoch]

    def between_processes(self) -> dict[str, Any]:
        """Return `rank_spread`, `straggler` and `communication_share` of a Measurement; empty for one process."""
        if not self._alone:
            return {}
        step_seconds = [alone + waited for alone, waited in zip(self._alone, self._timer.waited, strict=True)]
        steps, seconds = sum(lap.steps for lap in self._last_laps), sum(lap.seconds for lap in self._last_laps)
        return {
            **compare_ranks(self._timer.peers.names, step_seconds),
            "communication_share": 1 - max(self._alone) * steps / seconds if seconds > 0 else None,
        }


def compare_ranks(names: Sequence[str], step_seconds: Sequence[float]) -> dict[str, Any]:
    """Return `rank_spread` and `straggler` of a Measurement from the seconds of a step of each process."""
    typical = sorted(step_seconds)[(len(step_seconds) - 1) // 2]  # the median; of two in the middle, the faster
    slowest = max(range(len(step_seconds)), key=step_seconds.__getitem__)
    times = step_seconds[slowest] / typical if typical > 0 else 1.0
    least = min(step_seconds)
    return {
        "rank_spread": step_seconds[slowest] / least - 1 if least > 0 else None,
        "straggler": f"{names[slowest]}: {times:.2f} times the median" if times > 1 + STRAGGLES else "",
    }
