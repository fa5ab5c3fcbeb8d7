"""From laps to the seconds of the whole run. Pure arithmetic."""

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
    """Samples a whole pass has."""
    cut: bool
    """Whether it was stopped before its end."""

    @property
    def seconds(self) -> float:
        """Wall time of what was done."""
        return sum(lap.seconds for lap in self.laps)

    @property
    def samples(self) -> int:
        """Samples of what was done."""
        return sum(lap.samples for lap in self.laps)

    @property
    def seconds_per_sample(self) -> float:
        """Steady rate: wall time over samples of the timed laps, never a mean of rates."""
        timed = [lap for lap in self.laps if lap.kind == "timed" and lap.samples]
        samples = sum(lap.samples for lap in timed)
        return sum(lap.seconds for lap in timed) / samples if samples else 0.0

    @property
    def projected_seconds(self) -> float:
        """Start-up as it was, and everything not done at the steady rate."""
        return self.seconds + max(0, self.total_samples - self.samples) * self.seconds_per_sample

    @property
    def again_seconds(self) -> float:
        """What another pass would take without this one's start-up."""
        return self.total_samples * self.seconds_per_sample


@dataclass(frozen=True)
class Epoch:
    """One epoch: its wall time and the phases inside it."""

    index: int
    seconds: float
    phases: tuple[Phase, ...]
    started: float = 0.0
    """When it began, as of a lap."""

    @property
    def between_seconds(self) -> float:
        """Wall time outside the phases: loaders starting, metrics, callbacks."""
        return max(0.0, self.seconds - sum(phase.seconds for phase in self.phases))


def epoch_from_json(data: Mapping[str, Any]) -> Epoch:
    """The inverse of `dataclasses.asdict`."""
    phases = [{**phase, "laps": tuple(Lap(**lap) for lap in phase["laps"])} for phase in data["phases"]]
    return Epoch(**{**data, "phases": tuple(Phase(**phase) for phase in phases)})


def stage_of(stages: Sequence[int], epoch: int) -> int:
    """The stage that an epoch belongs to, by the epoch it begins with."""
    return max((stage for stage in stages if stage <= epoch), default=0)


@dataclass(frozen=True)
class Stage:
    """Epochs that are alike: those of them that ran, and what is known of the steps in between."""

    epochs: tuple[Epoch, ...]
    planned: int
    """Epochs that the whole run has of this stage."""
    timed: tuple[Lap, ...]
    """Steady laps of the training."""
    resident: tuple[Lap, ...] = ()

    @property
    def samples(self) -> int:
        """Training samples of all its epochs: those that did not run are like the last one that did."""
        trained = [_samples(epoch.phases) for epoch in self.epochs]
        return sum(trained) + max(0, self.planned - len(trained)) * (trained[-1] if trained else 0)


def summarise(
    epochs: Sequence[Epoch],
    once: Sequence[Phase],
    resident: Sequence[Lap],
    planned: int,
    starts: Sequence[int] = (0,),
    lost_seconds: float = 0.0,
) -> dict[str, Any]:
    """Seconds, rate and shares of a trial.

    Args:
        epochs: those that ran, in order.
        once: phases outside epochs; they count one time, whatever the epochs.
        resident: laps on one resident batch (of each stage); their epoch is the stage's first.
        planned: epochs of the whole run; 0 where the suite counts none.
        starts: the epochs that stages begin with. Rates are those of the whole run: each stage counts with
            the samples it has there.
        lost_seconds: spent by earlier processes on epochs that they did not end.
    """
    phases = [phase for epoch in epochs for phase in epoch.phases] + list(once)
    measured = len(epochs) >= planned and not any(phase.cut or _short(phase) for phase in phases)
    # A sampled run's epochs after the first of a stage are without its start-up.
    sampled = len(epochs) < planned or any(p.cut for p in phases)
    stages = _stages(epochs, resident, planned, starts, sampled)
    by_rate = stages if epochs else [Stage((), 0, _timed(once), tuple(resident))]
    weights = [stage.samples for stage in stages] if epochs else [_samples(once)]
    rate = _rate([stage.timed for stage in by_rate], weights)
    resident_rate = _rate([stage.resident for stage in by_rate], weights)
    train = _total(stages, "train") + _once(once, "train")
    valid = _total(stages, "valid") + _once(once, "valid")
    return {
        "seconds": _total(stages, None) + _once(once, None) + lost_seconds,
        "measured": measured,
        "train_seconds": train,
        "valid_seconds": valid,
        "samples_per_second": rate,
        "epochs": planned or 1,
        "samples": sum(phase.samples for phase in phases if phase.name == "train"),
        "loader_wait": _wait([stage.timed for stage in by_rate], weights),
        "data_stall": _stall(rate, resident_rate),
        "resident_samples_per_second": resident_rate,
        "run_samples": (sum(stage.samples for stage in stages) + _samples(once)) or None,
        "laps": tuple(lap for phase in phases for lap in phase.laps) + tuple(resident),
    }


