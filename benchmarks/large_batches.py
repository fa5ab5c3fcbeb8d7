"""Trains CIFAR-10 with LARS and SGD and growing batches, by the suite `imagenet`; each learning rate is searched.

    python benchmarks/large_batches.py --data DIR --work FOLDER

DIR has CIFAR-10 (`gpubench data list`). FOLDER gets two trees of its images, enlarged to 40 pixels, with the same
45,000 training images: `sweep` validates on the other 5,000, `test` on test images. So no rate is chosen by the images
that judge it. With each batch both optimizers train the same epochs on 32,768 images: first the search, then three
other seeds with the rate that it found. The rows of the search go to `FOLDER/sweep-OPTIMIZER-BATCH/RATE-EPOCHS.csv`,
those of the found rate to `FOLDER/OPTIMIZER-BATCH.csv`. The same command continues a stopped run. One optimizer with
one batch took a quarter of an hour on half a core of a Xeon with AMX, whose other half was busy.

The search is successive halving (Jamieson and Talwalkar 2016, arXiv 1502.07943): all rates train for a few epochs, then
the best third for three times as many. At the end it trains the neighbours of the best rate until none is better.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from gpubench.data import datasets
from gpubench.rows.read import load
from gpubench.runner.run import SOME_FAILED
from gpubench.suite.trial import TRAINED

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS, HELD_OUT, EPOCHS = 40, 5_000, 4
PHASES = (
    f"lr_batch=256;phase:epochs=[0,{EPOCHS}],size=24,batch=256,min_scale=0.35;"
    f"ramp:epochs=[0,1],lr=[0.025,0.1];ramp:epochs=[1,{EPOCHS}],lr=[0.1,0],power=2"
)
RANGES = {"sgd": (0.2, 6.4), "lars": (4, 128)}
"""The lowest and the highest rate that are searched."""
KEPT = 3
"""Each round keeps a third of the rates, and trains them three times as long."""
SEED = 42
Score = Callable[[float, int], float | None]
"""Returns the top-5 accuracy of a rate after a number of epochs; None if the training failed."""
SETTINGS = {
    "phases": PHASES, "copies": "false", "workers": 0, "threads": 1, "goal": 0, "train_images": 32_768,
    "valid_images": 5_000, "epochs": EPOCHS,
}  # fmt: skip


def write(folder: Path, split: datasets.Split, first: int, end: int) -> None:
    """Write the images from `first` to before `end` as `folder/CLASS/NUMBER.ppm`, a format that decodes fast."""
    for number in range(first, end):
        path = folder / CLASSES[split.labels[number]] / f"{number:05d}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(split.images[number].transpose(1, 2, 0).copy())
        image.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(path)


def trees(data: Path, work: Path) -> None:
    """Write the two trees, unless they exist."""
    if (work / "test" / "val").exists():
        return
    train, test = datasets.load_cifar("cifar10", data)
    kept = len(train.labels) - HELD_OUT
    write(work / "sweep" / "train", train, 0, kept)
    write(work / "sweep" / "val", train, kept, len(train.labels))
    write(work / "test" / "val", test, 0, len(test.labels))
    (work / "test" / "train").symlink_to(work / "sweep" / "train")


def rates_of(low: float, high: float) -> list[float]:
    """Return rates from `low` to `high`, at least five, to three digits; the factor between two is about root 2."""
    steps = 2 * max(2, round(math.log2(high / low)))
    return [float(f"{low * (high / low) ** (step / steps):.3g}") for step in range(steps + 1)]


def rungs(epochs: int) -> list[int]:
    """Return the epochs of each round of the search: a ninth of the whole run, a third, and all, but at least 1."""
    return sorted({max(1, epochs // KEPT**2), max(1, epochs // KEPT), epochs})


def search(rates: list[float], epochs: int, score: Score) -> float:
    """Return the rate with the best score after `epochs`. Raises ValueError if all trainings of a round failed."""
    scores: dict[float, float] = {}
    values = rates[::2]
    for length in rungs(epochs):
        scores = {rate: found for rate in values if (found := score(rate, length)) is not None}
        if not scores:
            raise ValueError(f"no rate has a result after {length} of {epochs} epochs")
        values = sorted(scores, key=lambda rate: -scores[rate])[: max(1, len(values) // KEPT)]
    tried, best = set(scores), values[0]
    while True:
        place = rates.index(best)
        beside = [rate for rate in rates[max(0, place - 1) : place + 2] if rate not in tried]
        tried.update(beside)
        scores |= {rate: found for rate in beside if (found := score(rate, epochs)) is not None}
        if best == (best := max(scores, key=lambda rate: scores[rate])):
            return best


def gpubench(*words: object) -> None:
    """Run the command. A failed trial only gives a row; any other error raises CalledProcessError."""
    command = [sys.executable, "-m", "gpubench", *map(str, words)]
    code = subprocess.run(command, check=False).returncode
    if code not in (0, SOME_FAILED):
        raise subprocess.CalledProcessError(code, command)


def score_of(path: Path) -> float | None:
    """Return the top-5 accuracy of the training in `path`; None if it failed."""
    row = load([path]).frame.iloc[-1]
    return float(row["top5"]) if row["status"] in TRAINED and row["top5"] > 0 else None


def main() -> None:
    """Parse the arguments and train every point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--batches", default="256,1024,4096,16384")
    parser.add_argument("--optimizers", default="sgd,lars")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    trees(arguments.data, work)
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    run: list[object] = ["run", "--suite", "imagenet", "--models", "small", "--precision", "bf16", "--batch", 256]
    run += ["--device", arguments.device]
    for batch in arguments.batches.split(","):
        for optimizer in arguments.optimizers.split(","):
            name = f"{optimizer}-{batch}"
            point = [*run, *settings, "--set", f"global_batch={batch}", "--set", f"optimizer={optimizer}", "--full"]

            def score(rate: float, epochs: int, name: str = name, point: list[object] = point) -> float | None:
                out = work / f"sweep-{name}" / f"{rate:g}-{epochs}.csv"
                # If a setting is given twice, the last one counts.
                tried = ["--set", f"lr={rate:g}", "--set", f"epochs={epochs}"]
                gpubench(*point, *tried, "--data", work / "sweep", "--seed", SEED, "--out", out)
                return score_of(out)

            best = search(rates_of(*RANGES[optimizer]), EPOCHS, score)
            # On other seeds: the best of several rates is partly the one with the luckiest seed.
            final = ["--set", f"lr={best:g}", "--repeats", 3, "--seed", SEED + 1, "--out", work / f"{name}.csv"]
            gpubench(*point, *final, "--data", work / "test")


if __name__ == "__main__":
    main()
