"""Times a training run in laps, finds its steady state, and stops a sampled run early. Pure Python.

The function that waits for the device is passed in and called at lap boundaries only (the idea of cifar10-fast's
Timer). So an accelerator's queue is never drained inside a lap.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpubench.errors import UserError
from gpubench.training.clock.laps import Laps
from gpubench.training.clock.loader import first_dimension, length_of
from gpubench.training.clock.marks import Event
from gpubench.training.clock.peers import Peers
from gpubench.training.clock.projection import Phase, epoch_from_json, stage_of, stage_seconds
from gpubench.training.clock.reporter import Memory, Reporter
from gpubench.training.clock.resident import Resident
from gpubench.training.clock.runs import Run, median_run
from gpubench.training.clock.sampling import Sampling, Stop
from gpubench.training.clock.timer import Timer


@dataclass(frozen=True)
class Notes:
    """What the steps of a training say of themselves once it is over (see stepper.Stepper)."""

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
        peers: the processes that train together. At every lap boundary they agree on the lap: samples of
            all of them over the time of the slowest. So all decide alike, and stop at the same step.
        memory: told of two moments of the training.
    """

    def __init__(
        self,
        sampling: Sampling,
        synchronize: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.perf_counter,
        report: Callable[[dict[str, Any]], None] | None = None,
        watch: Callable[[], AbstractContextManager[Any]] = nullcontext,
        settled: Callable[[], bool] | None = None,
        peers: Peers | None = None,
        memory: Memory | None = None,
    ) -> None:
        self._sampling, self._settled = sampling, settled
        self._timer = Timer(synchronize, now, peers)
        self._reporter = Reporter(report, sampling, now)
        self._resident = Resident(sampling, self._timer, watch)
        self._memory = memory
        self._built = now()
        self._first_step: float | None = None
        self._trained = False
        self._run = Run()
        self._ended: list[Run] = []
        self._epoch_open: float | None = None
        self._running = ""
        self._lap_steps: dict[str, int] = {}  # by phase: steps of a lap that was long enough in the epoch before
        self._note: Callable[[], Notes] = Notes
        self._notes: Notes | None = None
        self._resumed = ""
        self.table: list[Mapping[str, str | int | float]] = []
        """What the suite wants the row to hold beside laps: lines that all have the same columns."""
        self.remarks: list[str] = []
        """What to know about the row, in words."""

    # Runs

    def runs(self, n: int, event: Callable[[], Event] | None = None) -> Iterator[int]:
        """Count whole runs inside this process, from 0 to n - 1; where a sample is enough, the first alone.

        They are one trial: its figures are those of the run with the median time (of two in the middle, the
        faster one).

        Args:
            n: runs.
            event: makes an event of the device. With it the clock of a full run waits for the device at the run's
                beginning and end alone, and times whole passes by events in its queue. All phases of it count.
        """
        for run in range(n if self._sampling.epochs is None else 1):
            if run:
                self._ended.append(self._run)
                self._run = Run()
            if event and self._sampling.epochs is None:
                self._timer.begin_unbroken(event)
            yield run
            self.end_epoch()
            if self._timer.unbroken:
                self._run = self._run.at(self._timer.end_unbroken())

    # Epochs

    def epochs(self, n: int, stages: Sequence[int] = (0,)) -> Iterator[int]:
        """Count epochs from 0 to n - 1, or those that the sample needs. A run calls it once.

        Args:
            n: epochs of the whole run.
            stages: epochs from which on the epochs differ from those before: larger images, say. A sample takes
                its epochs from the beginning of each stage, and the others of the stage are projected from those.
        """
        if self._run.planned:
            raise UserError("clock.epochs is called once in a run; count all epochs in one loop")
        self._run.planned, self._run.stages = n, tuple(sorted({0, *stages}))
        epoch: int | None = len(self._run.epochs)  # those before ran in an earlier process
        while epoch is not None and epoch < n:
            self.begin_epoch(epoch)
            try:
                yield epoch
            except GeneratorExit:  # the suite broke out of its loop: a goal was met, say
                if not self.enough:
                    self._run.planned = epoch + 1
                self._close_epoch(lambda own: [own])  # or it failed, and the others will never be heard of
                raise
            self.end_epoch()
            epoch = self._run.following(self._sampling)

    def begin_epoch(self, epoch: int) -> None:
        """Start epoch number `epoch`; for training loops that are not ours to write (fastai's)."""
        self.end_epoch()
        self._run.epoch = epoch
        self._run.epoch_phases = len(self._run.phases)
        self._timer.synchronize()
        self._timer.agree()
        self._timer.outside = 0.0
        self._epoch_open = self._timer.now()

    def end_epoch(self) -> None:
        """End the running epoch; a second call does nothing."""
        self._close_epoch(self._timer.agree)

    def _close_epoch(self, agree: Callable[[Sequence[float]], Sequence[Sequence[float]]]) -> None:
        if self._epoch_open is None:
            return
        self._timer.synchronize()
        own = self._timer.now() - self._epoch_open - self._timer.outside
        seconds = max(each[0] for each in agree([own]))
        self._run.close_epoch(seconds, self._epoch_open)
        self._epoch_open = None

    def plan_epochs(self, n: int) -> None:
        """Say how many epochs the whole run has, where `epochs` is not used."""
        self._run.planned = n

    @property
    def enough(self) -> bool:
        """Whether the epoch that runs, or has just ended, is the last one needed."""
        return self._run.following(self._sampling) is None

    @property
    def complete(self) -> bool:
        """Whether every planned epoch ran to its end, so that the model is trained."""
        begun = len(self._run.epochs) + (self._epoch_open is not None)
        return begun >= self._run.planned and not any(phase.cut for phase in self._run.phases)

    # A run that a later process goes on with

    @property
    def elapsed(self) -> float:
        """Seconds of all epochs so far, earlier processes' included."""
        running = 0.0 if self._epoch_open is None else self._timer.now() - self._epoch_open - self._timer.outside
        return self._run.lost_seconds + sum(epoch.seconds for epoch in self._run.epochs) + running

    def state(self) -> dict[str, Any]:
        """What a later process needs to know of the epochs that are over; plain data."""
        return {
            "lost": self._run.lost_seconds,
            "resumed": self._resumed,
            "epochs": [asdict(epoch) for epoch in self._run.epochs],
        }

    def resume(self, state: Mapping[str, Any], elapsed: float) -> None:
        """Go on after the epochs of an earlier process, given its `state` and its last known `elapsed`.

        The time of an epoch that it began and did not end was spent all the same, and counts.
        """
        self._run.restore([epoch_from_json(epoch) for epoch in state.get("epochs", ())], float(state.get("lost", 0.0)))
        unfinished = max(0.0, elapsed - self.elapsed)
        self._run.lost_seconds += unfinished
        again = f"{state['resumed']}; " if state.get("resumed") else ""
        self._resumed = f"{again}at epoch {len(self._run.epochs)}, {unfinished:.1f} s of an unfinished one counted"

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
        total_steps = self._steps_of(loader, phase, samples)
        self._running = phase
        count, now = count or first_dimension, self._timer.now
        keep = self._resident.keep if phase == "train" else None
        stage = stage_of(self._run.stages, max(0, self._run.epoch))
        batches = iter(loader)
        batch: Any = None
        laps = self._begin_laps(phase, total_steps)
        cut, left = False, True
        try:
            while True:
                asked = now()
                try:
                    batch = next(batches)
                except StopIteration:
                    left = False
                    break
                finally:
                    laps.wait += now() - asked
                size = count(batch)
                if keep:
                    keep(stage, batch, size)
                yield batch
                laps.step(size)
                if laps.due and self._close_lap(laps, total_steps):
                    cut, left = True, False
                    break
        finally:
            self._running = ""
            del batch
            if not cut:
                self._end_laps(laps, left)
            if cut or left:
                closing = now()
                if close := getattr(batches, "close", None):
                    close()
                del batches
                self._timer.outside += now() - closing
            self._keep_phase(laps, laps.as_phase(samples, self._timer.peers.world, cut=cut, left=left), counted)

    def _steps_of(self, loader: Iterable[Any], phase: str, samples: int | None) -> int:
        """Steps of a pass over the loader, 0 where nobody knows; raises UserError where the phase cannot be timed."""
        length = length_of(loader)
        if length is None and samples is None and self._sampling.epochs is not None:
            raise UserError(f'clock.steps(phase="{phase}"): the loader has no length; give samples=')
        if self._running:  # the time of one would count in both
            raise UserError(f'clock.steps(phase="{phase}") began inside the phase "{self._running}"; end that first')
        return length or 0

    def _begin_laps(self, phase: str, total_steps: int) -> Laps:
        """The first lap of a phase begins."""
        first = max(0, self._run.epoch) in self._run.stages
        # On an accelerator training has warmed the device for what follows; only its own first lap is none.
        warm = phase != "train" and bool(self._run.steady) and self._sampling.least_warmup_seconds > 0
        stop = Stop(self._sampling, phase, first_epoch=first and not warm, settled=self._settled)
        self._timer.synchronize()
        self._timer.agree()
        started = self._timer.now()
        if self._first_step is None:
            self._first_step = started
            self._reporter.begun(phase, self._run.epoch)
        # A host that waits for nobody knows no pace: a lap is a whole pass there.
        steps = (total_steps if self._timer.unbroken else 0) or self._lap_steps.get(phase, 1)
        return Laps(phase, self._run.epoch, stop, self._sampling, total_steps, started, steps)

    def _close_lap(self, laps: Laps, total_steps: int) -> bool:
        """A lap has its steps; returns whether the phase is over with it."""
        timer = self._timer
        timer.synchronize()
        ended = timer.now()
        lap = timer.agreed(laps.running(ended))
        if self._memory and lap.phase == "train" and not self._trained:
            self._trained = True
            self._memory.trained()
        laps.close(lap, ended if timer.peers.world == 1 else timer.now())
        self._reporter.tell(lap, laps.stop.share(total_steps), self._run, paced=not timer.unbroken)
        return laps.stop.reached

    def _end_laps(self, laps: Laps, left: bool) -> None:
        """Take in what ran after the last whole lap."""
        world = self._timer.peers.world
        if laps.nothing_left and world == 1:
            return
        self._timer.synchronize()
        lap = laps.running(self._timer.now())
        # Where the suite left its loop, it may have failed: then the others will never be heard of.
        laps.end(replace(lap, samples=lap.samples * world) if left else self._timer.agreed(lap))

    def _keep_phase(self, laps: Laps, phase: Phase, counted: bool) -> None:
        """A phase is over: take in its laps, and what they say of the next phase of this name."""
        if phase.name == "train" and not self._run.steady:
            short = f"short: over after {len(laps.done)} laps, before it could be flat"
            self._run.steady, self._run.unsteady = laps.stop.reason or short, laps.stop.unsteady
        if self._sampling.long_laps and laps.done:
            self._lap_steps[phase.name] = laps.long_enough
        if counted:
            self._run.phases.append(phase)
        else:
            self._timer.leave_out(phase.seconds)
            self._run.uncounted += phase.laps

    def resident(self) -> Iterator[Any]:
        """Yield one batch that is already on the device, over and over, for after the training.

        The first step is untimed and runs inside `watch`; the laps that follow say how fast a step is
        without the pipeline. None of it enters any other figure. Where epochs have stages, one batch of each.
        With several processes, last laps follow with `together` false: the same steps without communication.
        """
        self.end_epoch()  # where a cancelled fit has not
        self._notes = self.notes  # these steps are no training
        self._timer.synchronize()
        if self._memory:
            self._memory.resting()
        return self._resident.steps()

    @property
    def together(self) -> bool:
        """False while `resident` wants steps without any communication between processes."""
        return self._resident.together

    @property
    def proved(self) -> bool:
        """Whether a step of `resident` ran under `watch`."""
        return self._resident.proved

    @property
    def watched_samples(self) -> int:
        """Samples of that step."""
        return self._resident.watched_samples

    @watched_samples.setter
    def watched_samples(self, samples: int) -> None:
        self._resident.watched_samples = samples

    def step_seconds(self, phase: str) -> float:
        """Seconds of a step in the timed laps of the phases of this name, as all processes see them."""
        laps = [lap for each in self._run.phases if each.name == phase for lap in each.laps if lap.kind == "timed"]
        return sum(lap.seconds for lap in laps) / sum(lap.steps for lap in laps)

    # Answers

    def stage_seconds(self) -> dict[int, float]:
        """Seconds of all epochs of each stage, by the epoch it begins with; projected where the run is sampled."""
        return stage_seconds(self._run.epochs, self._run.planned, self._run.stages)

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
        self._timer.check_ended()
        first = self._first_step if self._first_step is not None else self._timer.now()
        self.end_epoch()
        run = median_run([*self._ended, self._run])
        summary = run.summary(self._resident.laps)
        return {
            "setup_seconds": first - self._built,
            "steady": run.drifted or run.steady,
            "unsteady": bool(run.drifted) or run.unsteady,
            "loss_scale": self.notes.loss_scale,
            "skipped_steps": self.notes.skipped_steps,
            "nonfinite_losses": self.notes.nonfinite_losses,
            "table": tuple(self.table),
            **self._resident.between_processes(),
            "reason": "; ".join(self.remarks),
            "resumed": self._resumed,
            **summary,
            "laps": (*run.uncounted, *summary["laps"]),
        }
