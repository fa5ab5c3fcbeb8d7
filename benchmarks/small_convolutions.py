"""What the nine matrix products of cifar10's `SmallConv` gain on this CPU, against oneDNN's convolution.

    python benchmarks/small_convolutions.py gradients --precision bf16
    python benchmarks/small_convolutions.py steps --models speedrun,tta --precision bf16

`gradients`: milliseconds of the weights' gradient alone, for images of so many pixels in a row, medians of seven.
`steps`: how long a whole step takes, as a share of the step with the library's convolution alone, both ways in turns on
random images; the median of the pairs with its interval. A rung whose images grow has a line for each size.
"""

import argparse
import math
import time
from collections.abc import Callable
from functools import partial

import torch
from gpubench.suites.cifar10 import data, networks, training
from gpubench.suites.cifar10.recipe import RECIPES, stage_at
from torch.nn.grad import conv2d_weight

from gpubench.analysis.stats import median, median_interval
from gpubench.suite import files
from gpubench.suite.trial import Case, Trial
from gpubench.training import precision
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for

CIFAR10 = files.find("cifar10")


def seconds_of(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def gradients(options: argparse.Namespace) -> None:
    """A line for each size of the images."""
    dtype = precision.KINDS[options.precision].operand
    shape = (options.channels, options.channels, 3, 3)
    for edge in range(2, 8):
        x = torch.randn(options.images, options.channels, edge, edge).to(dtype).to(memory_format=torch.channels_last)
        grad = torch.randn_like(x)
        ways: dict[str, Callable[[], object]] = {
            "products": partial(networks.weight_gradient, x, grad),
            "oneDNN": partial(conv2d_weight, x, shape, grad, padding=1),
        }
        found = {name: 1e3 * median([seconds_of(work) for _ in range(8)][1:]) for name, work in ways.items()}
        print(f"{edge} pixels:", ", ".join(f"{name} {value:.1f} ms" for name, value in found.items()), flush=True)


def steps(options: argparse.Namespace) -> None:
    """A line for each rung and size."""
    mode, ours = precision.mode_of(options.precision, "cpu"), networks.SmallConv.most_pixels_in_a_row
    for rung in options.models.split(","):
        recipe = RECIPES[rung]
        params = CIFAR10.resolve_params({"train_images": str(4 * recipe.batch), "valid_images": "8", "workers": "1"})
        case = Case(
            suite="cifar10", suite_version=CIFAR10.suite.version, suite_digest="", suite_path=str(CIFAR10.path),
            model=rung, precision=options.precision, device="cpu", params=params, batch_policy="fixed",
            batch_size=recipe.batch, mode="full", data="synthetic",
        )  # fmt: skip
        model = networks.prepared(networks.network(recipe), recipe, mode, torch.device("cpu"))
        clock = Clock(sampling_for("full", accelerator=False))
        run = training.Run(training.Objective(model, recipe, mode), Trial(case, 0, 1), clock)
        noise = data.noise_images(4 * recipe.batch, 8, torch.Generator().manual_seed(1))
        batches, _ = run.prepare(noise)
        first = {stage_at(recipe, epoch, run.epochs).edge: epoch for epoch in reversed(range(run.epochs))}
        for edge, epoch in sorted(first.items()):
            run.begin(batches, epoch)
            batch = next(iter(batches))
            ratios = []
            for number in range(options.pairs + 1):
                taken = {}
                for most in ((ours, 0), (0, ours))[number % 2]:
                    networks.SmallConv.most_pixels_in_a_row = most
                    taken[most] = seconds_of(lambda: run.step(batch))  # noqa: B023  (called at once)
                ratios.append(taken[ours] / taken[0])
            kept = ratios[1:]
            low, high = median_interval(kept) or (math.nan, math.nan)
            print(f"{rung} at {edge} pixels: {median(kept):.3f} ({low:.3f} to {high:.3f})", flush=True)


def main() -> None:
    """One of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["gradients", "steps"])
    parser.add_argument("--precision", default="bf16", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--models", default="speedrun")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--images", type=int, default=1536)
    parser.add_argument("--channels", type=int, default=256)
    options = parser.parse_args()
    precision.set_flags(options.precision, reduced_reduction=False, cudnn_benchmark=False)
    training.keep_memory()
    {"gradients": gradients, "steps": steps}[options.what](options)


if __name__ == "__main__":
    main()
