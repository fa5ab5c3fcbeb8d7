"""What the first pipelines of cifar10 gain over one another, whatever trains behind them: paired, without a network.

    python benchmarks/cifar10_pipeline.py --data DIR --rounds 8 --images 5000 --workers 2

Each round runs every rung once, in an order of its own: preparing the data, then two epochs of batches. Prints the
seconds of the second epoch and of everything, each as medians with the ratios of the rounds to the rung before.
"""

import argparse
import random
import time
from dataclasses import replace
from pathlib import Path

import torch
from gpubench.suites.cifar10 import data, recipe

from gpubench.analysis.stats import median, median_interval
from gpubench.suite import files
from gpubench.suite.trial import Case, Trial

CIFAR10 = files.find("cifar10")
RUNGS = ("no-duplicates", "preprocess-once", "batched-rng")


def seconds_of(rung: str, trial: Trial) -> tuple[float, float]:
    """(second epoch, everything) of the rung's pipeline."""
    images = data.load_images(trial)
    began = time.perf_counter()
    batches, _ = data.pipelines(images, recipe.RECIPES[rung], trial, torch.float32)
    seen = [sum(len(labels) for _, labels in batches)]
    middle = time.perf_counter()
    seen.append(sum(len(labels) for _, labels in batches))
    ended = time.perf_counter()
    assert seen == [len(images.train[0])] * 2
    return ended - middle, ended - began


def interval_text(ratios: list[float]) -> str:
    """The interval of the median, in words."""
    interval = median_interval(ratios)
    return "unknown" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    settings = {"train_images": str(options.images), "valid_images": "100", "workers": str(options.workers)}
    case = Case(
        suite="cifar10", suite_version=1, suite_digest="", suite_path=str(CIFAR10.path), model=RUNGS[0],
        precision="fp32", device="cpu", params=CIFAR10.resolve_params(settings), batch_policy="fixed", batch_size=128,
        mode="full", data="cifar10",
    )  # fmt: skip
    times: dict[str, list[tuple[float, float]]] = {rung: [] for rung in RUNGS}
    dice = random.Random(0)
    for number in range(options.rounds):
        for rung in dice.sample(RUNGS, len(RUNGS)):
            trial = Trial(replace(case, model=rung), number, number, data_dir=str(options.data))
            times[rung].append(seconds_of(rung, trial))
    for part, what in enumerate(("an epoch after the first", "preparing, and two epochs")):
        print(f"{what}, {options.images} images, {options.rounds} rounds")
        before: list[float] = []
        for rung in RUNGS:
            own = [pair[part] for pair in times[rung]]
            ratios = [old / new for old, new in zip(before, own, strict=True)] if before else []
            text = f"  {rung}: median {median(own):.3f} s, {options.images / median(own):,.0f} images/s"
            if ratios:
                text += f"; {median(ratios):.2f} times as fast as the rung before, 95% {interval_text(ratios)}"
            print(text)
            before = own


if __name__ == "__main__":
    main()
