"""Projects the seconds and rates of the whole run from laps. Pure arithmetic."""

from collections.abc import Callable, Mapping, Sequence
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
    """Whether it was stopped before its end."""

    @property
    def seconds(self) -> float:
        """Wall time of the laps that ran."""
        return sum(lap.seconds for lap in self.laps)

    @property
    def samples(self) -> int:
        """Samples of the laps that ran."""
        return sum(lap.samples for lap in self.laps)

    @property
    def seconds_per_sample(self) -> float:
        """Wall time of all timed laps over their samples (not a mean of rates); 0 without timed laps."""
        timed = [lap for lap in self.laps if lap.kind == "timed" and lap.samples]
        samples = sum(lap.samples for lap in timed)
        return sum(lap.seconds for lap in timed) / samples if samples else 0.0

    @property
    def projected_seconds(self) -> float:
        """Seconds of a whole pass: the laps that ran, and the remaining samples at the steady rate."""
        return self.seconds + max(0, self.total_samples - self.samples) * self.seconds_per_sample

    @property
    def again_seconds(self) -> float:
        """Seconds of another pass, without this one's start-up."""
        return self.total_samples * self.seconds_per_sample


@dataclass(frozen=True)
class Epoch:
    """One epoch: its wall time and the phases inside it."""

    index: int
    seconds: float
    phases: tuple[Phase, ...]
    started: float = 0.0
    """Start, in seconds of the same clock as a lap's."""

    @property
    def between_seconds(self) -> float:
        """Wall time outside the phases: loaders starting, metrics, callbacks."""
        return max(0.0, self.seconds - sum(phase.seconds for phase in self.phases))

    def projected_seconds(self, name: str | None) -> float:
        """Return the seconds of the whole epoch, or of its phase `name`."""
        between = self.between_seconds if name is None else 0.0
        return between + sum(phase.projected_seconds for phase in self.phases if name in (None, phase.name))

    def again_seconds(self, name: str | None) -> float:
        """Return the seconds of another epoch, or of its phase `name`, without the start-up of this one's phases."""
        between = self.between_seconds if name is None else 0.0
        return between + sum(phase.again_seconds for phase in self.phases if name in (None, phase.name))


def epoch_from_json(data: Mapping[str, Any]) -> Epoch:
    """Return an epoch from what `dataclasses.asdict` made of it."""
    phases = [{**phase, "laps": tuple(Lap(**lap) for lap in phase["laps"])} for phase in data["phases"]]
    return Epoch(**{**data, "phases": tuple(Phase(**phase) for phase in phases)})


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
    """Steady laps of the training."""
    resident: tuple[Lap, ...] = ()

    @property
    def samples(self) -> int:
        """Training samples of all its epochs; those that did not run are taken to be like the last one."""
        trained = [_samples(epoch.phases) for epoch in self.epochs]
        return sum(trained) + max(0, self.planned - len(trained)) * (trained[-1] if trained else 0)

    def seconds(self, name: str | None) -> float:
        """Return the seconds of its planned epochs, or of their phase `name`, projected from those that ran.

        Epochs that did not run take the mean of those after the first. If only the first ran, they take its time
        without the start-up of its phases.
        """
        done = [epoch.projected_seconds(name) for epoch in self.epochs]
        missing = self.planned - len(done)
        if missing <= 0 or not done:
            return sum(done)
        later = done[1:] or [self.epochs[0].again_seconds(name)]
        return sum(done) + missing * sum(later) / len(later)


