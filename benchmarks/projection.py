"""Measures how well sampled trials project full runs: interleaved pairs, and the interval of their median ratio.

    python benchmarks/projection.py --data DIR --out FOLDER                   # six pairs of every case
    python benchmarks/projection.py --data DIR --out FOLDER --only resnet
    python benchmarks/projection.py --data DIR --out FOLDER --only resnet --precision fp32 --pairs 9 --set epochs=4

Each pair is one full and one sampled trial of the same case and seed, in new processes. Their order alternates from
pair to pair, so that a drift of the machine affects both alike. `--data` has CIFAR-100 and WikiText-2. The image tree
is made in FOLDER, and its files are dropped from the system's memory before each trial, so that they are read cold.
Rows stay in FOLDER: a second call continues. Prints a line per pair and, for each case, the 95% order-statistic
interval of the median of projected / full seconds.
"""

import argparse
import io
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
from PIL import Image

from gpubench.analysis.stats import median, median_interval

CASES = {
    "resnet": (
        "--models resnet18 --batch 128 --set epochs=2 --set image_size=32"
        " --set train_images=4000 --set valid_images=800"
    ),
    "wordlm": "--models lstm --set epochs=3 --set train_tokens=21020 --set valid_tokens=3500",
    "imagenet": (
        "--models small --batch 32 --set copies=false --set goal=0 --set workers=0"
        " --set phases=lr_batch=32;phase:epochs=[0,3],size=32,batch=32;ramp:epochs=[0,3],lr=[0.1,0.01]"
    ),
    "gpt": "--models gpt2-6m --batch 4 --set context=128 --set epochs=8 --set tokens=10240 --set valid_tokens=1024",
    "finetune": "--models llama-6m --batch 4 --set context=128 --set epochs=8 --set tokens=5120 --set valid_tokens=512",
}
"""Options of `gpubench run` by suite, for full runs of about 20 s on two idle cores.

`imagenet` has no loader processes, so that a step includes the time of reading its files.
"""
PRECISIONS = ("fp32", "bf16")
IMAGES, PICTURES = 1200, 40
"""Numbers of files in the image tree (a tenth of them for validation) and of different pictures in these."""


def make_tree(root: Path) -> None:
    """Write the image tree, unless it is there: noise of 400 x 300 pixels, so that a file has about 60 KB."""
    if (root / "complete").exists():
        return
    dice = random.Random(1)
    pictures = []
    for _ in range(PICTURES):
        picture = io.BytesIO()
        noise = Image.frombytes("RGB", (200, 150), dice.randbytes(90_000)).resize((400, 300))
        noise.save(picture, "JPEG", quality=85)
        pictures.append(picture.getvalue())
    for number in range(IMAGES):
        file = root / ("train" if number % 10 else "val") / f"class{number // 10 % 10}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pictures[number % PICTURES])
    os.sync()  # only what is on the disk can leave the memory
    (root / "complete").touch()


def forget(root: Path) -> None:
    """Drop the tree's files from the system's memory."""
    for file in root.rglob("*.jpg"):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def seconds_to_read(root: Path) -> float:
    """Return the seconds to read the whole tree."""
    began = time.perf_counter()
    for file in root.rglob("*.jpg"):
        file.read_bytes()
    return time.perf_counter() - began


def row_of(suite: str, precision: str, mode: str, seed: int, arguments: argparse.Namespace) -> pd.Series:
    """Return the row of one trial; run it unless its file exists."""
    out = arguments.out / f"{suite}-{precision}-{mode}-{seed}.csv"
    tree = arguments.out / "tree"
    if not out.exists() or pd.read_csv(out).seconds.isna().any():
        out.unlink(missing_ok=True)  # of a trial that was interrupted
        command = [sys.executable, "-m", "gpubench", "run", "--suite", suite, *CASES[suite].split()]
        command += [word for setting in arguments.set for word in ("--set", setting)]
        command += ["--precision", precision, "--repeats", "1", "--seed", str(seed), "--out", str(out)]
        command += ["--data", str(tree if suite == "imagenet" else arguments.data)]
        command += ["--full"] if mode == "full" else []
        if suite == "imagenet":
            forget(tree)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
    return pd.read_csv(out).iloc[0]


def measure(suite: str, precision: str, arguments: argparse.Namespace) -> None:
    """Run the pairs of a case and print their ratios."""
    ratios, marked = [], 0
    for pair in range(arguments.pairs):
        order = ("sampled", "full") if pair % 2 else ("full", "sampled")
        rows = {mode: row_of(suite, precision, mode, arguments.first_seed + pair, arguments) for mode in order}
        full, sampled = rows["full"], rows["sampled"]
        spent = sum(lap[5] for lap in json.loads(sampled.laps) if lap[0] == "train" and lap[2] != "resident")
        ratios.append(sampled.seconds / full.seconds)
        marked += "unsteady" in str(sampled.marks)
        print(
            f"{suite} {precision} pair {pair}: full {full.seconds:.1f} s, projected {sampled.seconds:.1f} s,"
            f" ratio {ratios[-1]:.3f}, training share {spent / full.train_seconds:.3f}; {sampled.steady}",
            flush=True,
        )
    low, high = median_interval(ratios) or (min(ratios), max(ratios))
    print(
        f"{suite} {precision} {' '.join(arguments.set)}: median projected/full {median(ratios):.3f},"
        f" 95% [{low:.3f}, {high:.3f}], single pairs {min(ratios):.3f} to {max(ratios):.3f}, n={len(ratios)},"
        f" {marked} unsteady",
        flush=True,
    )


def main() -> None:
    """Measure the cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder with CIFAR-100 and WikiText-2")
    parser.add_argument("--out", type=Path, required=True, help="a folder for rows and the image tree")
    parser.add_argument("--only", choices=CASES, action="append", help="a suite; repeatable; all by default")
    parser.add_argument("--precision", choices=PRECISIONS, action="append", help="repeatable; both by default")
    parser.add_argument("--set", action="append", default=[], help="key=value, as for gpubench run; repeatable")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=100, help="another one for more pairs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    suites = arguments.only or list(CASES)
    if "imagenet" in suites:
        tree = arguments.out / "tree"
        make_tree(tree)
        forget(tree)
        print(f"the tree is read in {seconds_to_read(tree):.2f} s cold, {seconds_to_read(tree):.2f} s from memory")
    for suite in suites:
        for precision in arguments.precision or PRECISIONS:
            measure(suite, precision, arguments)


if __name__ == "__main__":
    main()
