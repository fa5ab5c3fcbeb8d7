"""Times a training run in laps, finds its steady state, and stops a sampled run early. Pure Python.

The function that waits for the device is passed in and called at lap boundaries only (the idea of cifar10-fast's
Timer). So an accelerator's queue is never drained inside a lap.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from gpubench.errors import UserError
from gpubench.suite.trial import Lap
from gpubench.training.clock.laps import Laps
from gpubench.training.clock.peers import Peers, lap_of_all, numbers_of, unlikeness
from gpubench.training.clock.projection import epoch_from_json, stage_of, stage_seconds
from gpubench.training.clock.runs import Run, median_run
from gpubench.training.clock.sampling import Sampling, Stop


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


class Memory(Protocol):
    """Whoever watches the device's memory (see device.MemoryUse)."""

    def trained(self) -> None:
        """The first lap of training is over: until then libraries load and try algorithms."""

    def resting(self) -> None:
        """The steps on a resident batch begin, which are all alike."""


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
        self._sampling, self._synchronize, self._now = sampling, synchronize, now
        self._report, self._watch, self._settled = report, watch, settled
        self._peers = peers or Peers()
        self._memory = memory
        self._built = now()
        self._first_step: float | None = None
        self._trained = False
        self._run = Run()
        self._ended: list[Run] = []
        self._epoch_open: float | None = None
        self._outside = 0.0  # clean-up after an early stop: nobody's training, in no sum
        self._running = ""
        self._lap_steps: dict[str, int] = {}  # by phase: steps of a lap that was long enough in the epoch before
        self._residents: dict[int, tuple[Any, int]] = {}  # by stage: a batch and its samples
        self._resident_laps: list[Lap] = []
        self._waited = [(0.0, 0)] * self._peers.world  # seconds for the loader and steps, per rank
        self._alone: list[float] = []  # seconds of a step without communication, per rank
        self._reported = 0.0
        self._note: Callable[[], Notes] = Notes
        self._notes: Notes | None = None
        self._resumed = ""
        self.table: list[Mapping[str, str | int | float]] = []
        """What the suite wants the row to hold beside laps: lines that all have the same columns."""
        self.remarks: list[str] = []
        """What to know about the row, in words."""
        self.proved = False
        """Whether a step ran under `watch`."""
        self.watched_samples = 0
        """Samples of that step."""
        self.together = True
        """False while `resident` wants steps without any communication between processes."""

    # Runs

    def runs(self, n: int) -> Iterator[int]:
        """Count whole runs inside this process, from 0 to n - 1; where a sample is enough, the first alone.

        They are one trial: its figures are those of the run with the median time (of two in the middle, the
        faster one).
        """
        for run in range(n):
            if run:
                self.end_epoch()
                self._ended.append(self._run)
                self._run = Run()
            yield run
            if self._sampling.epochs is not None:
                break

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
            epoch = self._following()

    def begin_epoch(self, epoch: int) -> None:
        """Start epoch number `epoch`; for training loops that are not ours to write (fastai's)."""
        self.end_epoch()
        self._run.epoch = epoch
        self._run.epoch_phases = len(self._run.phases)
        self._synchronize()
        self._agree(())
        self._outside = 0.0
        self._epoch_open = self._now()

    def end_epoch(self) -> None:
        """End the running epoch; a second call does nothing."""
        self._close_epoch(self._agree)

    def _close_epoch(self, agree: Callable[[Sequence[float]], Sequence[Sequence[float]]]) -> None:
        if self._epoch_open is None:
            return
        self._synchronize()
        own = self._now() - self._epoch_open - self._outside
        seconds = max(each[0] for each in agree([own]))
        self._run.close_epoch(seconds)
        self._epoch_open = None

    def plan_epochs(self, n: int) -> None:
        """Say how many epochs the whole run has, where `epochs` is not used."""
        self._run.planned = n

    @property
    def enough(self) -> bool:
        """Whether the epoch that runs, or has just ended, is the last one needed."""
        return self._following() is None

    def _following(self) -> int | None:
        """The epoch to run after this one; None where this is the last one needed."""
        after, limit = self._run.epoch + 1, self._sampling.epochs
        if limit is None or after >= self._run.planned:
            return after if after < self._run.planned else None
        start = stage_of(self._run.stages, max(0, self._run.epoch))
        end = min((stage for stage in self._run.stages if stage > start), default=self._run.planned)
        # Epochs may be so short that two of them show little.
        wanted = 0.0 if self._sampling.steps else self._sampling.train_seconds or 0.0
        # The first has the start-up, and is in no rate once there are others.
        timed = [lap.seconds for lap in self._run.timed if lap.epoch > start]
        if after < end and (after - start < limit or (timed and sum(timed) < wanted)):
            return after
        return end if end < self._run.planned else None

    @property
    def complete(self) -> bool:
        """Whether every planned epoch ran to its end, so that the model is trained."""
        begun = len(self._run.epochs) + (self._epoch_open is not None)
        return begun >= self._run.planned and not any(phase.cut for phase in self._run.phases)

    # A run that a later process goes on with

    @property
    def elapsed(self) -> float:
        """Seconds of all epochs so far, earlier processes' included."""
        running = 0.0 if self._epoch_open is None else self._now() - self._epoch_open - self._outside
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
        length = _length(loader)
        total_steps = length or 0
        if length is None and samples is None and self._sampling.epochs is not None:
            raise UserError(f'clock.steps(phase="{phase}"): the loader has no length; give samples=')
        if self._running:  # the time of one would count in both
            raise UserError(f'clock.steps(phase="{phase}") began inside the phase "{self._running}"; end that first')
        self._running = phase
        count = count or first_dimension
        first = max(0, self._run.epoch) in self._run.stages
        # On an accelerator training has warmed the device for what follows; only its own first lap is none.
        warm = phase != "train" and bool(self._run.steady) and self._sampling.least_warmup_seconds > 0
        stop = Stop(self._sampling, phase, first_epoch=first and not warm, settled=self._settled)
        batches = iter(loader)
        batch: Any = None
        self._synchronize()
        self._agree(())
        started = self._now()
        if self._first_step is None:
            self._first_step = started
            if self._report:  # from here on the device is at work
                nothing: dict[str, Any] = {"epochs": 1, "fraction": 0.0, "rate": None}
                self._report({"phase": phase, "epoch": self._run.epoch, **nothing})
        laps = Laps(phase, self._run.epoch, stop, self._sampling, total_steps, started, self._lap_steps.get(phase, 1))
        cut, left = False, True
        try:
            while True:
                asked = self._now()
                try:
                    batch = next(batches)
                except StopIteration:
                    left = False
                    break
                finally:
                    laps.wait += self._now() - asked
                size = count(batch)
                if phase == "train":
                    self._keep(batch, size)
                yield batch
                laps.step(size)
                if not laps.due:
                    continue
                self._synchronize()
                ended = self._now()
                lap = self._agreed(laps.running(ended))
                if self._memory and phase == "train" and not self._trained:
                    self._trained = True
                    self._memory.trained()
                laps.close(lap, ended if self._peers.world == 1 else self._now())
                self._tell(lap, stop.share(total_steps))
                if stop.reached:
                    cut, left = True, False
                    break
        finally:
            self._running = ""
            del batch
            if not cut:
                self._end_laps(laps, left)
            if cut or left:
                closing = self._now()
                close = getattr(batches, "close", None)
                if close:
                    close()
                del batches
                self._outside += self._now() - closing
            if phase == "train" and not self._run.steady:
                self._run.steady = stop.reason or f"short: over after {len(laps.done)} laps, before it could be flat"
                self._run.unsteady = stop.unsteady
            if self._sampling.long_laps and laps.done:
                self._lap_steps[phase] = laps.long_enough
            ended_phase = laps.as_phase(samples, self._peers.world, cut=cut, left=left)
            if counted:
                self._run.phases.append(ended_phase)
            else:
                self._run.uncounted += ended_phase.laps
                self._outside += ended_phase.seconds

    def _end_laps(self, laps: Laps, left: bool) -> None:
        """Take in what ran after the last whole lap."""
        world = self._peers.world
        if laps.nothing_left and world == 1:
            return
        self._synchronize()
        lap = laps.running(self._now())
        # Where the suite left its loop, it may have failed: then the others will never be heard of.
        laps.end(replace(lap, samples=lap.samples * world) if left else self._agreed(lap))

    def _keep(self, batch: Any, size: int) -> None:
        """The largest batch of each stage is the resident one."""
        stage = stage_of(self._run.stages, max(0, self._run.epoch))
        if stage not in self._residents or size >= self._residents[stage][1]:
            self._residents[stage] = (batch, size)

    def resident(self) -> Iterator[Any]:
        """Yield one batch that is already on the device, over and over, for after the training.

        The first step is untimed and runs inside `watch`; the laps that follow say how fast a step is
        without the pipeline. None of it enters any other figure. Where epochs have stages, one batch of each.
        With several processes, last laps follow with `together` false: the same steps without communication.
        """
        self.end_epoch()  # where a cancelled fit has not
        self._notes = self.notes  # these steps are no training
        self._synchronize()
        if self._memory:
            self._memory.resting()
        for stage in sorted(self._residents):
            batch, size = self._residents.pop(stage)
            if not self.proved:
                with self._watch():
                    yield batch
                self.proved, self.watched_samples = True, size
            yield from self._resident_steps(stage, batch, size)
        if self._peers.world > 1 and self._resident_laps:  # the last stage is the heaviest
            last = [lap for lap in self._resident_laps if lap.epoch == stage]
            yield from self._steps_alone(batch, sum(lap.steps for lap in last))

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
            own = Lap("train", stage, "resident", steps_per_lap, steps_per_lap * size, seconds, 0.0, started)
            lap = self._agreed(own)
            if lap.seconds < self._sampling.lap_seconds:
                steps_per_lap *= 2  # too short to count
                continue
            spent += lap.seconds
            laps.append(lap)
        self._resident_laps += laps

    def _steps_alone(self, batch: Any, steps: int) -> Iterator[Any]:
        """One warm-up step and `steps` timed ones, each process for itself."""
        self.together = False
        yield batch
        self._synchronize()
        self._agree(())
        started = self._now()
        for _ in range(steps):
            yield batch
        self._synchronize()
        own = (self._now() - started) / steps
        self._alone = [each[0] for each in self._agree([own])]
        self.together = True

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
        first = self._first_step if self._first_step is not None else self._now()
        self.end_epoch()
        run = median_run([*self._ended, self._run])
        summary = run.summary(self._resident_laps)
        return {
            "setup_seconds": first - self._built,
            "steady": run.drifted or run.steady,
            "unsteady": bool(run.drifted) or run.unsteady,
            "loss_scale": self.notes.loss_scale,
            "skipped_steps": self.notes.skipped_steps,
            "nonfinite_losses": self.notes.nonfinite_losses,
            "table": tuple(self.table),
            **self._between_processes(),
            "reason": "; ".join(self.remarks),
            "resumed": self._resumed,
            **summary,
            "laps": (*run.uncounted, *summary["laps"]),
        }

    # Several processes

    def _agree(self, own: Sequence[float]) -> Sequence[Sequence[float]]:
        """The numbers of all processes. Waiting for them is not counted as training; a single process does not wait."""
        if self._peers.world == 1:
            return [own]
        asked = self._now()
        every = self._peers.gather(own)
        self._outside += self._now() - asked
        return every

    def _agreed(self, own: Lap) -> Lap:
        """The lap as all processes see it."""
        if self._peers.world == 1:
            return own
        every = self._agree(numbers_of(own))
        if own.kind == "timed" and own.phase == "train":
            self._waited = [
                (waited + lap[3], steps + own.steps) for (waited, steps), lap in zip(self._waited, every, strict=True)
            ]
        return lap_of_all(own, every)

    def _between_processes(self) -> dict[str, Any]:
        """How much the processes differ, and what their communication costs."""
        if not self._alone:
            return {}
        own = [
            alone + (waited / steps if steps else 0.0)
            for alone, (waited, steps) in zip(self._alone, self._waited, strict=True)
        ]
        last = [lap for lap in self._resident_laps if lap.epoch == self._resident_laps[-1].epoch]
        steps, seconds = sum(lap.steps for lap in last), sum(lap.seconds for lap in last)
        return {
            **unlikeness(self._peers.names, own),
            "communication_share": 1 - max(self._alone) * steps / seconds if seconds > 0 else None,
        }

    def _tell(self, lap: Lap, share: float) -> None:
        """Report progress after a lap of a phase of which such a share is done."""
        if self._report is None:
            return
        now = self._now()
        if now - self._reported < 0.25:
            return
        self._reported = now
        epochs = min(self._run.planned or 1, self._sampling.epochs or self._run.planned or 1)
        # Validation is the last tenth of an epoch, for all that a progress bar knows.
        part = 0.9 * share if lap.phase == "train" else 0.9 + 0.1 * share
        if self._run.epoch < 0:  # what comes before them is no part of any epoch
            part = 0.0
        self._report(
            {
                "phase": lap.phase,
                "epoch": self._run.epoch,
                "epochs": epochs,
                "fraction": min(1.0, (max(0, self._run.epoch) + part) / epochs),
                "rate": lap.samples / lap.seconds if lap.seconds > 0 else None,
            }
        )


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