def summarise(
    epochs: Sequence[Epoch],
    once: Sequence[Phase],
    resident: Sequence[Lap],
    planned: int,
    starts: Sequence[int] = (0,),
    lost_seconds: float = 0.0,
) -> dict[str, Any]:
    """Return seconds, rates and shares of a trial, as fields of a Measurement.

    Args:
        epochs: epochs that ran, in order.
        once: phases outside epochs, which count once.
        resident: laps on a resident batch of each stage; their epoch is the stage's first.
        planned: epochs of the whole run; 0 if the suite counts none.
        starts: first epochs of stages. Rates are for the whole run: stages are weighted by their samples.
        lost_seconds: seconds that earlier processes spent on epochs that they did not finish.
    """
    phases = [phase for epoch in epochs for phase in epoch.phases] + list(once)
    measured = len(epochs) >= planned and not any(phase.cut or _short(phase) for phase in phases)
    # In a sampled run, epochs after the first of a stage have no start-up.
    sampled = len(epochs) < planned or any(p.cut for p in phases)
    stages = _stages(epochs, resident, planned, starts, sampled)
    by_rate = stages if epochs else [Stage((), 0, _timed(once), tuple(resident))]
    weights = [stage.samples for stage in stages] if epochs else [_samples(once)]
    seconds_a_sample = _per_sample([stage.timed for stage in by_rate], weights, lambda lap: lap.seconds)
    waited_a_sample = _per_sample([stage.timed for stage in by_rate], weights, lambda lap: lap.wait_seconds)
    resident_a_sample = _per_sample([stage.resident for stage in by_rate], weights, lambda lap: lap.seconds)
    rate = 1 / seconds_a_sample if seconds_a_sample else None
    resident_rate = 1 / resident_a_sample if resident_a_sample else None

    def seconds_of(name: str | None) -> float:
        by_stage = sum(stage.seconds(name) for stage in stages)
        return by_stage + sum(phase.projected_seconds for phase in once if name in (None, phase.name))

    return {
        "seconds": seconds_of(None) + lost_seconds,
        "measured": measured,
        "train_seconds": seconds_of("train"),
        "valid_seconds": seconds_of("valid"),
        "samples_per_second": rate,
        "epochs": planned or 1,
        "samples": sum(phase.samples for phase in phases if phase.name == "train"),
        "loader_wait": waited_a_sample / seconds_a_sample if seconds_a_sample and waited_a_sample is not None else None,
        "data_stall": 1 - rate / resident_rate if rate and resident_rate else None,
        "resident_samples_per_second": resident_rate,
        "run_samples": (sum(stage.samples for stage in stages) + _samples(once)) or None,
        "laps": tuple(lap for phase in phases for lap in phase.laps) + tuple(resident),
    }


def _short(phase: Phase) -> bool:
    """Return whether a pass left samples out (such as a single last one), so that its time is scaled."""
    return phase.total_samples > phase.samples


def _stages(
    epochs: Sequence[Epoch], resident: Sequence[Lap], planned: int, starts: Sequence[int], sampled: bool
) -> list[Stage]:
    first = [start for start in starts if start < max(1, planned)] or [0]
    ends = [*first[1:], max(planned, len(epochs))]
    stages = []
    for start, end in zip(first, ends, strict=True):
        ran = tuple(epoch for epoch in epochs if stage_of(first, epoch.index) == start)
        recent = ran[1:] or ran if sampled else ran
        laps = tuple(lap for lap in resident if stage_of(first, lap.epoch) == start)
        timed = _timed([phase for epoch in recent for phase in epoch.phases])
        stages.append(Stage(ran, end - start, timed, laps))
    return stages


def _timed(phases: Sequence[Phase]) -> tuple[Lap, ...]:
    train = [phase for phase in phases if phase.name == "train"]
    return tuple(lap for phase in train for lap in phase.laps if lap.kind == "timed" and lap.samples)


def stage_seconds(epochs: Sequence[Epoch], planned: int, starts: Sequence[int]) -> dict[int, float]:
    """Return the seconds of all epochs of each stage, by its first epoch; projected from those that ran."""
    return {
        start: stage.seconds(None)
        # A run that was left early has no later stages.
        for start, stage in zip(starts, _stages(epochs, (), planned, starts, sampled=True), strict=False)
    }


def _per_sample(
    laps: Sequence[Sequence[Lap]], weights: Sequence[int], seconds_of: Callable[[Lap], float]
) -> float | None:
    """Return the seconds per sample of a run with stages of `weights` samples, whose laps are `laps`."""
    paces: list[float | None] = []
    for stage in laps:
        samples = sum(lap.samples for lap in stage)
        paces.append(sum(map(seconds_of, stage)) / samples if samples else None)
    return _mean(paces, weights)


def _mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    """Return the weighted mean, or None if a value is missing; a single value needs no weight."""
    present = [value for value in values if value is not None]
    if len(present) < len(values) or not present:
        return None
    if len(present) == 1:
        return present[0]
    total = sum(weights)
    return sum(value * weight for value, weight in zip(present, weights, strict=True)) / total if total else None


def _samples(phases: Sequence[Phase]) -> int:
    """Return the training samples of whole passes."""
    return sum(phase.total_samples for phase in phases if phase.name == "train")
