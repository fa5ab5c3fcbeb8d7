"""Train each rung of cifar10 on some thousand real images, in each precision, and write to a file how its loss falls.

    python benchmarks/cifar10_rungs.py --data DIR --out rungs.csv --images 8000 --precision fp32,bf16

Trains the first epoch of each rung's own schedule, or --epochs of them, over --images images. (A whole schedule in one
epoch would reach its peak rate within a few steps, and most rungs would diverge.) Writes a line per rung and precision:
mean training loss of the first and of the last quarter of the steps, images per second. Starts no rung after --seconds.
Lines that the file already has are not measured again.
"""

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path

import torch
from gpubench.suites.cifar10 import training

from gpubench.suite import files
from gpubench.suite.trial import Case, Trial
from gpubench.training import precision
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for

CIFAR10 = files.find("cifar10")
COLUMNS = (
    "rung", "precision", "images", "epochs", "suite_version", "batch", "steps", "first_loss", "last_loss",
    "images_per_second",
)  # fmt: skip
KEY = 5
"""The first columns that name what was measured; the others are its results."""


def trained(rung: str, name: str, images: int, epochs: int, data: Path) -> list[object]:
    """Train one rung in one precision; return its line for the file."""
    train = CIFAR10.suite.train
    params = CIFAR10.resolve_params({"train_images": str(images), "valid_images": "1000"})
    run, losses = training.Run, {}  # the runs themselves are the keys: another may get the same id
    original = run.step

    def recording(self, batch):  # type: ignore[no-untyped-def]
        loss = original(self, batch)
        losses.setdefault(self, []).append(loss)
        return loss

    batch = min(CIFAR10.suite.recipe_batch(rung, params), images)
    case = Case(
        suite="cifar10", suite_version=CIFAR10.suite.version, suite_digest="", suite_path=str(CIFAR10.path), model=rung,
        precision=name, device="cpu", params=params, batch_policy="fixed", batch_size=batch, mode="full",
        data="cifar10",
    )  # fmt: skip
    precision.set_flags(name, reduced_reduction=False, cudnn_benchmark=False)
    torch.manual_seed(1)
    clock = Clock(replace(sampling_for("full", accelerator=False), epochs=epochs))
    clock.resident = tuple  # type: ignore[method-assign,assignment]  (no steps after the run)
    run.step = recording
    try:
        train(Trial(case, 0, 1, data_dir=str(data)), clock)
    finally:
        run.step = original
    seen = [float(loss) for loss in list(losses.values())[-1]]  # the warm-up is another Run, before it
    steps, quarter = len(seen), max(1, len(seen) // 4)
    ends = [f"{sum(part) / quarter:.4f}" for part in (seen[:quarter], seen[-quarter:])]
    rate = clock.summary()["samples_per_second"]
    return [rung, name, images, epochs, CIFAR10.suite.version, batch, steps, *ends, f"{rate:.1f}"]


def main() -> None:
    """Measure the lines that the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--precision", default="fp32,bf16")
    parser.add_argument("--rungs", default=",".join(CIFAR10.suite.models))
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    done = set()
    if options.out.exists():
        done = {tuple(line[:KEY]) for line in csv.reader(options.out.open())}
    else:
        options.out.write_text(",".join(COLUMNS) + "\n")
    began = time.monotonic()
    for name in options.precision.split(","):
        for rung in options.rungs.split(","):
            key = (rung, name, str(options.images), str(options.epochs), str(CIFAR10.suite.version))
            if key in done or time.monotonic() - began > options.seconds:
                continue
            line = ",".join(map(str, trained(rung, name, options.images, options.epochs, options.data)))
            print(line, flush=True)
            with options.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
