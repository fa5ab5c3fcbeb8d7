"""Times a training run in laps, finds its steady state, and stops a sampled run early. Pure Python.

The synchronise is passed in and called at lap boundaries only (the idea of cifar10-fast's Timer), so that
an accelerator's queue is never drained inside a lap.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpubench.errors import UserError
from gpubench.measuring.projection import Epoch, Phase, epoch_from_json, stage_of, stage_seconds, summarise
from gpubench.measuring.sampling import Sampling, Stop, drift
from gpubench.trial import Lap


@dataclass(frozen=True)
class Notes:
    """What the steps of a training say of themselves once it is over (see stepping.Stepper)."""

    loss_scale: float | None = None
    """At the end; None where no loss was scaled."""
    skipped_steps: int | None = None
    nonfinite_losses: int | None = None
    diverged: str = ""
    """Why the run taught the model nothing, or empty."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """How many tensors the model and the optimizer hold, by owner and dtype (see precision.check_weights)."""


class Clock:
    """What a suite runs its epochs and steps through.

    Args:
        sampling: how much to measure.
        synchronize: waits until the device has done all it was given.
        now: seconds, monotonic.
        report: told of progress a few times a second.
        watch: makes the context in which one untimed step runs (to see its operands).
        settled: whether the card's clock and temperature are flat, where somebody reads them; part of the warm-up.
    """

    def __init__(
        self,
        sampling: Sampling,
        synchronize: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.perf_counter,
        report: Callable[[dict[str, Any]], None] | None = None,
        watch: Callable[[], AbstractContextManager[Any]] = nullcontext,
        settled: Callable[[], bool] | None = None,
    ) -> None:
        self._sampling, self._synchronize, self._now = sampling, synchronize, now
        self._report, self._watch, self._settled = report, watch, settled
        self._built = now()
        self._first_step: float | None = None
        self._planned = 0
        self._epoch = -1
        self._epoch_open: float | None = None
        self._outside = 0.0  # clean-up after an early stop: nobody's training, in no sum
        self._running = ""
        self._phases: list[Phase] = []
        self._epoch_phases = 0  # where the running epoch's begin
        self._epochs: list[Epoch] = []
        self._stages: tuple[int, ...] = (0,)
        self._residents: dict[int, tuple[Any, int]] = {}  # by stage: a batch and its samples
        self._uncounted: list[Lap] = []
        self._runs: list[Run] = []
        self._resident_laps: list[Lap] = []
        self._reported = 0.0
        self._steady = ""
        self._note: Callable[[], Notes] = Notes
        self._notes: Notes | None = None
        self._timed: list[Lap] = []  # of all training phases, to see whether the steady state held
        self._lost = 0.0
        self._resumed = ""
        self.table: list[Mapping[str, str | int | float]] = []
        """What the suite wants the row to hold beside laps: lines that all have the same columns."""
        self.missed = ""
        """Why a run that was trained to its end is `goal_missed`, or empty."""
        self.remarks: list[str] = []
        """What to know about the row, in words."""
        self.proved = False
        """Whether a step ran under `watch`."""
        self.watched_samples = 0
        """Samples of that step."""

    # Runs

    def runs(self, n: int) -> Iterator[int]:
        """Count whole runs inside this process, from 0 to n - 1; where a sample is enough, the first alone.

        They are one trial: its figures are those of the run with the median time (of two in the middle, the
        faster one).
        """
        for run in range(n):
            if run:
                self._runs.append(self._run())
                self._planned, self._epoch, self._epoch_phases = 0, -1, 0
                self._phases, self._epochs, self._uncounted, self._timed = [], [], [], []
                self._steady, self._stages, self._lost = "", (0,), 0.0
            yield run
            if self._sampling.epochs is not None:
                break

    def _run(self) -> "Run":
        self.end_epoch()
        steady = self._drift() or self._steady
        return Run(self._epochs, self._phases, self._uncounted, self._planned, steady, self._stages, self._lost)

    # Epochs

    def epochs(self, n: int, stages: Sequence[int] = (0,)) -> Iterator[int]:
        """Count epochs from 0 to n - 1, or those that the sample needs. A run calls it once.

        Args:
            n: epochs of the whole run.
            stages: epochs from which on the epochs differ from those before: larger images, say. A sample takes
                its epochs from the beginning of each stage, and the others of the stage are projected from those.
        """
        if self._planned:
            raise UserError("clock.epochs is called once in a run; count all epochs in one loop")
        self._planned, self._stages = n, tuple(sorted({0, *stages}))
        epoch: int | None = len(self._epochs)  # those before ran in an earlier process
        while epoch is not None and epoch < n:
            self.begin_epoch(epoch)
            try:
                yield epoch
            except GeneratorExit:  # the suite broke out of its loop: a goal was met, say
                if not self.enough:
                    self._planned = epoch + 1
                raise
            finally:
                self.end_epoch()
            epoch = self._following()

    def begin_epoch(self, epoch: int) -> None:
        """Start epoch number `epoch`; for training loops that are not ours to write (fastai's)."""
        self.end_epoch()
        self._epoch = epoch
        self._epoch_phases = len(self._phases)
        self._synchronize()
        self._outside = 0.0
        self._epoch_open = self._now()

    def end_epoch(self) -> None:
        """End the running epoch; a second call does nothing."""
        if self._epoch_open is None:
            return
        self._synchronize()
        seconds = self._now() - self._epoch_open - self._outside
        self._epochs.append(Epoch(self._epoch, seconds, tuple(self._phases[self._epoch_phases :])))
        self._epoch_open = None

    def plan_epochs(self, n: int) -> None:
        """Say how many epochs the whole run has, where `epochs` is not used."""
        self._planned = n

    @property
    def enough(self) -> bool:
        """Whether the epoch that runs, or has just ended, is the last one needed."""
        return self._following() is None

    def _following(self) -> int | None:
        """The epoch to run after this one; None where this is the last one needed."""
        after, limit = self._epoch + 1, self._sampling.epochs
        if limit is None or after >= self._planned:
            return after if after < self._planned else None
        start = stage_of(self._stages, max(0, self._epoch))
        end = min((stage for stage in self._stages if stage > start), default=self._planned)
        # Epochs may be so short that two of them show little.
        wanted = 0.0 if self._sampling.steps else self._sampling.train_seconds or 0.0
        timed = [lap.seconds for lap in self._timed if lap.epoch >= start]
        if after < end and (after - start < limit or (timed and sum(timed) < wanted)):
            return after
        return end if end < self._planned else None

    @property
    def complete(self) -> bool:
        """Whether every planned epoch ran to its end, so that the model is trained."""
        begun = len(self._epochs) + (self._epoch_open is not None)
        return begun >= self._planned and not any(phase.cut for phase in self._phases)

    # A run that a later process goes on with

    @property
    def elapsed(self) -> float:
        """Seconds of all epochs so far, earlier processes' included."""
        running = 0.0 if self._epoch_open is None else self._now() - self._epoch_open - self._outside
        return self._lost + sum(epoch.seconds for epoch in self._epochs) + running

    def state(self) -> dict[str, Any]:
        """What a later process needs to know of the epochs that are over; plain data."""
        return {"lost": self._lost, "resumed": self._resumed, "epochs": [asdict(epoch) for epoch in self._epochs]}

    def resume(self, state: Mapping[str, Any], elapsed: float) -> None:
        """Go on after the epochs of an earlier process, given its `state` and its last known `elapsed`.

        The time of an epoch that it began and did not end was spent all the same, and counts.
        """
        self._epochs = [epoch_from_json(epoch) for epoch in state.get("epochs", ())]
        self._phases = [phase for epoch in self._epochs for phase in epoch.phases]
        laps = [lap for phase in self._phases for lap in phase.laps]
        self._timed = [lap for lap in laps if lap.phase == "train" and lap.kind == "timed" and lap.samples]
        self._epoch = len(self._epochs) - 1
        self._lost = float(state.get("lost", 0.0))
        unfinished = max(0.0, elapsed - self.elapsed)
        self._lost += unfinished
        again = f"{state['resumed']}; " if state.get("resumed") else ""
        self._resumed = f"{again}at epoch {len(self._epochs)}, {unfinished:.1f} s of an unfinished one counted"
        self._steady = "resumed" if self._timed else ""

    # Steps

    def steps(
        self,
        loader: Iterable[Any],
        phase: str,
        samples: int | None = None,
        count: Callable[[Any], int] | None = None,
        *,
        counted: bool = True,
    ) -> Iterator[Any]:
        """Yield the loader's batches, timed; stops early once a sampled phase knows its rate.

        Args:
            loader: anything that can be iterated; its `len` gives the steps of an epoch.
            phase: `train`, `valid`, or a name of the suite's own.
            samples: samples in one whole epoch of this phase (default: steps x the first batch's). A loader
                without a `len` needs it, else nobody could tell how much a sampled run left out.
            count: samples in a batch (default: the first dimension of its first element).
            counted: False for what the rules leave out of the run's time, such as compiling, warming up or a
                validation between epochs: its laps are kept and enter no sum.
        """
        length = _length(loader)
        total_steps = length or 0
        if length is None and samples is None and self._sampling.epochs is not None:
            raise UserError(f'clock.steps(phase="{phase}"): the loader has no length; give samples=')
        if self._running:  # the time of one would count in both
            raise UserError(f'clock.steps(phase="{phase}") began inside the phase "{self._running}"; end that first')
        self._running = phase
        count = count or first_dimension
        stop = Stop(self._sampling, phase, first_epoch=max(0, self._epoch) in self._stages, settled=self._settled)
        laps: list[Lap] = []
        batches = iter(loader)
        most = self._sampling.most_laps
        least_steps = -(-total_steps // most) if most and total_steps else 1
        steps_per_lap, first_count, cut = 1, 0, False
        batch: Any = None
        self._synchronize()
        started = lap_started = self._now()
        if self._first_step is None:
            self._first_step = started
        steps = done = 0
        wait = 0.0
        ended_by_suite = True
        try:
            while True:
                asked = self._now()
                try:
                    batch = next(batches)
                except StopIteration:
                    wait += self._now() - asked
                    ended_by_suite = False
                    break
                wait += self._now() - asked
                size = count(batch)
                first_count = first_count or size
                if phase == "train":
                    self._keep(batch, size)
                yield batch
                steps, done = steps + 1, done + size
                if steps < steps_per_lap:
                    continue
                self._synchronize()
                ended = self._now()
                lap = Lap(phase, self._epoch, stop.kind, steps, done, ended - lap_started, wait, lap_started)
                laps.append(lap)
                stop.add(lap)
                if lap.seconds < self._sampling.lap_seconds or steps_per_lap < least_steps:
                    steps_per_lap = min(steps_per_lap * 2, total_steps or steps_per_lap * 2)
                lap_started, steps, done, wait = ended, 0, 0, 0.0
                self._tell(phase, laps, total_steps, stop.share(total_steps))
                if stop.reached:
                    cut, ended_by_suite = True, False
                    break
        finally:
            self._running = ""
            del batch
            if not cut and (steps or not laps or wait):
                self._synchronize()
                seconds = self._now() - lap_started
                if steps or not laps:
                    laps.append(Lap(phase, self._epoch, stop.kind, steps, done, seconds, wait, lap_started))
                else:  # the loader's end, after the last lap
                    last = laps[-1]
                    laps[-1] = replace(last, seconds=last.seconds + seconds, wait_seconds=last.wait_seconds + wait)
            if cut or ended_by_suite:
                closing = self._now()
                close = getattr(batches, "close", None)
                if close:
                    close()
                del batches
                self._outside += self._now() - closing
            seen = sum(lap.samples for lap in laps)
            # A loader that came to its end has shown how much there was.
            whole = samples if samples is not None else (total_steps * first_count if cut else seen)
            if cut and total_steps and sum(lap.steps for lap in laps) >= total_steps:
                cut = False  # stopped exactly at the end
            if phase == "train" and not self._steady:
                self._steady = stop.reason or f"short: over after {len(laps)} laps, before it could be flat"
            laps = _some_timed(laps)
            if counted:
                total = seen if ended_by_suite else max(seen, whole)
                self._phases.append(Phase(phase, self._epoch, tuple(laps), total, cut))
            else:
                self._uncounted += laps
                self._outside += sum(lap.seconds for lap in laps)
            if counted and phase == "train":
                self._timed += [lap for lap in laps if lap.kind == "timed" and lap.samples]

    def _keep(self, batch: Any, size: int) -> None:
        """The largest batch of each stage is the resident one."""
        stage = stage_of(self._stages, max(0, self._epoch))
        if stage not in self._residents or size >= self._residents[stage][1]:
            self._residents[stage] = (batch, size)

    def resident(self) -> Iterator[Any]:
        """Yield one batch that is already on the device, over and over, for after the training.

        The first step is untimed and runs inside `watch`; the laps that follow say how fast a step is
        without the pipeline. None of it enters any other figure. Where epochs have stages, one batch of each.
        """
        self.end_epoch()  # where a cancelled fit has not
        self._notes = self.notes  # these steps are no training
        for stage in sorted(self._residents):
            batch, size = self._residents.pop(stage)
            if not self.proved:
                with self._watch():
                    yield batch
                self.proved, self.watched_samples = True, size
            yield from self._resident_steps(stage, batch, size)

    def _resident_steps(self, stage: int, batch: Any, size: int) -> Iterator[Any]:
        wanted, steps_per_lap, spent = self._sampling.resident_laps, 1, 0.0
        laps: list[Lap] = []
        if not self._sampling.steps:
            yield batch  # warm-up
        while len(laps) < wanted or spent < self._sampling.resident_seconds:
            self._synchronize()
            started = self._now()
            for _ in range(steps_per_lap):
                yield batch
            self._synchronize()
            seconds = self._now() - started
            if seconds < self._sampling.lap_seconds:
                steps_per_lap *= 2  # too short to count
                continue
            spent += seconds
            laps.append(Lap("train", stage, "resident", steps_per_lap, steps_per_lap * size, seconds, 0.0, started))
        self._resident_laps += laps

    # Answers

    def stage_seconds(self) -> dict[int, float]:
        """Seconds of all epochs of each stage, by the epoch it begins with; projected where the run is sampled."""
        return stage_seconds(self._epochs, self._planned, self._stages)

    def note(self, notes: Callable[[], Notes]) -> None:
        """Ask `notes` once, when the training is over: reading a device's counters waits for the device."""
        self._note = notes

    @property
    def notes(self) -> Notes:
        """What was noted of the training, which is over by now."""
        if self._notes is None:
            self._notes = self._note()
        return self._notes

    def summary(self) -> dict[str, Any]:
        """The fields of a Measurement that the clock knows."""
        first = self._first_step if self._first_step is not None else self._now()
        run = median_run([*self._runs, self._run()])
        planned = run.planned or len(run.epochs)
        summary = summarise(run.epochs, run.once, self._resident_laps, planned, run.stages, run.lost_seconds)
        return {
            "setup_seconds": first - self._built,
            "steady": run.steady,
            "loss_scale": self.notes.loss_scale,
            "skipped_steps": self.notes.skipped_steps,
            "nonfinite_losses": self.notes.nonfinite_losses,
            "table": tuple(self.table),
            "reason": "; ".join(filter(None, [self.missed, *self.remarks])),
            "resumed": self._resumed,
            **summary,
            "laps": (*run.uncounted, *summary["laps"]),
        }

    def _drift(self) -> str:
        """Stages differ in pace; inside one, laps should not."""
        by_stage = [[lap for lap in self._timed if stage_of(self._stages, lap.epoch) == at] for at in self._stages]
        return next(filter(None, map(drift, by_stage)), "")

    def _tell(self, phase: str, laps: list[Lap], total_steps: int, share: float) -> None:
        if self._report is None:
            return
        now = self._now()
        if now - self._reported < 0.25:
            return
        self._reported = now
        epochs = min(self._planned or 1, self._sampling.epochs or self._planned or 1)
        lap = laps[-1]
        # Validation is the last tenth of an epoch, for all that a progress bar knows.
        part = 0.9 * share if phase == "train" else 0.9 + 0.1 * share
        if self._epoch < 0:  # what comes before them is no part of any epoch
            part = 0.0
        self._report(
            {
                "phase": phase,
                "epoch": self._epoch,
                "epochs": epochs,
                "fraction": min(1.0, (max(0, self._epoch) + part) / epochs),
                "rate": lap.samples / lap.seconds if lap.seconds > 0 else None,
            }
        )


@dataclass(frozen=True)
class Run:
    """What one whole run left behind."""

    epochs: list[Epoch]
    phases: list[Phase]
    uncounted: list[Lap]
    planned: int
    steady: str
    stages: tuple[int, ...]
    lost_seconds: float

    @property
    def once(self) -> list[Phase]:
        """Phases outside epochs."""
        in_epochs = {id(phase) for epoch in self.epochs for phase in epoch.phases}
        return [phase for phase in self.phases if id(phase) not in in_epochs]

    @property
    def seconds(self) -> float:
        """Wall time of all that counts."""
        planned = self.planned or len(self.epochs)
        return float(summarise(self.epochs, self.once, (), planned, self.stages, self.lost_seconds)["seconds"])


def median_run(runs: Sequence[Run]) -> Run:
    """The one with the median time; of two in the middle, the faster."""
    return sorted(runs, key=lambda run: run.seconds)[(len(runs) - 1) // 2]


def _some_timed(laps: list[Lap]) -> list[Lap]:
    """Where a phase ended before it was steady, all laps but the first count as timed."""
    if not laps or any(lap.kind == "timed" for lap in laps):
        return laps
    if len(laps) == 1:
        return [replace(laps[0], kind="timed")]
    return [laps[0], *(replace(lap, kind="timed") for lap in laps[1:])]


def _length(loader: Iterable[Any]) -> int | None:
    """Steps in one pass; None where the loader cannot tell (torch's over an IterableDataset raises)."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return None


def first_dimension(batch: Any) -> int:
    """Samples in a batch: the first dimension of the first thing in it that has a shape, else a length."""
    thing = batch
    while not (shape := getattr(thing, "shape", None)):
        inner: Any = None
        if isinstance(thing, Mapping | tuple | list) and thing:
            inner = next(iter(thing.values())) if isinstance(thing, Mapping) else thing[0]
        if isinstance(inner, str) or not hasattr(inner, "__len__") or getattr(inner, "shape", None) == ():
            return len(thing) if hasattr(thing, "__len__") else 1
        thing = inner
    return int(shape[0])
