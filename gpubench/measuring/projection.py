"""From laps to the seconds of the whole run. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.trial import Lap


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

    @property
    def between_seconds(self) -> float:
        """Wall time outside the phases: loaders starting, metrics, callbacks."""
        return max(0.0, self.seconds - sum(phase.seconds for phase in self.phases))


def summarise(epochs: Sequence[Epoch], once: Sequence[Phase], resident: Sequence[Lap], planned: int) -> dict[str, Any]:
    """Seconds, rate and shares of a trial.

    Args:
        epochs: those that ran, in order.
        once: phases outside epochs; they count one time, whatever the epochs.
        resident: laps on one resident batch.
        planned: epochs of the whole run; 0 where the suite counts none.
    """
    phases = [phase for epoch in epochs for phase in epoch.phases] + list(once)
    measured = len(epochs) >= planned and not any(phase.cut or _short(phase) for phase in phases)
    train = _total(epochs, planned, "train") + _once(once, "train")
    valid = _total(epochs, planned, "valid") + _once(once, "valid")
    # A sampled run's epochs after the first are without the run's own start-up.
    sampled = len(epochs) < planned or any(p.cut for p in phases)
    recent = epochs[1:] or epochs if sampled else epochs
    steady = [phase for epoch in recent for phase in epoch.phases] if epochs else once
    timed = [
        lap for phase in steady for lap in phase.laps if phase.name == "train" and lap.kind == "timed" and lap.samples
    ]
    seconds, samples = sum(lap.seconds for lap in timed), sum(lap.samples for lap in timed)
    rate = samples / seconds if seconds > 0 else None
    return {
        "seconds": _total(epochs, planned, None) + _once(once, None),
        "measured": measured,
        "train_seconds": train,
        "valid_seconds": valid,
        "samples_per_second": rate,
        "epochs": planned or 1,
        "samples": sum(phase.samples for phase in phases if phase.name == "train"),
        "loader_wait": sum(lap.wait_seconds for lap in timed) / seconds if seconds > 0 else None,
        "data_stall": _stall(rate, _rate(resident)),
        "resident_samples_per_second": _rate(resident),
        "run_samples": _samples(epochs, once, planned) or None,
        "laps": tuple(lap for phase in phases for lap in phase.laps) + tuple(resident),
    }


def _short(phase: Phase) -> bool:
    """Whether an uncut pass left samples out (a lone last one, say), so that its time is scaled."""
    return phase.total_samples > phase.samples


def _once(phases: Sequence[Phase], name: str | None) -> float:
    return sum(phase.projected_seconds for phase in phases if name in (None, phase.name))


def _total(epochs: Sequence[Epoch], planned: int, name: str | None) -> float:
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


def _rate(laps: Sequence[Lap]) -> float | None:
    seconds, samples = sum(lap.seconds for lap in laps), sum(lap.samples for lap in laps)
    return samples / seconds if samples and seconds > 0 else None


def _stall(rate: float | None, resident: float | None) -> float | None:
    return 1 - rate / resident if rate and resident else None


def _samples(epochs: Sequence[Epoch], once: Sequence[Phase], planned: int) -> int:
    """Training samples of the whole run: epochs that did not run are like the last one that did."""
    by_epoch = [sum(phase.total_samples for phase in epoch.phases if phase.name == "train") for epoch in epochs]
    missing = max(0, planned - len(epochs)) * by_epoch[-1] if by_epoch else 0
    return sum(by_epoch) + missing + sum(phase.total_samples for phase in once if phase.name == "train")
