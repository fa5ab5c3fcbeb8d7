"""One training run of a process (`clock.runs` may make several): its laps and epochs, and the numbers from them.

Clock adds laps, phases and epochs to a Run. At the end `Run.summary` returns the seconds and rates of the whole run,
projected if the run was sampled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpubench.suite.trial import Lap
from gpubench.training.clock.drift import TREND, drift, trend, without_slow_start
from gpubench.training.clock.projection import Epoch, Phase, Stage, stage_of, timed_laps, training_samples
from gpubench.training.clock.sampling import Sampling


@dataclass
class Run:
    """The epochs, phases and laps of one run."""

    planned: int = 0
    """Number of epochs of the whole run; 0 if unknown."""
    stages: tuple[int, ...] = (0,)
    """First epoch of each stage."""
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
    """Whether step times, or the card's clock or temperature, still changed at the end of that warm-up."""
    lost_seconds: float = 0.0
    """Seconds of epochs that earlier processes began and did not finish."""

    def restore(self, epochs: Sequence[Epoch], lost_seconds: float) -> None:
        """Continue after these epochs of an earlier process."""
        self.epochs = list(epochs)
        self.epoch, self.lost_seconds = len(epochs) - 1, lost_seconds
        self.phases = [phase for epoch in self.epochs for phase in epoch.phases]
        self.steady = "resumed" if timed_laps(self.phases) else ""

    def close_epoch(self, seconds: float, started: float) -> None:
        """Store the running epoch, given its duration and start in seconds."""
        self.epochs.append(Epoch(self.epoch, seconds, tuple(self.phases[self.epoch_phases :]), started))

    def converted(self, time: Callable[[float], float]) -> "Run":
        """Return the run with all times converted by `time`, such as from host time to device time."""
        moved = {
            id(phase): replace(phase, laps=tuple(_converted(lap, time) for lap in phase.laps)) for phase in self.phases
        }
        return replace(
            self,
            phases=list(moved.values()),
            uncounted=[_converted(lap, time) for lap in self.uncounted],
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
        timed = [lap.seconds for lap in timed_laps(self.phases) if lap.epoch > start]
        if after < end and (after - start < limit or (timed and sum(timed) < wanted)):
            return after
        return end if end < self.planned else None

    def done(self, sampling: Sampling, phase: str, share: float) -> float:
        """Return the approximate share of the needed epochs that is done, given the `share` of the running phase.

        Validation counts as the last tenth of an epoch.
        """
        if self.epoch < 0:  # before the first epoch
            return 0.0
        part = 0.9 * share if phase == "train" else 0.9 + 0.1 * share
        planned = self.planned or 1
        stages = [start for start in self.stages if start < planned]
        ends = (*stages[1:], planned)
        needed = [min(end - start, sampling.epochs or planned) for start, end in zip(stages, ends, strict=True)]
        begun = [min(max(0, self.epoch - start), wanted) for start, wanted in zip(stages, needed, strict=True)]
        return min(1.0, (sum(begun) + part) / max(1, sum(needed)))

    @property
    def drifted(self) -> str:
        """How the timed laps of a stage drifted, or an empty string."""
        return next(filter(None, map(drift, self._steady_by_stage())), "")

    @property
    def later_ratio(self) -> float:
        """Step times later in the run over those of the sample, if its trend goes on: 0.5 to 2; 1 without a trend."""
        change = max((trend(laps, self.seconds) for laps in self._steady_by_stage()), key=abs)
        factor = 1 + min(abs(change), 1.0) * (abs(change) > TREND)
        return factor if change > 0 else 1 / factor

    def _steady_by_stage(self) -> list[Sequence[Lap]]:
        timed = timed_laps(self.phases)
        by_stage = [[lap for lap in timed if stage_of(self.stages, lap.epoch) == start] for start in self.stages]
        return [without_slow_start(laps) for laps in by_stage]

    @property
    def seconds(self) -> float:
        """Seconds of the whole run, projected if epochs are missing."""
        return float(self.summary()["seconds"])

    def by_start(self) -> dict[int, Stage]:
        """Return the stages by their first epoch. A run that was left early has no later ones."""
        return dict(zip(self.stages, self._by_stage((), sampled=True), strict=False))

    def summary(self, resident: Sequence[Lap] = ()) -> dict[str, Any]:
        """Return seconds, rates and shares of the whole run, as fields of a Measurement.

        They are projected if epochs or parts of them are missing. Rates are of all stages, weighted by their samples.
        `resident` has the laps on each stage's resident batch; the `epoch` of such a lap is the first of its stage.
        """
        planned = self.planned or len(self.epochs)
        phases = [phase for epoch in self.epochs for phase in epoch.phases]
        in_epochs = {id(phase) for phase in phases}
        once = [phase for phase in self.phases if id(phase) not in in_epochs]
        phases += once
        sampled = len(self.epochs) < planned or any(phase.cut for phase in phases)
        # A pass may leave out a few last samples. Its time is then scaled to all samples, so it was not measured.
        scaled = any(phase.total_samples > phase.samples for phase in phases)
        stages = self._by_stage(resident, sampled)
        timed = stages if self.epochs else [Stage((), 0, tuple(timed_laps(once)), tuple(resident))]
        weights = [stage.samples for stage in timed]
        pace = _per_sample([stage.timed for stage in timed], weights, lambda lap: lap.seconds)
        waited = _per_sample([stage.timed for stage in timed], weights, lambda lap: lap.wait_seconds)
        resident_pace = _per_sample([stage.resident for stage in timed], weights, lambda lap: lap.seconds)

        def seconds_of(name: str | None) -> float:
            by_stage = sum(stage.seconds(name) for stage in stages)
            return by_stage + sum(phase.projected_seconds for phase in once if name in (None, phase.name))

        return {
            "seconds": seconds_of(None) + self.lost_seconds,
            "measured": not sampled and not scaled,
            "train_seconds": seconds_of("train"),
            "valid_seconds": seconds_of("valid"),
            "samples_per_second": 1 / pace if pace else None,
            "epochs": planned or 1,
            "samples": sum(phase.samples for phase in phases if phase.name == "train"),
            "loader_wait": waited / pace if pace and waited is not None else None,
            "data_stall": 1 - resident_pace / pace if pace and resident_pace else None,
            "resident_samples_per_second": 1 / resident_pace if resident_pace else None,
            "run_samples": (sum(stage.samples for stage in stages) + training_samples(once)) or None,
            "laps": tuple(lap for phase in phases for lap in phase.laps) + tuple(resident),
        }

    def _by_stage(self, resident: Sequence[Lap], sampled: bool) -> list[Stage]:
        starts = [start for start in self.stages if start < max(1, self.planned or len(self.epochs))] or [0]
        ends = [*starts[1:], max(self.planned, len(self.epochs))]
        stages = []
        for start, end in zip(starts, ends, strict=True):
            ran = tuple(epoch for epoch in self.epochs if stage_of(starts, epoch.index) == start)
            # In a sampled run, rates leave out the first epoch of a stage, which has the start-up, if others ran.
            recent = ran[1:] or ran if sampled else ran
            laps = tuple(lap for lap in resident if stage_of(starts, lap.epoch) == start)
            timed = timed_laps([phase for epoch in recent for phase in epoch.phases])
            stages.append(Stage(ran, end - start, tuple(timed), laps))
        return stages


def _per_sample(
    laps_by_stage: Sequence[Sequence[Lap]], weights: Sequence[int], seconds_of: Callable[[Lap], float]
) -> float | None:
    """Return the mean of the stages' seconds per sample, weighted; None if a stage has no samples."""
    samples = [sum(lap.samples for lap in laps) for laps in laps_by_stage]
    if not all(samples):
        return None
    paces = [sum(map(seconds_of, laps)) / count for laps, count in zip(laps_by_stage, samples, strict=True)]
    if len(paces) == 1:
        return paces[0]
    total = sum(weights)
    return sum(pace * weight for pace, weight in zip(paces, weights, strict=True)) / total if total else None


def _converted(lap: Lap, time: Callable[[float], float]) -> Lap:
    """Return the lap with converted times; the wait for the loader is at most the seconds of the lap."""
    started = time(lap.started)
    seconds = time(lap.started + lap.seconds) - started
    return replace(lap, started=started, seconds=seconds, wait_seconds=min(lap.wait_seconds, seconds))


def median_run(runs: Sequence[Run]) -> Run:
    """Return the run with the median time; of two in the middle, the faster one."""
    return sorted(runs, key=lambda run: run.seconds)[(len(runs) - 1) // 2]
