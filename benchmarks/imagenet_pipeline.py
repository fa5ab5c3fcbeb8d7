"""Compares the input pipeline of `imagenet`, with and without resized copies, with a bare torchvision loader.

    python benchmarks/imagenet_pipeline.py --data TREE --size 128 --copies 160 --workers 2 --rounds 6

All three decode, crop at random, flip and hand out uint8 batches: torchvision's ImageFolder with
RandomResizedCrop, the suite's loader on the same files, and the suite's loader on the copies that
`gpubench data prepare imagenet --sizes 160 --data TREE` made. A round is one pass of each, in random order; all worker
processes run before the first round. Prints images per second and ratios, medians over rounds.
"""

import argparse
import random
import statistics
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from gpubench.suites.imagenet.data import Source
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from gpubench.data import images
from gpubench.data.schedules import schedule_of
from gpubench.suite import files
from gpubench.suite.trial import Case, Trial


def bare(arguments: argparse.Namespace) -> Iterable[torch.Tensor]:
    """Return torchvision's own loader."""
    crop = v2.RandomResizedCrop(arguments.size, scale=(arguments.min_scale, 1.0), antialias=True)
    transform = v2.Compose([crop, v2.RandomHorizontalFlip(), v2.PILToTensor()])
    folder = arguments.data / "train"
    return DataLoader(
        ImageFolder(str(folder), transform),
        batch_size=arguments.batch,
        shuffle=True,
        num_workers=arguments.workers,
        persistent_workers=arguments.workers > 0,
    )


def ours(arguments: argparse.Namespace, imagenet: files.LoadedSuite, copies: int) -> Iterable[torch.Tensor]:
    """Return the suite's loader for copies of this size; 0 reads the originals."""
    line = (
        f"lr_batch=512;phase:epochs=[0,1],size={arguments.size},batch={arguments.batch},copies={copies},"
        f"min_scale={arguments.min_scale:g};ramp:epochs=[0,1],lr=[1,1]"
    )
    settings = {"phases": line, "workers": str(arguments.workers), "copies": str(bool(copies)).lower()}
    params = imagenet.resolve_params(settings)
    name = images.read_tree(arguments.data).name
    case = Case(
        suite="imagenet", suite_version=1, suite_digest="", suite_path="", model="resnet18", precision="fp32",
        device="cpu", params=params, batch_policy="fixed", batch_size=arguments.batch, mode="full", data=name,
    )  # fmt: skip
    if imagenet.suite.check:
        imagenet.suite.check(params, arguments.data, name)
    source = Source(Trial(case, 0, 1, data_dir=str(arguments.data)))
    phase = schedule_of(str(params["phases"])).phases[0]
    return source.train(0, phase, arguments.batch).batches


def rate(loader: Iterable[torch.Tensor]) -> float:
    """Return the images per second of one pass."""
    began, many = time.perf_counter(), 0
    for x, _ in loader:
        many += len(x)
    return many / (time.perf_counter() - began)


def main() -> None:
    """Measure all loaders and print rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="a tree with train/ and val/")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--copies", type=int, default=160)
    parser.add_argument("--min-scale", type=float, default=0.08)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    imagenet = files.find("imagenet")
    loaders = {
        "torchvision": bare(arguments),
        "suite": ours(arguments, imagenet, 0),
        "suite, copies": ours(arguments, imagenet, arguments.copies),
    }
    for loader in loaders.values():
        rate(loader)
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    dice = random.Random(1)
    for _ in range(arguments.rounds):
        for name in dice.sample(list(loaders), len(loaders)):
            rates[name].append(rate(loaders[name]))
    for name, found in rates.items():
        ratios = [own / other for own, other in zip(found, rates["torchvision"], strict=True)]
        print(
            f"{name:14} {statistics.median(found):7.1f} images/s"
            f"  {statistics.median(ratios):.2f} of torchvision ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
