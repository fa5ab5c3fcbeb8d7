"""Compares `resnet50` of the suite `reference` with timm's ResNet-50 on one machine: images/s, in pairs of laps.

    pip install --no-deps timm        # 1.0, in an environment that has gpubench
    python benchmarks/against_timm.py --precision bf16 --batch 8 --rounds 12 --threads 1

timm's package does not contain its benchmark.py. So its training step is repeated here with timm's own model and
optimizer: a random batch that stays on the device, channels last, forward under autocast, cross entropy, backward, SGD
with momentum. Laps of both sides alternate in one process, in changing order, so that other programs disturb both
alike. On a CPU the ratio is also printed for the CPU time of this process, which scatters less on a shared CPU.
"""

import argparse
import math
import time
from collections.abc import Callable
from statistics import stdev
from types import SimpleNamespace

import timm
import torch
from gpubench.suites.reference import training
from timm.optim import create_optimizer_v2

from gpubench.analysis.stats import median, median_interval
from gpubench.suite import files
from gpubench.suite.trial import Case, Trial
from gpubench.training import precision, synchronize

Step = Callable[[], None]
SUITE = files.find("reference")


def ours(options: argparse.Namespace) -> Step:
    """Return a function that takes a step of the suite, by its own code."""
    case = Case(
        suite="reference", suite_version=SUITE.suite.version, suite_digest="", suite_path=str(SUITE.path),
        model="resnet50", precision=options.precision, device=options.device,
        params=SUITE.resolve_params({"image_size": str(options.size), "memory_format": options.layout}),
        batch_policy="fixed", batch_size=options.batch, mode="full", data="synthetic",
    )  # fmt: skip
    clock = SimpleNamespace(note=lambda notes: None)
    step, batch = training.prepared(Trial(case, 0, 0), clock)  # type: ignore[arg-type]
    return lambda: step(batch)


def theirs(options: argparse.Namespace) -> Step:
    """Return a function that takes a step as timm's benchmark does."""
    kind, device = precision.KINDS[options.precision], torch.device(options.device)
    layout = getattr(torch, f"{options.layout}_format", None) or torch.channels_last
    model = timm.create_model("resnet50").to(device).train().to(memory_format=layout)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-4, momentum=0.9)
    images = torch.randn(options.batch, 3, options.size, options.size, device=device).contiguous(memory_format=layout)
    labels = torch.randint(0, 1000, (options.batch,), device=device)
    loss_of = torch.nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=kind.operand, enabled=kind.operand is not torch.float32):
            scores = model(images)
        loss_of(scores, labels).backward()
        optimizer.step()

    return step


def lap(step: Step, options: argparse.Namespace) -> tuple[float, float]:
    """Return the wall and CPU seconds of `--steps` steps."""
    device = torch.device(options.device)
    synchronize(device)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(options.steps):
        step()
    synchronize(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Print each round, then the ratio with its interval and the spread of its logarithm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", default="bf16", choices=("fp32", "tf32", "fp16", "bf16"))
    parser.add_argument("--layout", default="channels_last", choices=("channels_last", "contiguous"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2, help="steps of a lap")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    precision.set_flags(options.precision, reduced_reduction=False, cudnn_benchmark=True)
    sides = {"ours": ours(options), "theirs": theirs(options)}
    for step in sides.values():
        lap(step, options)
    ratios: dict[str, list[float]] = {"wall": [], "cpu": []}
    for number in range(options.rounds):
        order = list(sides) if number % 2 else list(reversed(sides))
        seconds = {name: lap(sides[name], options) for name in order}
        for at, kind in enumerate(ratios):
            ratios[kind].append(seconds["theirs"][at] / seconds["ours"][at])
        print(f"round {number}: " + ", ".join(f"{kind} {own[-1]:.3f}" for kind, own in ratios.items()), flush=True)
    for kind, own in ratios.items() if options.device == "cpu" else [("wall", ratios["wall"])]:
        interval = median_interval(own)
        span = f", 95% {interval[0]:.3f} to {interval[1]:.3f}" if interval else ""
        spread = stdev(map(math.log, own))
        print(
            f"images/s, ours / timm {timm.__version__}, {kind} time: {median(own):.3f}{span}, sd of logs {spread:.3f}"
        )


if __name__ == "__main__":
    main()
