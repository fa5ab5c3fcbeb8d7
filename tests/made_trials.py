"""Rows of trainings that never were: the clock's own code on a time that is data; pace, stages and noise are drawn."""

import random
from dataclasses import replace

from gpubench.hardware.environment import Device, Environment
from gpubench.hardware.state import CardState
from gpubench.runner.record import Setting, row_of
from gpubench.suite.precisions import FLOAT32, PRECISIONS
from gpubench.suite.trial import Case, Measurement, Trial
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for
from gpubench.training.clock.timer import Peers

CPU = Device("cpu", "cpu", "AMD EPYC", 25 * 10**9, "", "", "aaaa", {})
GPU = Device("cuda:0", "cuda", "NVIDIA H100 80GB HBM3", 85 * 10**9, "9.0", "550.54", "bbbb", {})
HOST = Environment(
    torch="2.15.0", torchvision="0.30.0", fastai="2.8.7", cuda="13.2", cudnn="92600", python="3.11.7",
    gpubench="0.2.0", commit="abc", cpu="AMD EPYC", cpu_count=16, os="Linux 6", container="none", load_average=0.25,
    host_reference_seconds=0.0712345,
)  # fmt: skip
ERRORS = {"fp32": 2.4e-7, "tf32": 3.1e-4, "fp16": 3.2e-4, "bf16": 3.8e-3}


class Loader:
    """A loader that takes `wait` seconds a batch."""

    def __init__(self, steps, pace, time, *, batch=8, last=8, has_length=True):
        self.steps, self.pace, self.time, self.batch, self.last = steps, pace, time, batch, last
        if has_length:
            self.__class__ = type("Sized", (Loader,), {"__len__": lambda self: self.steps})

    def __iter__(self):
        for step in range(self.steps):
            self.time[0] += self.pace / 10
            yield [0] * (self.last if step == self.steps - 1 else self.batch)


def summary_of(mode, rng, *, accelerator=False, **wishes):
    """What the clock says of a training with that draw; `wishes` go before it."""
    drawn = {
        "epochs": rng.choice((1, 2, 3, 7)), "steps": rng.choice((3, 20, 90, 400)), "step": 10 ** rng.uniform(-2.5, 0.3),
        "noise": rng.choice((0.0, 0.003, 0.05, 0.3)), "drift": rng.choice((0.0, 0.0, 0.001)),
        "first": rng.choice((1, 5)), "valid": rng.choice((0, 5, 40)), "last": rng.choice((8, 3)),
        "stages": rng.choice(((), (), (1,), (1, 2))), "uncounted": rng.choice((0, 0, 2)),
        "between": rng.choice((False, True)),
        "left_out": rng.choice((0, 0, 5)), "has_length": rng.random() < 0.8, "world": rng.choice((1, 1, 2)),
        "leaves": rng.random() < 0.1, "killed": rng.choice((0, 0, 1, 2)),
        "settled": rng.choice((None, lambda: rng.random() < 0.2)), "after": rng.choice((False, False, True)),
    } | wishes  # fmt: skip
    time, done = [0.0], 0

    def pass_over(clock, steps, phase, pace, **options):
        nonlocal done
        loader = Loader(steps, pace, time, last=drawn["last"], has_length=options.pop("has_length", True))
        for number, _ in enumerate(clock.steps(loader, phase, **options)):
            done += 1
            slow = drawn["first"] if number == 0 else 1
            time[0] += pace * slow * (1 + drawn["drift"] * done) * max(0.2, rng.gauss(1, drawn["noise"]))
            if drawn["leaves"] and number == steps // 2:
                break

    def gather(own):
        other = [*own]
        if len(own) == 4:
            other[2] = own[2] * 1.05
        return [own, other]

    peers = Peers(gather, ("rank 0", "rank 1")) if drawn["world"] == 2 else Peers()
    sampling = sampling_for(mode, accelerator=accelerator)

    def clock_of():
        return Clock(sampling, now=lambda: time[0], settled=drawn["settled"] if accelerator else None, peers=peers)

    clock = clock_of()
    time[0] += 1.234567
    if drawn["uncounted"]:
        pass_over(clock, drawn["uncounted"], "warmup", drawn["step"], counted=False)
    counted = drawn["steps"] * 8 - 8 + drawn["last"]
    samples = drawn["world"] * (counted + drawn["left_out"])
    known = samples if drawn["left_out"] or not drawn["has_length"] else None
    if mode == "full" and drawn["killed"] < drawn["epochs"] and drawn["killed"]:
        for epoch in clock.epochs(drawn["epochs"], drawn["stages"]):
            if epoch == drawn["killed"]:
                state, elapsed = clock.state(), clock.elapsed + 3
                break
            pass_over(clock, drawn["steps"], "train", drawn["step"], samples=known, has_length=drawn["has_length"])
        clock = clock_of()
        clock.resume(state, elapsed)
    for epoch in clock.epochs(drawn["epochs"], drawn["stages"]):
        pace = drawn["step"] * (2 if epoch in drawn["stages"] else 1)
        pass_over(clock, drawn["steps"], "train", pace, samples=known, has_length=drawn["has_length"])
        if drawn["valid"] and not drawn["after"]:
            last = epoch == drawn["epochs"] - 1
            pass_over(clock, drawn["valid"], "valid", pace / 2, counted=last or not drawn["between"])
        time[0] += 0.05
    if drawn["after"]:
        pass_over(clock, drawn["valid"], "valid", drawn["step"] / 2)
    for _ in clock.resident():
        time[0] += drawn["step"] * max(0.2, rng.gauss(1, drawn["noise"]))
    return clock.summary()


