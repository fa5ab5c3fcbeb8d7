"""The suite of `gpubench selftest`: a small network, and variants of it that test gpubench's measurements."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from gpubench import Param, Suite

if TYPE_CHECKING:
    from gpubench import Clock, Trial

PADDED_EVERY = 4
"""The model `padded` repeats every fourth step, so it takes 25% more time."""
PAIRS = 14
BLOCK_SECONDS = 0.3
EMPTY_STEPS = 20_000


def repeated(batches: list[Any], steps: int) -> list[Any]:
    """Return `steps` batches: the few in `batches`, repeated in turn."""
    return (batches * (steps // len(batches) + 1))[:steps]


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Train `a` or `b` (the same network), `padded` (slower by a known share), `liar` (always in fp32) or `clock`.

    `clock` also times gpubench's clock, and returns these times as quality.
    """
    import torch

    from gpubench.training import Stepper, mode_of, synchronize

    device = torch.device(trial.case.device)
    width, model = trial.params.width, trial.case.model
    mode = mode_of("fp32" if model == "liar" else trial.case.precision, trial.case.device)
    layers = (torch.nn.Linear(width, 4 * width), torch.nn.ReLU(), torch.nn.Linear(4 * width, width))
    network = mode.prepare(torch.nn.Sequential(*layers).to(device))
    stepper = Stepper(mode, network, torch.optim.SGD(network.parameters(), lr=1e-3), clock)
    batches = [torch.randn(trial.batch_size, width, device=device) for _ in range(8)]

    def step(x: Any) -> None:
        with mode.autocast():
            loss = network(mode.input(x)).float().square().mean()
        stepper.backward(loss)
        stepper.step()

    times: dict[str, float] = {}
    if model == "clock":
        times = _times_of_clock(clock, step, batches, lambda: synchronize(device))
    for _ in clock.epochs(1):
        for number, x in enumerate(clock.steps(repeated(batches, trial.params.steps), phase="train"), start=1):
            step(x)
            if model == "padded" and number % PADDED_EVERY == 0:
                step(x)
    for number, x in enumerate(clock.resident()):
        step(x)
        if number:  # the first step checks operands and is untimed; one more is enough
            break
    return times


def _times_of_clock(
    clock: Clock, step: Callable[[Any], None], batches: list[Any], synchronize: Callable[[], None]
) -> dict[str, float]:
    """Return timer resolution, step and clock time in seconds, and ratios of loop times with / without the clock."""
    readings = [time.perf_counter() for _ in range(10_000)]
    differences = [b - a for a, b in pairwise(readings) if b > a]

    def bare(loader: list[Any], work: Callable[[Any], object]) -> float:
        synchronize()
        started = time.perf_counter()
        for x in loader:
            work(x)
        synchronize()
        return time.perf_counter() - started

    def clocked(loader: list[Any], work: Callable[[Any], object]) -> float:
        started = time.perf_counter()
        for x in clock.steps(loader, phase="selftest"):
            work(x)
        return time.perf_counter() - started

    def nothing(x: Any) -> None:
        pass

    for _ in range(20):
        bare(repeated(batches, 1), step)
    # The minimum, so that other load does not change the number of steps.
    step_seconds = min(bare(repeated(batches, 5), step) / 5 for _ in range(5))
    block = repeated(batches, max(4, round(BLOCK_SECONDS / step_seconds)))
    empty = repeated(batches, EMPTY_STEPS)
    costs = [(clocked(empty, nothing) - bare(empty, nothing)) / EMPTY_STEPS for _ in range(7)]
    times = {
        "resolution_seconds": min(differences, default=0.0),
        "step_seconds": step_seconds,
        "clock_seconds_per_step": median(costs),
    }
    for pair in range(PAIRS):  # in alternating order, so that drift affects both equally
        if pair % 2:
            with_clock, without = clocked(block, step), bare(block, step)
        else:
            without, with_clock = bare(block, step), clocked(block, step)
        times[f"pair_{pair}"] = with_clock / without
    return times


SUITE = Suite(
    train=train,
    version=1,
    models=("a", "b", "padded", "liar", "clock"),
    params={
        "steps": Param(1000, "steps of the one epoch"),
        "width": Param(256, "features; the hidden layer has four times as many"),
    },
    unit="rows",
    batch="256",
    cpu_batch=256,
)
