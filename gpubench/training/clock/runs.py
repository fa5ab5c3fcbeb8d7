"""Collects laps, epochs and warm-up of one training run, of which a process may make several (`clock.runs`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpubench.suite.trial import Lap
from gpubench.training.clock.projection import Epoch, Phase, stage_of, summarise
from gpubench.training.clock.sampling import Sampling, drift


@dataclass
class Run:
    """The epochs, phases and laps of one run, while the clock fills them in."""

    planned: int = 0
    """Epochs of the whole run; 0 where nobody said."""
    stages: tuple[int, ...] = (0,)
    epoch: int = -1
    """The number of the epoch that runs, or ran last."""
    epochs: list[Epoch] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    epoch_phases: int = 0
    """Where in `phases` those of the running epoch begin."""
    uncounted: list[Lap] = field(default_factory=list)
    steady: str = ""
    """What ended the first warm-up."""
    unsteady: bool = False
    """Whether the pace still moved then."""
    lost_seconds: float = 0.0
    """Spent on an epoch that an earlier process began and did not end."""

    @property
    def timed(self) -> list[Lap]:
        """Timed laps of all training phases, to see whether the steady state held."""
        laps = [lap for phase in self.phases if phase.name == "train" for lap in phase.laps]
        return [lap for lap in laps if lap.kind == "timed" and lap.samples]

    def restore(self, epochs: Sequence[Epoch], lost_seconds: float) -> None:
        """Go on after these epochs of an earlier process."""
        self.epochs = [_of_earlier(epoch) for epoch in epochs]
        self.epoch, self.lost_seconds = len(epochs) - 1, lost_seconds
        self.phases = [phase for epoch in self.epochs for phase in epoch.phases]
        self.steady = "resumed" if self.timed else ""

    def close_epoch(self, seconds: float, started: float) -> None:
        """Keep the running epoch, which took so long."""
        self.epochs.append(Epoch(self.epoch, seconds, tuple(self.phases[self.epoch_phases :]), started))

    def at(self, time: Callable[[float], float]) -> "Run":
        """The same run, each of its moments moved to what `time` makes of it."""
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
        """The epoch to run after this one; None where this is the last one needed."""
        after, limit = self.epoch + 1, sampling.epochs
        if limit is None or after >= self.planned:
            return after if after < self.planned else None
        start = stage_of(self.stages, max(0, self.epoch))
        end = min((stage for stage in self.stages if stage > start), default=self.planned)
        # Epochs may be so short that two of them show little.
        wanted = 0.0 if sampling.steps else sampling.train_seconds or 0.0
        # The first has the start-up, and is in no rate once there are others.
        timed = [lap.seconds for lap in self.timed if lap.epoch > start]
        if after < end and (after - start < limit or (timed and sum(timed) < wanted)):
            return after
        return end if end < self.planned else None

    @property
    def once(self) -> list[Phase]:
        """Phases outside epochs."""
        in_epochs = {id(phase) for epoch in self.epochs for phase in epoch.phases}
        return [phase for phase in self.phases if id(phase) not in in_epochs]

    @property
    def drifted(self) -> str:
        """How the timed laps drifted, if they did. Stages differ in pace; inside one, laps should not."""
        by_stage = [[lap for lap in self.timed if stage_of(self.stages, lap.epoch) == at] for at in self.stages]
        return next(filter(None, map(drift, by_stage)), "")

    def summary(self, resident: Sequence[Lap] = ()) -> dict[str, Any]:
        """The fields of a Measurement that follow from the run, projected where epochs are missing."""
        planned = self.planned or len(self.epochs)
        return summarise(self.epochs, self.once, resident, planned, self.stages, self.lost_seconds)

    @property
    def seconds(self) -> float:
        """Wall time of all that counts."""
        return float(self.summary()["seconds"])


def _of_earlier(epoch: Epoch) -> Epoch:
    """Whose laps another process timed."""
    phases = [replace(phase, laps=tuple(replace(lap, earlier=True) for lap in phase.laps)) for phase in epoch.phases]
    return replace(epoch, phases=tuple(phases))


def _at(lap: Lap, time: Callable[[float], float]) -> Lap:
    """The lap between other moments. A host that runs ahead of its device is not waited for."""
    started = time(lap.started)
    seconds = time(lap.started + lap.seconds) - started
    return replace(lap, started=started, seconds=seconds, wait_seconds=min(lap.wait_seconds, seconds))


def median_run(runs: Sequence[Run]) -> Run:
    """The one with the median time; of two in the middle, the faster."""
    return sorted(runs, key=lambda run: run.seconds)[(len(runs) - 1) // 2]