def made_row(mode, rng, *, accelerator=False, precision="fp32", **wishes):
    """The row of such a training, as the runner makes it; `wishes` are fields of the row, or go to the draw."""
    columns = {name: wishes.pop(name) for name in ("trial", "started", "session", "model") if name in wishes}
    summary = summary_of(mode, rng, accelerator=accelerator, **wishes)
    device = GPU if accelerator else CPU
    kind = PRECISIONS[precision]
    error = ERRORS[precision]
    resident = [lap for lap in summary["laps"] if lap.kind == "resident"]
    world = wishes.get("world", 2 if summary.get("rank_spread") is not None else 1)
    case = Case(
        suite="demo", suite_version=1, suite_digest="d1", suite_path="demo.py", model=columns.get("model", "small"),
        precision=precision, device=device.device, params={"epochs": summary["epochs"]}, batch_policy="fixed",
        batch_size=8, mode=mode, data="toy", processes=world,
    )  # fmt: skip
    step = resident[0].samples // resident[0].steps // world if resident else None
    measurement = Measurement(
        status="ok",
        threads=2,
        peak_memory_bytes=7 * 2**28,
        precision_error=error,
        precision_proof=(
            f"probe matmul {error:.1e}, convolution {error:.1e}; operands matmul {kind.autocast or FLOAT32} x9 on"
            f" {device.device}; weights model {kind.weights} x4"
        ),
        step_samples=step,
        flops_per_sample=1.5e6,
        bytes_per_sample=2.5e4,
        ops_per_step=77,
        startup_seconds=rng.uniform(1.4, 1.9),
        **summary,
    )
    setting = Setting(device, CardState(), HOST, columns.get("session", "s1"), projection_range=(0.9, 1.1))
    return row_of(
        Trial(case, columns.get("trial", 0), 42 + columns.get("trial", 0)),
        measurement,
        setting,
        started=columns.get("started", "2026-11-21T10:00:00+00:00"),
    )


def made_file(rng, *, mode="sampled", trials=6, **wishes):
    """The rows of a whole run of one case: trial after trial, each as long as it takes."""
    rows = [made_row(mode, rng, trial=trial, **wishes) for trial in range(trials)]
    began = 0.0
    for trial, row in enumerate(rows):
        minutes, seconds = divmod(int(began), 60)
        rows[trial] = replace(row, started=f"2026-11-21T{10 + minutes // 60:02}:{minutes % 60:02}:{seconds:02}+00:00")
        began += (row.seconds or 0.0) + row.startup_seconds + row.setup_seconds + 60
    return rows


USUAL = {
    "epochs": 2, "steps": 400, "step": 0.02, "noise": 0.05, "drift": 0.0, "first": 5, "valid": 40, "last": 8,
    "stages": (), "uncounted": 0, "between": False, "left_out": 0, "has_length": True, "world": 1, "leaves": False,
    "settled": None, "killed": 0, "after": False,
}  # fmt: skip
"""A training without peculiarities."""


def usual_file(seed=1, **wishes):
    """Six trials of one."""
    return made_file(random.Random(seed), **{**USUAL, **wishes})
