"""Collects the laps, epochs and warm-up of one training run; a process may make several (`clock.runs`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpubench.suite.trial import Lap
from gpubench.training.clock.projection import Epoch, Phase, stage_of, summarise
from gpubench.training.clock.sampling import TREND, Sampling, drift, trend, without_slow_start


@dataclass
class Run:
    """The epochs, phases and laps of one run; Clock adds to them while the run lasts."""

    planned: int = 0
    """Number of epochs of the whole run; 0 if unknown."""
    stages: tuple[int, ...] = (0,)
    epoch: int = -1
    """Number of the running epoch, or of the last one."""
    epochs: list[Epoch] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    epoch_phases: int = 0
    """Index in `phases` of the running epoch's first phase."""
    uncounted: list[Lap] = field(default_factory=list)
    steady: str = ""
    """Why the first warm-up ended."""
    unsteady: bool = False
    """Whether step times were still changing at its end."""
    lost_seconds: float = 0.0
    """Seconds of an epoch that an earlier process began and did not finish."""

    @property
    def timed(self) -> list[Lap]:
        """Timed laps of all training phases."""
        laps = [lap for phase in self.phases if phase.name == "train" for lap in phase.laps]
        return [lap for lap in laps if lap.kind == "timed" and lap.samples]

    def restore(self, epochs: Sequence[Epoch], lost_seconds: float) -> None:
        """Continue after these epochs of an earlier process."""
        self.epochs = [_marked_earlier(epoch) for epoch in epochs]
        self.epoch, self.lost_seconds = len(epochs) - 1, lost_seconds
        self.phases = [phase for epoch in self.epochs for phase in epoch.phases]
        self.steady = "resumed" if self.timed else ""

    def close_epoch(self, seconds: float, started: float) -> None:
        """Store the running epoch, given its duration and start in seconds."""
        self.epochs.append(Epoch(self.epoch, seconds, tuple(self.phases[self.epoch_phases :]), started))

    def at(self, time: Callable[[float], float]) -> "Run":
        """Return the run with all times converted by `time`."""
        moved = {id(phase): replace(phase, laps=tuple(_at(lap, time) for lap in phase.laps)) for phase in self.phases}
        return replace(
            self,
            phases=list(moved.values()),
            uncounted=[_at(lap, time) for lap in self.uncounted],
            epochs=[
                replace(
                    epoch,
                    started=time(epoch.started),
                    seconds=time(epoch.started + epoch.seconds) - time(epoch.started),
                    phases=tuple(moved[id(phase)] for phase in epoch.phases),
                )
                for epoch in self.epochs
            ],
        )

    def following(self, sampling: Sampling) -> int | None:
        """Return the number of the next epoch to run, or None if no more are needed."""
        after, limit = self.epoch + 1, sampling.epochs
        if limit is None or after >= self.planned:
            return after if after < self.planned else None
        start = stage_of(self.stages, max(0, self.epoch))
        end = min((stage for stage in self.stages if stage > start), default=self.planned)
        # Epochs may be so short that two of them are not enough.
        wanted = 0.0 if sampling.steps else sampling.train_seconds or 0.0
        # The first epoch has the start-up, and does not count in rates once there are others.
        timed = [lap.seconds for lap in self.timed if lap.epoch > start]
        if after < end and (after - start < limit or (timed and sum(timed) < wanted)):
            return after
        return end if end < self.planned else None

    @property
    def once(self) -> list[Phase]:
        """Phases outside epochs."""
        in_epochs = {id(phase) for epoch in self.epochs for phase in epoch.phases}
        return [phase for phase in self.phases if id(phase) not in in_epochs]

    def _steady_by_stage(self) -> list[Sequence[Lap]]:
        by_stage = [[lap for lap in self.timed if stage_of(self.stages, lap.epoch) == at] for at in self.stages]
        return [without_slow_start(laps) for laps in by_stage]

    @property
    def drifted(self) -> str:
        """How the timed laps of a stage drifted, or an empty string."""
        return next(filter(None, map(drift, self._steady_by_stage())), "")

    @property
    def later_ratio(self) -> float:
        """Step times later in the run over those of its sample, if a stage's trend goes on: 0.5 to 2, 1 without one."""
        change = max((trend(laps, self.seconds) for laps in self._steady_by_stage()), key=abs)
        factor = 1 + min(abs(change), 1.0) * (abs(change) > TREND)
        return factor if change > 0 else 1 / factor

    def summary(self, resident: Sequence[Lap] = ()) -> dict[str, Any]:
        """Return the run's fields of a Measurement, projected if epochs are missing."""
        planned = self.planned or len(self.epochs)
        return summarise(self.epochs, self.once, resident, planned, self.stages, self.lost_seconds)

    @property
    def seconds(self) -> float:
        """Seconds of the whole run, projected if epochs are missing."""
        return float(self.summary()["seconds"])


def _marked_earlier(epoch: Epoch) -> Epoch:
    """Return the epoch with its laps marked as timed by an earlier process."""
    phases = [replace(phase, laps=tuple(replace(lap, earlier=True) for lap in phase.laps)) for phase in epoch.phases]
    return replace(epoch, phases=tuple(phases))


def _at(lap: Lap, time: Callable[[float], float]) -> Lap:
    """Return the lap with converted times; the wait for the loader is at most the lap."""
    started = time(lap.started)
    seconds = time(lap.started + lap.seconds) - started
    return replace(lap, started=started, seconds=seconds, wait_seconds=min(lap.wait_seconds, seconds))


def median_run(runs: Sequence[Run]) -> Run:
    """Return the run with the median time; of two in the middle, the faster one."""
    return sorted(runs, key=lambda run: run.seconds)[(len(runs) - 1) // 2]
