"""Write results/2019-*.csv from the figures read off the two public notebooks of 2019.

    python benchmarks/published_2019.py bhutani.csv perbos.csv results/

The inputs have one line per run: card, model, precision, batch_size, epochs, seconds, and accuracy if the notebook
printed it.
"""

import sys
from pathlib import Path

import pandas as pd

from gpubench.rows.row import Row
from gpubench.rows.write import append

PARAMS = "epochs=30 image_size=224 pipeline=workers recipe=article-2019 workers=4"
BHUTANI = "github.com/init27/RTX-2080Ti-Vs-GTX-1080Ti-CIFAR-100-Benchmarks@23754c19"
PERBOS = "github.com/EricPerbos/GTX-vs-RTX-Deep-Learning-benchmarks@77b2161e"
CPUS = {"RTX 2080 Ti": "Intel Core i7-8700K", "GTX 1080 Ti": "Intel Core i7-7700K"}
MEMORY = {"RTX 2080 Ti": 11, "GTX 1080 Ti": 11, "RTX 2060": 6}
BIG_RATE = "fp32 used max_lr 1e-2 instead of 3e-3"
TRAIN_IMAGES = 48_000
"""Four fifths of train and test together: accuracies are multiples of 1 / 12,000."""


def row(run: "pd.Series[str]", source: str, session: str, policy: str) -> Row:
    """Return a published run as a row of gpubench."""
    mixed = run["precision"].startswith("fp16")
    odd = session == "bhutani-2019" and run["model"] == "resnet18" and not mixed
    return Row(
        suite="resnet",
        suite_version=1,
        model=run["model"],
        # fastai v1's to_fp16: an fp16 model with fp32 master weights and fp32 BatchNorm.
        precision="fp16-master" if mixed else "fp32",
        batch_size=int(run["batch_size"]),
        batch_policy=policy,
        params=PARAMS,
        processes=1,
        data="cifar100",
        weights="imagenet",
        mode="published",
        card=f"NVIDIA GeForce {run['card']}",
        device="cuda:0",
        card_memory_bytes=MEMORY[run["card"]] * 2**30,
        cpu=CPUS[run["card"]] if session == "bhutani-2019" else "AMD Ryzen 7 1700X",
        fastai="1.0",
        cuda="10.0",
        session=session,
        trial=0,
        source=source,
        status="ok",
        reason=BIG_RATE if odd else "",
        seconds=float(run["seconds"]),
        measured="measured",
        epochs=30,
        run_samples=30 * TRAIN_IMAGES,
        accuracy=float(run["valid_acc"]) if "valid_acc" in run else None,
    )


def main(bhutani: Path, perbos: Path, results: Path) -> None:
    """Convert both files."""
    first = pd.read_csv(bhutani)
    first = first[first["epochs"] == 30]
    ours = [row(run, BHUTANI, "bhutani-2019", "author") for _, run in first.iterrows()]
    _write(results / "2019-rtx-2080-ti-gtx-1080-ti.csv", ours)
    second = pd.read_csv(perbos)
    doubled = second["precision"] == "fp16_bs2x"
    theirs = [
        row(run, PERBOS, "perbos-2019", "author-doubled" if double else "author")
        for (_, run), double in zip(second.iterrows(), doubled, strict=True)
    ]
    _write(results / "2019-rtx-2060-gtx-1080-ti.csv", theirs)


def _write(path: Path, rows: list[Row]) -> None:
    path.unlink(missing_ok=True)
    append(path, rows)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