def _short(phase: Phase) -> bool:
    """Whether an uncut pass left samples out (a lone last one, say), so that its time is scaled."""
    return phase.total_samples > phase.samples


def _once(phases: Sequence[Phase], name: str | None) -> float:
    return sum(phase.projected_seconds for phase in phases if name in (None, phase.name))


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
    """Seconds of all epochs of each stage, by the epoch it begins with; projected from those that ran."""
    return {
        start: _total([stage], None)
        for start, stage in zip(starts, _stages(epochs, (), planned, starts, sampled=True), strict=True)
    }


def _total(stages: Sequence[Stage], name: str | None) -> float:
    return sum(_stage_total(stage.epochs, stage.planned, name) for stage in stages)


def _stage_total(epochs: Sequence[Epoch], planned: int, name: str | None) -> float:
    """Seconds of `planned` epochs (of one phase of them, where named) from those that ran.

    The first epoch counts as it was; every epoch that did not run is like the mean of those after it. Where
    only the first ran, the others are like it without the start-up of its phases.
    """
    done = sum(_epoch_seconds(epoch, name) for epoch in epochs)
    missing = planned - len(epochs)
    if missing <= 0 or not epochs:
        return done
    if len(epochs) > 1:
        later = [_epoch_seconds(epoch, name) for epoch in epochs[1:]]
        return done + missing * sum(later) / len(later)
    phases = [phase for phase in epochs[0].phases if name in (None, phase.name)]
    between = epochs[0].between_seconds if name is None else 0.0
    return done + missing * (between + sum(phase.again_seconds for phase in phases))


def _epoch_seconds(epoch: Epoch, name: str | None) -> float:
    phases = [phase for phase in epoch.phases if name in (None, phase.name)]
    between = epoch.between_seconds if name is None else 0.0
    return between + sum(phase.projected_seconds for phase in phases)


def _rate(laps: Sequence[Sequence[Lap]], weights: Sequence[int]) -> float | None:
    """Samples per second of a run that has `weights` samples at the pace of each of `laps`."""
    seconds = _mean([_pace(each, lambda lap: lap.seconds) for each in laps], weights)
    return 1 / seconds if seconds else None


def _wait(laps: Sequence[Sequence[Lap]], weights: Sequence[int]) -> float | None:
    seconds = _mean([_pace(each, lambda lap: lap.seconds) for each in laps], weights)
    waited = _mean([_pace(each, lambda lap: lap.wait_seconds) for each in laps], weights)
    return waited / seconds if seconds and waited is not None else None


def _pace(laps: Sequence[Lap], seconds_of: Callable[[Lap], float]) -> float | None:
    """Seconds per sample."""
    samples = sum(lap.samples for lap in laps)
    return sum(map(seconds_of, laps)) / samples if samples else None


def _mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    """Weighted; None where one of the values is missing. A single value has no need of a weight."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None
    if len(known) == 1:
        return known[0]
    total = sum(weights)
    return sum(value * weight for value, weight in zip(known, weights, strict=True)) / total if total else None


def _stall(rate: float | None, resident: float | None) -> float | None:
    return 1 - rate / resident if rate and resident else None


def _samples(phases: Sequence[Phase]) -> int:
    """Training samples of whole passes."""
    return sum(phase.total_samples for phase in phases if phase.name == "train")
