"""Passes, epochs and stages of a training, and the projected seconds of parts that did not run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.suite.trial import Lap


@dataclass(frozen=True)
class Phase:
    """One pass over (part of) a loader."""

    name: str
    epoch: int
    laps: tuple[Lap, ...]
    total_samples: int
    """Samples of a whole pass."""
    cut: bool
    """Whether the pass was stopped before its end."""

    @property
    def seconds(self) -> float:
        """Wall time of the laps that ran."""
        return sum(lap.seconds for lap in self.laps)

    @property
    def samples(self) -> int:
        """Samples of the laps that ran."""
        return sum(lap.samples for lap in self.laps)

    @property
    def timed(self) -> list[Lap]:
        """Laps after the warm-up."""
        return [lap for lap in self.laps if lap.kind == "timed" and lap.samples]

    @property
    def seconds_per_sample(self) -> float:
        """Wall time of all timed laps divided by their samples (not a mean of rates); 0 without timed laps."""
        samples = sum(lap.samples for lap in self.timed)
        return sum(lap.seconds for lap in self.timed) / samples if samples else 0.0

    @property
    def projected_seconds(self) -> float:
        """Seconds of a whole pass: the laps that ran, and the remaining samples at the steady rate."""
        return self.seconds + max(0, self.total_samples - self.samples) * self.seconds_per_sample

    @property
    def again_seconds(self) -> float:
        """Seconds of a further pass, which has no start-up: all samples at the steady rate."""
        return self.total_samples * self.seconds_per_sample


@dataclass(frozen=True)
class Epoch:
    """One epoch: its wall time and the phases inside it."""

    index: int
    seconds: float
    phases: tuple[Phase, ...]
    started: float = 0.0
    """Start, in seconds of the monotonic clock, as in `Lap.started`."""

    @property
    def between_seconds(self) -> float:
        """Wall time outside the phases: loaders starting, metrics, callbacks."""
        return max(0.0, self.seconds - sum(phase.seconds for phase in self.phases))

    def projected_seconds(self, name: str | None, *, again: bool = False) -> float:
        """Return the seconds of the epoch, or of its phase `name`; `again`: of a further epoch, without start-up."""
        phases = [phase for phase in self.phases if name in (None, phase.name)]
        seconds = sum(phase.again_seconds if again else phase.projected_seconds for phase in phases)
        return seconds + (self.between_seconds if name is None else 0.0)


def epoch_from_json(data: Mapping[str, Any]) -> Epoch:
    """Return the epoch whose `dataclasses.asdict` is `data`; its laps are marked as laps of an earlier process."""
    phases = [
        Phase(**{**phase, "laps": tuple(Lap(**{**lap, "earlier": True}) for lap in phase["laps"])})
        for phase in data["phases"]
    ]
    return Epoch(**{**data, "phases": tuple(phases)})


def stage_of(stages: Sequence[int], epoch: int) -> int:
    """Return the first epoch of the stage that an epoch belongs to."""
    return max((stage for stage in stages if stage <= epoch), default=0)


@dataclass(frozen=True)
class Stage:
    """Epochs with the same kind of steps: those that ran, and their laps."""

    epochs: tuple[Epoch, ...]
    planned: int
    """Number of epochs of this stage in the whole run."""
    timed: tuple[Lap, ...]
    """Timed laps of training from which rates are computed."""
    resident: tuple[Lap, ...] = ()

    @property
    def samples(self) -> int:
        """Training samples of the stage's planned epochs. An epoch that did not run counts as the last that ran."""
        trained = [training_samples(epoch.phases) for epoch in self.epochs]
        return sum(trained) + max(0, self.planned - len(trained)) * (trained[-1] if trained else 0)

    def seconds(self, name: str | None) -> float:
        """Return the seconds of the stage's planned epochs, or of their phase `name`, projected from those that ran.

        An epoch that did not run gets the mean time of those that ran after the first. If only the first ran, it gets
        the time of the first, without the start-up of the phases.
        """
        done = [epoch.projected_seconds(name) for epoch in self.epochs]
        missing = self.planned - len(done)
        if missing <= 0 or not done:
            return sum(done)
        later = done[1:] or [self.epochs[0].projected_seconds(name, again=True)]
        return sum(done) + missing * sum(later) / len(later)


def training_samples(phases: Sequence[Phase]) -> int:
    """Return the training samples of these phases, each as a whole pass."""
    return sum(phase.total_samples for phase in phases if phase.name == "train")


def timed_laps(phases: Sequence[Phase]) -> list[Lap]:
    """Return the timed laps of the training."""
    return [lap for phase in phases if phase.name == "train" for lap in phase.timed]
