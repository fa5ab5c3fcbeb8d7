"""Writes complete trainings as entries of DAWNBench. The command `export` calls it."""

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

import gpubench
from gpubench.analysis.compare import plausible
from gpubench.analysis.groups import text_of
from gpubench.errors import UserError, writing
from gpubench.rows.read import load
from gpubench.rows.table import BROKEN, stages_in
from gpubench.rows.table import number as figure

DAWN_TOP5 = 0.93
"""Target accuracy of DAWNBench on ImageNet, top-5."""


def export(paths: list[Path], folder: Path) -> list[str]:
    """Write a JSON and a TSV for each complete training with an accuracy; return their paths and the number left out.

    Hours are those of training without validation, as DAWNBench counts them; rows without `train_seconds` have hours
    with validation. A row whose table has a line per epoch gives a TSV like that of imagenet18's prepare_dawn_tsv.py:
    every epoch up to the first that reached 93% top-5, with hours that include validation. Raises UserError if no row
    fits, or `folder` cannot be written.
    """
    loaded = plausible(load(paths))
    frame = loaded.frame[loaded.frame["status"] == "ok"]
    if frame.empty:
        raise UserError("; ".join(["no row with status ok to export", *loaded.problems]))
    with writing(f"--out {folder}", folder / "any"):
        return _write_entries(frame, folder)


def _write_entries(frame: pd.DataFrame, folder: Path) -> list[str]:
    whole = (frame["measured"] == "measured") & frame["accuracy"].notna() & (frame["seconds"] > 0)
    fit = frame[whole]
    if fit.empty:
        raise UserError("DAWNBench needs complete trainings with an accuracy: export rows of `gpubench run --full`")
    unfit = len(frame) - len(fit)
    lines = [f"{unfit} row(s) left out: incomplete, or without an accuracy"] if unfit else []
    for number, row in enumerate(fit.to_dict("records")):
        parts = ("gpubench", row["model"], row["card"], row["precision"], f"pytorch-{number}")
        stem = folder / "_".join(re.sub(r"[^\w.+-]+|_", "-", text_of(part)).strip("-") for part in parts)
        processes = 1 if math.isnan(row["processes"]) else row["processes"]
        batch = None if math.isnan(row["batch_size"]) else int(row["batch_size"])
        about = {
            "version": "v1.0",
            "author": row["source"] or "gpubench",
            "authorEmail": "",
            "framework": " ".join(f"{key} {row[key]}" for key in ("torch", "fastai") if row[key]) or "PyTorch",
            "codeURL": row["source"],
            "model": row["model"],
            "hardware": f"{processes:.0f} x {row['card']}",
            "costPerHour": "",
            "timestamp": row["started"][:10] or str(datetime.now(UTC).date()),
            "logFilename": f"{stem.name}.tsv",
            "misc": {
                key: row[key]
                for key in ("suite", "precision", "params", "data", "batch_policy", "cuda", "cudnn", "driver")
            }
            | {"batch_size": batch, "gpubench": row["gpubench"] or gpubench.__version__},
        }
        epochs = text_of(row["epochs"]) or "1"
        seconds = row["seconds"] if math.isnan(row["train_seconds"]) else row["train_seconds"]
        table = f"epoch\thours\ttop1Accuracy\n{epochs}\t{seconds / 3600!r}\t{row['accuracy'] * 100!r}\n"
        table = _epochs_tsv(str(row["table"])) or table
        for suffix, text in (("json", json.dumps(about, indent=4) + "\n"), ("tsv", table)):
            path = stem.with_name(f"{stem.name}.{suffix}")
            path.write_bytes(text.encode())  # the same line ends on every system
            lines.append(str(path))
    return lines


def _epochs_tsv(text: str) -> str:
    """Return a TSV line per epoch up to DAWN_TOP5, in hours and percent; empty if `text` is broken or lacks epoch 1."""
    columns = ("epoch", "hours", "top1", "top5")
    try:
        lines = [tuple(figure(line[name]) for name in columns) for line in stages_in(text)]
    except BROKEN:
        return ""
    if not lines or lines[0][0] != 1:
        return ""
    tsv, epochs = ["epoch\thours\ttop1Accuracy\ttop5Accuracy"], set[float]()
    for epoch, hours, top1, top5 in lines:
        if epoch in epochs:  # a second validation of the last epoch, with other crops
            continue
        epochs.add(epoch)
        tsv.append(f"{epoch:.0f}\t{hours!r}\t{100 * top1:.5g}\t{100 * top5:.5g}")
        if top5 >= DAWN_TOP5:
            break
    return "\n".join(tsv) + "\n"
