"""Times a training run in laps, detects its steady state, and stops a sampled run early.

Waits for the device at the end of a lap, never inside one (as cifar10-fast's Timer does).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpubench.errors import UserError
from gpubench.training.clock.laps import Laps, first_dimension, length_of
from gpubench.training.clock.projection import Phase, epoch_from_json, stage_of
from gpubench.training.clock.resident import Resident, Watch
from gpubench.training.clock.runs import Run, median_run
from gpubench.training.clock.sampling import Sampling, StopRule
from gpubench.training.clock.timer import Peers, Timer

if TYPE_CHECKING:
    from gpubench.training.device import MemoryUse

REPORT_SECONDS = 0.25
"""Least time between two reports of progress."""


@dataclass(frozen=True)
class Notes:
    """Facts about the steps of a training, collected after it (see stepper.Stepper)."""

    loss_scale: float | None = None
    """Loss scale at the end; None if the loss was not scaled."""
    skipped_steps: int | None = None
    nonfinite_losses: int | None = None
    diverged: str = ""
    """Why the training diverged, or empty."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """Number of tensors of model and optimizer, by owner and dtype (see precision.check_weights)."""
    low_products: int = 0
    """Least number of 8-bit products that a step must have (see low_precision.products_of)."""


class Clock:
    """Times the epochs and steps of a suite, which loops over `epochs` and `steps`.

    Args:
        sampling: how much to measure.
        synchronize: waits until the device has finished its queue.
        now: returns monotonic seconds.
        report: called with the progress a few times per second.
        watch: returns the contexts of the untimed steps of a stage, which check operands and count work.
        settled: returns whether the card's clock and temperature are constant. Warm-up waits for that, within limits.
        peers: the processes that train together. After every lap they exchange steps, samples and times: the lap gets
            the sum of the samples, and the time of the slowest process. So all processes stop at the same step.
        memory: measures the device's memory; its methods are called between the parts of the training.
    """

    def __init__(
        self,
        sampling: Sampling,
        synchronize: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.perf_counter,
        report: Callable[[dict[str, Any]], None] | None = None,
        watch: Watch = lambda: [nullcontext()],
        settled: Callable[[], bool] | None = None,
        peers: Peers | None = None,
        memory: "MemoryUse | None" = None,
    ) -> None:
        self._sampling, self._settled = sampling, settled
        self._timer = Timer(synchronize, now, peers or Peers())
        self._report, self._reported = report, 0.0
        self._memory = memory
        self._resident = Resident(sampling, self._timer, watch, memory.watched if memory else lambda: None)
        self._built = now()
        self._first_step: float | None = None
        self._trained = False
        self._run = Run()
        self._ended: list[Run] = []
        self._epoch_open: float | None = None
        self._running = ""
        self._lap_steps: dict[str, int] = {}  # by phase: steps of a lap that was long enough in the previous epoch
        self._note: Callable[[], Notes] = Notes
        self._notes: Notes | None = None
        self._resumed = ""
        self.table: list[Mapping[str, str | int | float]] = []
        """Lines of the suite's table in the row; all have the same columns."""
        self.remarks: list[str] = []
        """Remarks for the row, as text."""

    def runs(self, n: int, event: Callable[[], Any] | None = None) -> Iterator[int]:
        """Yield the number of each training run in this process, from 0 to n - 1; only 0 unless the mode is full.

        All runs are one trial. Its results are those of the run with the median time (of two in the middle, the faster
        one).

        Args:
            n: number of runs.
            event: makes an event of the device (see `event_of`). With it, a full run waits for the device only at its
                beginning and end, times whole passes by events in the device's queue, and allows no `counted=False`.
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
                self._run = self._run.converted(self._timer.end_unbroken())

    def epochs(self, n: int, stages: Sequence[int] = (0,)) -> Iterator[int]:
        """Yield the number of each epoch from 0 to n - 1, or of those that the sample needs. Call it once per run.

        Args:
            n: number of epochs of the whole run.
            stages: epochs at which training changes, for example to larger images. A sample takes
                the first epochs of each stage, and projects the others of the stage from them.
        """
        if self._run.planned:
            raise UserError("clock.epochs is called once in a run; count all epochs in one loop")
        self._run.planned, self._run.stages = n, tuple(sorted({0, *stages}))
        epoch: int | None = len(self._run.epochs)  # earlier ones ran in an earlier process
        while epoch is not None and epoch < n:
            self.begin_epoch(epoch, n)
            try:
                yield epoch
            except GeneratorExit:  # the suite left its loop, for example because a goal was reached
                if not self.enough:
                    self._run.planned = epoch + 1
                self.end_epoch(agree=False)  # the suite may have failed: do not wait for other processes
                raise
            self.end_epoch()
            epoch = self._run.following(self._sampling)

    def begin_epoch(self, epoch: int, planned: int) -> None:
        """Start epoch number `epoch` of `planned`; for training loops of other libraries (fastai)."""
        self.end_epoch()
        self._run.planned = planned
        self._run.epoch = epoch
        self._run.epoch_phases = len(self._run.phases)
        self._timer.synchronize()
        self._timer.agree()
        self._timer.outside = 0.0
        self._epoch_open = self._timer.now()

    def end_epoch(self, *, agree: bool = True) -> None:
        """End the running epoch; a second call does nothing. Waits for the times of other processes if `agree`."""
        if self._epoch_open is None:
            return
        self._timer.synchronize()
        seconds = self._timer.now() - self._epoch_open - self._timer.outside
        if agree:
            seconds = max(numbers[0] for numbers in self._timer.agree([seconds]))
        self._run.close_epoch(seconds, self._epoch_open)
        self._epoch_open = None

    @property
    def enough(self) -> bool:
        """Whether the current epoch, or the one that has just ended, is the last one needed."""
        return self._run.following(self._sampling) is None

    @property
    def complete(self) -> bool:
        """Whether all planned epochs began and no phase was cut short; at the end: whether the model is trained."""
        begun = len(self._run.epochs) + (self._epoch_open is not None)
        return begun >= self._run.planned and not any(phase.cut for phase in self._run.phases)

    @property
    def elapsed(self) -> float:
        """Seconds of all epochs so far, including those of earlier processes."""
        running = 0.0 if self._epoch_open is None else self._timer.now() - self._epoch_open - self._timer.outside
        return self._run.lost_seconds + sum(epoch.seconds for epoch in self._run.epochs) + running

    def state(self) -> dict[str, Any]:
        """Return the finished epochs as plain data, for a later process."""
        return {
            "lost": self._run.lost_seconds,
            "resumed": self._resumed,
            "epochs": [asdict(epoch) for epoch in self._run.epochs],
        }

    def resume(self, state: Mapping[str, Any], elapsed: float) -> None:
        """Continue after an earlier process, given its `state` and its seconds, including an unfinished epoch."""
        self._run.restore([epoch_from_json(epoch) for epoch in state.get("epochs", ())], float(state.get("lost", 0.0)))
        unfinished = max(0.0, elapsed - self.elapsed)
        self._run.lost_seconds += unfinished
        again = f"{state['resumed']}; " if state.get("resumed") else ""
        self._resumed = f"{again}at epoch {len(self._run.epochs)}, {unfinished:.1f} s of an unfinished epoch counted"

    def steps(
        self,
        loader: Iterable[Any],
        phase: str,
        samples: int | None = None,
        count: Callable[[Any], int] | None = None,
        *,
        counted: bool = True,
    ) -> Iterator[Any]:
        """Yield the loader's batches and time them; stops early when a sampled phase has enough laps.

        Args:
            loader: any iterable; its `len` is the number of steps in a pass.
            phase: `train`, `valid`, or another name.
            samples: samples of a whole pass, in all processes (default: counted; if cut short, steps x samples of the
                first batch). Unless the mode is full, it is needed for a loader without `len`, to project the pass.
            count: returns the samples in a batch (default: the first dimension of its first element).
            counted: False for phases outside the run's time, such as compiling, warming up or a
                validation between epochs: their laps are stored, but not counted.
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
                waiting_since = now()
                try:
                    batch = next(batches)
                except StopIteration:
                    left = False
                    break
                finally:
                    laps.wait += now() - waiting_since
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
        """Return the steps of a pass over the loader, 0 if unknown; raises UserError if the phase cannot be timed."""
        length = length_of(loader)
        if length is None and samples is None and self._sampling.epochs is not None:
            raise UserError(f'clock.steps(phase="{phase}"): the loader has no length; give samples=')
        if self._running:  # time of the inner phase would count twice
            raise UserError(f'clock.steps(phase="{phase}") began inside the phase "{self._running}"; end that first')
        return length or 0

    def _begin_laps(self, phase: str, total_steps: int) -> Laps:
        first = max(0, self._run.epoch) in self._run.stages
        # On an accelerator, training has warmed the device for other phases; only their first lap is warm-up.
        warm = phase != "train" and bool(self._run.steady) and self._sampling.least_warmup_seconds > 0
        stop = StopRule(self._sampling, phase, first_epoch=first and not warm, settled=self._settled)
        self._timer.synchronize()
        self._timer.agree()
        started = self._timer.now()
        if self._first_step is None:
            self._first_step = started
            if self._report:
                self._report({"phase": phase, "fraction": 0.0, "rate": None})
        # In an unbroken run the host does not wait, so it cannot measure a rate: a lap is a whole pass.
        steps = (total_steps if self._timer.unbroken else 0) or self._lap_steps.get(phase, 1)
        return Laps(phase, self._run.epoch, stop, self._sampling, total_steps, started, steps)

    def _close_lap(self, laps: Laps, total_steps: int) -> bool:
        """End a lap; return whether the phase ends with it."""
        timer = self._timer
        timer.synchronize()
        ended = timer.now()
        lap = timer.agreed(laps.running(ended))
        if self._memory and lap.phase == "train" and not self._trained:
            self._trained = True
            self._memory.trained()
        now = ended if timer.peers.world == 1 else timer.now()
        laps.close(lap, now)
        if self._report and now - self._reported >= REPORT_SECONDS:
            self._reported = now
            # In an unbroken run the lap's seconds are the host's, which does not wait for the device.
            rate = lap.samples / lap.seconds if lap.seconds > 0 and not timer.unbroken else None
            fraction = self._run.done(self._sampling, lap.phase, laps.stop.share(total_steps))
            self._report({"phase": lap.phase, "fraction": fraction, "rate": rate})
        return laps.stop.reached

    def _end_laps(self, laps: Laps, left: bool) -> None:
        """Store what ran after the last whole lap."""
        world = self._timer.peers.world
        if laps.nothing_left and world == 1:
            return
        self._timer.synchronize()
        lap = laps.running(self._timer.now())
        # If the suite left its loop, it may have failed: do not wait for the other processes.
        laps.end(replace(lap, samples=lap.samples * world) if left else self._timer.agreed(lap))

    def _keep_phase(self, laps: Laps, phase: Phase, counted: bool) -> None:
        """Store a finished phase, and the length of its laps for the next phase of this name."""
        if phase.name == "train" and not self._run.steady:
            short = f"too short: ended after {len(laps.done)} laps, before step times were flat"
            self._run.steady, self._run.unsteady = laps.stop.reason or short, laps.stop.unsteady
        if self._sampling.long_laps and laps.done:
            self._lap_steps[phase.name] = laps.long_enough
        if counted:
            self._run.phases.append(phase)
        elif self._timer.unbroken:
            raise UserError(
                "clock.runs(n, event): counted=False is not possible, because all phases of these runs count"
            )
        else:
            self._timer.outside += phase.seconds
            self._run.uncounted += phase.laps

    def resident(self) -> Iterator[Any]:
        """Yield one batch of the training again and again; call this after the training.

        The first steps are untimed and run inside `watch`; the following laps measure the rate without the input
        pipeline, and do not count in the run's time. With stages, both happen for one batch of each stage.
        With several processes, the last steps run without communication, while `together` is false.
        """
        self.end_epoch()  # fastai does not end the epoch of a cancelled fit
        self._notes = self.notes  # before these steps, which are not training
        self._timer.synchronize()
        if self._memory:
            self._memory.resting()
        return self._resident.steps()

    @property
    def together(self) -> bool:
        """False while the steps of `resident` must not communicate between processes."""
        return self._resident.together

    @property
    def watched_samples(self) -> int:
        """Number of samples in the first step of `resident` that ran inside `watch`; 0 if there was none."""
        return next(iter(self._resident.watched.values()), 0)

    def per_sample(self) -> list[float]:
        """Return a factor for each stage: the sum of (work of its watched step x factor) is the work per sample."""
        stages, watched = self._run.by_start(), self._resident.watched
        if stages.keys() != watched.keys():
            return []  # a stage ran only in an earlier process
        samples = [stages[start].samples or 1 for start in watched]  # 0 if the phases are in no epoch
        return [count / sum(samples) / size for count, size in zip(samples, watched.values(), strict=True)]

    def step_seconds(self, phase: str) -> float:
        """Return the mean seconds of a step of the slowest process, over all timed laps of the phases of this name."""
        laps = [lap for ended in self._run.phases if ended.name == phase for lap in ended.timed]
        return sum(lap.seconds for lap in laps) / sum(lap.steps for lap in laps)

    def stage_seconds(self) -> dict[int, float]:
        """Return the seconds of all epochs of each stage, by its first epoch; projected if the run is sampled."""
        return {start: stage.seconds(None) for start, stage in self._run.by_start().items()}

    def note(self, notes: Callable[[], Notes]) -> None:
        """Set the function that returns the notes. It is called after the training, because it waits for the device."""
        self._note = notes

    @property
    def notes(self) -> Notes:
        """The notes of the training; read them only after its end."""
        if self._notes is None:
            self._notes = self._note()
        return self._notes

    def summary(self) -> dict[str, Any]:
        """Return the clock's fields of a Measurement."""
        if self._timer.unbroken:
            raise UserError("clock.runs(n, event): leave the loop only at its end, where the device's times are read")
        first = self._first_step if self._first_step is not None else self._timer.now()
        self.end_epoch()
        run = median_run([*self._ended, self._run])
        summary = run.summary(self._resident.laps)
        later_ratio = run.later_ratio if self._sampling.epochs and not summary["measured"] else 1.0
        trend = f"unsteady: later step times would differ by {later_ratio - 1:+.0%} if the sample's trend goes on"
        moving = run.drifted or trend * (later_ratio != 1)
        return {
            "setup_seconds": first - self._built,
            "steady": moving or run.steady,
            "unsteady": bool(moving) or run.unsteady,
            "later_ratio": later_ratio,
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
