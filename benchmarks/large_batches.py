"""LARS and SGD as the batch grows: CIFAR-10 through the suite `imagenet`, each learning rate searched by --sweep.

    python benchmarks/large_batches.py --data DIR --work FOLDER

DIR holds CIFAR-10 (`gpubench data list`). FOLDER gets two trees of its images, enlarged to 40 pixels, with the same
45,000 training images: `sweep` validates on the other 5,000, `test` on test images. So no rate is chosen by the images
that judge it. At each batch both optimizers train the same epochs on 32,768 images: first the sweep, then three other
seeds with the rate that it found. Rows go to `FOLDER/OPTIMIZER-BATCH.csv` and `FOLDER/sweep-OPTIMIZER-BATCH.csv`; the
same command goes on where it was stopped. On half a core of a Xeon with AMX, whose other half was busy, a point took a
quarter of an hour.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from PIL import Image

from gpubench.data import datasets

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS, HELD_OUT, EPOCHS = 40, 5_000, 4
PHASES = (
    f"lr_batch=256;phase:epochs=[0,{EPOCHS}],size=24,batch=256,min_scale=0.35;"
    f"ramp:epochs=[0,1],lr=[0.025,0.1];ramp:epochs=[1,{EPOCHS}],lr=[0.1,0],power=2"
)
RANGES = {"sgd": "lr=0.2:6.4:log", "lars": "lr=4:128:log"}
SETTINGS = {
    "phases": PHASES, "copies": "false", "workers": 0, "threads": 1, "goal": 0, "train_images": 32_768,
    "valid_images": 5_000, "epochs": EPOCHS,
}  # fmt: skip


def write(folder: Path, split: datasets.Split, first: int, end: int) -> None:
    """The images from `first` to before `end` as `folder/CLASS/NUMBER.ppm`, which takes little time to decode."""
    for number in range(first, end):
        path = folder / CLASSES[split.labels[number]] / f"{number:05d}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(split.images[number].transpose(1, 2, 0).copy())
        image.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(path)


def trees(data: Path, work: Path) -> None:
    """The two trees, unless they are there."""
    if (work / "test" / "val").exists():
        return
    train, test = datasets.load_cifar("cifar10", data)
    kept = len(train.labels) - HELD_OUT
    write(work / "sweep" / "train", train, 0, kept)
    write(work / "sweep" / "val", train, kept, len(train.labels))
    write(work / "test" / "val", test, 0, len(test.labels))
    (work / "test" / "train").symlink_to(work / "sweep" / "train")


def gpubench(*words: object) -> str:
    """What the command prints; its progress is shown."""
    done = subprocess.run(
        [sys.executable, "-m", "gpubench", *map(str, words)], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


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
    run = ["run", "--suite", "imagenet", "--models", "small", "--precision", "bf16", "--batch", 256]
    run += ["--device", arguments.device]
    for batch in arguments.batches.split(","):
        for optimizer in arguments.optimizers.split(","):
            point = [*run, *settings, "--set", f"global_batch={batch}", "--set", f"optimizer={optimizer}"]
            sweep, out = work / f"sweep-{optimizer}-{batch}.csv", work / f"{optimizer}-{batch}.csv"
            said = gpubench(*point, "--data", work / "sweep", "--sweep", RANGES[optimizer], "--out", sweep)
            _, rest = said.rsplit("next: gpubench ", 1)
            # Options that come twice count as they come last.
            gpubench(*shlex.split(rest), "--data", work / "test", "--repeats", 3, "--out", out)


if __name__ == "__main__":
    main()
