"""The loop over epochs and phases, its checkpoints, the row's table and TensorBoard events."""

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpubench import Blueprint, Clock, Trial, UserError
from gpubench.data.schedules import Phase, Schedule, schedule_of
from gpubench.training import weighted_mean

from .data import Source
from .network import Network, Score, State, evaluate, network_of, no_algorithm_search

Line = dict[str, Any]
"""A line of the row's table: an epoch, or a phase."""
CLASSES = 1000
"""Number of ImageNet's classes, for the blueprint. A run has the classes of its folder of images."""
SEARCHED = ("max", "fastest")
"""Batch policies that search for a batch. Only a step of the whole batch shows whether that batch fits."""


class Checkpoint:
    """Model and clock after each epoch, and the seconds that the run has taken so far."""

    def __init__(self, trial: Trial) -> None:
        case = trial.case
        params = json.dumps(dict(case.params), sort_keys=True)
        alike = (case.suite_digest, case.model, case.precision, case.device, case.processes, trial.seed)
        name = hashlib.sha256(repr((*alike, case.batch_size, params, case.data)).encode()).hexdigest()[:16]
        self.kept, self.folder = bool(trial.checkpoint_dir), Path(trial.checkpoint_dir)
        self.file, self.beat = self.folder / f"{name}.pt", self.folder / f"{name}.json"
        self.part = self.folder / f"{name}.part"  # both files are first written here; the next run overwrites this one
        self.first, self.written, self.trouble = 0, 0.0, False
        self.processes, self.leads = case.processes, trial.rank == 0

    def resume(self, net: Network, clock: Clock, source: Source) -> list[Line]:
        """Restore the checkpoint of an earlier process, if there is one; return its lines of the table."""
        if not self.kept:
            return []
        left = [self.read() if self.leads else None]
        if self.processes > 1:
            dist.broadcast_object_list(left, src=0)  # other machines have no file
        if left[0] is None:
            return []
        elapsed, state = left[0]
        if state:
            net.restore(state["net"])
            if self.leads:
                source.restore(state["source"])
        clock.resume(state.get("clock", {}), elapsed)
        self.first = int(state.get("epoch", 0))
        return list(state.get("lines", []))

    def read(self) -> tuple[float, State] | None:
        """Return the seconds that the run has taken, and its last checkpoint (empty if none); None: no earlier run."""
        if not self.beat.is_file():
            return None
        try:
            elapsed = float(json.loads(self.beat.read_text(encoding="utf-8"))["elapsed"])
            if not self.file.is_file():
                return elapsed, {}
            return elapsed, torch.load(self.file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises many
            raise UserError(
                f"{self.folder}: the checkpoint there cannot be read ({type(error).__name__}); remove it to start anew"
            ) from None

    def save(self, epoch: int, net: Network, clock: Clock, source: Source, lines: Sequence[Line]) -> None:
        """Save everything before `epoch` begins; a checkpoint is replaced only by a complete one."""
        if not self.kept or not self.leads or epoch <= self.first:
            return
        state = {"epoch": epoch, "net": net.state(), "source": source.noted, "clock": clock.state()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            torch.save({**state, "lines": [dict(line) for line in lines]}, self.part)
            self.part.replace(self.file)
        except (OSError, RuntimeError) as error:  # a full disk raises either; it must not end the training
            with suppress(OSError):
                self.part.unlink(missing_ok=True)
            if not self.trouble:
                clock.remarks.append(f"no checkpoint could be saved ({str(error).partition(chr(10))[0]})")
            self.trouble = True

    def heartbeat(self, clock: Clock) -> None:
        """Write about once a second how long the run has taken: a killed process cannot write that at its end."""
        now = time.monotonic()
        if not self.kept or not self.leads or self.trouble or now - self.written < 1.0:
            return
        self.written = now
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.part.write_text(json.dumps({"elapsed": clock.elapsed}), encoding="utf-8")
            self.part.replace(self.beat)

    def remove(self) -> None:
        """Remove the files: the run is complete."""
        if self.kept and self.leads:
            for file in (self.file, self.beat, self.part):
                with suppress(OSError):
                    file.unlink(missing_ok=True)
            with suppress(OSError):
                self.folder.rmdir()  # fails if other runs have files in it


def line(epoch: int, hours: float, score: Score, crop: str, phase: Phase, loss: float) -> Line:
    """Return the line of an epoch in the row's table."""
    return {
        "epoch": epoch + 1,
        "hours": hours,
        "top1": score.top1,
        "top5": score.top5,
        "crop": crop,
        "size": phase.size,
        "train_loss": loss,
        "valid_loss": score.loss,
    }


def phase_lines(schedule: Schedule, clock: Clock, trial: Trial) -> list[Line]:
    """Return a sampled run's table: one line per phase, with the projected hours of all its epochs."""
    seconds = clock.stage_seconds()
    return [
        {
            "epochs": f"{phase.first}-{phase.end}",
            "size": phase.size,
            "batch": schedule.batch(phase, trial.batch_size),
            "hours": seconds[phase.first] / 3600,
        }
        for phase in schedule.phases
        if phase.first in seconds
    ]


def rate(schedule: Schedule, epoch: float, images: int, highest: float) -> float:
    """Return the learning rate of a step of `images` images; `highest`, if not 0, replaces the schedule's peak."""
    if highest and schedule.peak:
        return highest * schedule.lr(epoch, schedule.lr_batch) / schedule.peak
    return schedule.lr(epoch, images)


def first_reached(lines: Sequence[Line], trial: Trial) -> Line | None:
    """Return the line of the first epoch that reached the goal; None if none did. Later epochs need not reach it.

    Sampled runs and runs on made-up images have no goal.
    """
    goal = trial.params.goal
    if not goal or not trial.teaches:
        return None
    return next((epoch_line for epoch_line in lines if epoch_line["top5"] >= goal), None)


class Events:
    """TensorBoard events with imagenet18's tags; without --tensorboard it writes nothing."""

    def __init__(self, trial: Trial) -> None:
        self.writer: Any = None
        if not trial.tensorboard_dir or trial.rank > 0:
            return
        from torch.utils.tensorboard import SummaryWriter

        case = trial.case
        folder = Path(trial.tensorboard_dir) / f"{case.suite}-{case.model}-{case.precision}-{trial.seed}"
        self.writer = SummaryWriter(log_dir=str(folder))
        self.writer.add_scalar("first", 0.0, 0)

    def write(self, epoch: Line, *, seconds: float, samples: int) -> None:
        """Write an epoch that ended after `samples` training images and `seconds` of validation."""
        if self.writer is None:
            return
        for tag, value in {
            "sizes/image": epoch["size"],
            "losses/train": epoch["train_loss"],
            "losses/test_1": 100 * epoch["top1"],
            "losses/test_5": 100 * epoch["top5"],
            "times/eval_sec": seconds,
        }.items():
            self.writer.add_scalar(tag, value, samples)
        self.writer.flush()


def blueprint(trial: Trial) -> Blueprint:
    """Return the network on images of the first phase, and what the phases and ramps change."""
    schedule = schedule_of(trial.params.phases, trial.params.epochs)

    def phase(epoch: float) -> Phase:
        return schedule.phase(min(int(epoch), schedule.epochs - 1))

    def images(epoch: float) -> int:
        batch = schedule.batch(phase(epoch), trial.batch_size)
        return int(trial.params.global_batch) or batch * trial.case.processes

    size = schedule.phases[0].size
    return Blueprint(
        network=network_of(trial.case.model, CLASSES),
        inputs=(torch.zeros(2, 3, size, size),),
        epochs=schedule.epochs,
        schedule={
            "learning rate": lambda epoch: rate(schedule, epoch, images(epoch), trial.params.lr),
            "image size": lambda epoch: phase(epoch).size,
            "images in a step": images,
        },
        note=f"The network is drawn for {size} pixels",
    )


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Train by the schedule; return top-1 (`accuracy`) and `top5` as fractions, and the loss, in validation."""
    params = trial.params
    schedule = schedule_of(params.phases, params.epochs)
    source = Source(trial)
    net = Network(trial, clock, source.classes)
    events = Events(trial)
    checkpoint = Checkpoint(trial)
    lines = checkpoint.resume(net, clock, source)

    score = Score()
    for epoch in clock.epochs(schedule.epochs, stages=[phase.first for phase in schedule.phases]):
        checkpoint.save(epoch, net, clock, source, lines)
        phase = schedule.phase(epoch)
        batch_size = schedule.batch(phase, trial.batch_size)
        training = source.train(epoch, phase, batch_size)
        samples = training.batches.samples
        if trial.case.batch_policy in SEARCHED and training.images_per_step < batch_size * trial.case.processes:
            few = f"a step of all processes has {training.images_per_step} images (all that there are, or global_batch)"
            raise UserError(f"batch {batch_size} is too large: {few}")
        net.model.train()
        losses = []
        steps = clock.steps(training, "train", samples, count=lambda parts: sum(len(labels) for _, labels in parts))
        for number, parts in enumerate(steps):
            net.set_lr(rate(schedule, epoch + number / len(training), training.images_per_step, params.lr))
            losses.append(net.step(parts, training.weights[number]))
            checkpoint.heartbeat(clock)
        began = time.perf_counter()
        validation = source.valid(phase, batch_size, rectangles=phase.rect_val)
        with no_algorithm_search() if phase.rect_val else nullcontext():
            score = evaluate(net, clock.steps(validation, phase="valid", samples=validation.samples))
        source.gather()
        source.refuse_bad()
        crop = "rectangle" if phase.rect_val else "square"
        (loss,) = weighted_mean([float(torch.stack(losses).mean())], len(losses), trial)
        lines.append(line(epoch, clock.elapsed / 3600, score, crop, phase, loss))
        events.write(lines[-1], seconds=time.perf_counter() - began, samples=samples * (epoch + 1))

    reached = first_reached(lines, trial)
    if reached:
        clock.remarks.append(f"top-5 {trial.params.goal:g} after epoch {reached['epoch']}, {reached['hours']:.4f} h")
    if clock.complete:
        clock.table += lines
        if phase.rect_val:
            square = evaluate(net, iter(source.valid(phase, batch_size, rectangles=False)))
            clock.table.append(line(epoch, clock.elapsed / 3600, square, "square", phase, loss))
    else:
        clock.table += phase_lines(schedule, clock, trial)
    clock.remarks += source.remarks()
    net.model.train()
    for parts in clock.resident():
        net.step(parts, [1 / len(parts)] * len(parts))
    if not clock.complete:
        return {}
    checkpoint.remove()
    quality = {"accuracy": score.top1, "top5": score.top5, "loss": score.loss}
    return {**quality, "success_rate": 1.0} if reached else quality
