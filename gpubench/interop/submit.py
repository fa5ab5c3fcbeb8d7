"""Is a CSV fit to be published? Schema, provenance, privacy, plausibility, enough trials. Sends nothing."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from gpubench.rows.read import load
from gpubench.rows.row import QUALITIES

PROVENANCE = (
    "card",
    "device",
    "device_hash",
    "cpu",
    "os",
    "torch",
    "python",
    "gpubench",
    "session",
    "started",
    "params",
)
PUBLISHED = ("card", "source", "params")
"""What a figure from elsewhere has to say."""
FEWEST = {"sampled": 6, "full": 1, "quick": 6, "published": 1}
"""Trials a case, by mode."""
PRIVATE = {
    "a folder of a user": re.compile(r"(?:/home/|/Users/|/root/|[A-Za-z]:\\Users\\)[^\s/\\,]+"),
    "an e-mail address": re.compile(r"[\w.+-]+@[\w-]+\.[A-Za-z]{2,}"),
    "an address of a network": re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?!\.\d)"),
}
VERSIONS = ("torch", "torchvision", "fastai", "cuda", "cudnn", "driver", "python", "os", "source")
"""Columns whose dots are versions, not addresses."""
CASE = [
    "suite", "model", "precision", "batch_policy", "batch_size", "processes", "params", "card", "device_hash",
    "session",
]  # fmt: skip


def missing(path: Path) -> list[str]:
    """What stands between the file and a pull request, in sentences; empty where nothing does."""
    loaded = load([path], keep=True)
    if loaded.frame.empty:
        return [*loaded.problems, f"{path}: no row to publish"]
    texts = pd.read_csv(io.BytesIO(loaded.table()), dtype=str, keep_default_na=False)
    return [
        *loaded.problems,
        *_provenance(loaded.frame),
        *_private(texts),
        *_implausible(loaded.frame),
        *_trials(loaded.frame),
    ]


def _provenance(frame: pd.DataFrame) -> Iterator[str]:
    own = frame["source"] == ""
    for rows, names, whose in ((frame[own], PROVENANCE, ""), (frame[~own], PUBLISHED, " of a published figure")):
        for name in names:
            lacking = int((rows[name].astype(str) == "").sum())
            if lacking:
                yield f"provenance: {lacking} row(s){whose} without {name}"
    edited = int((frame[own]["commit"].str.endswith("+")).sum())
    if edited:
        yield f"provenance: {edited} row(s) by an edited checkout (commit ends in +): commit the edit, or use a release"


def _private(texts: pd.DataFrame) -> Iterator[str]:
    for name in texts.columns:
        column = texts[name].astype(str)
        for what, pattern in PRIVATE.items():
            if name == "source" or (name in VERSIONS and what == "an address of a network"):
                continue
            hits = column.str.contains(pattern)
            if hits.any():
                yield f"private: column {name} holds {what} in {int(hits.sum())} row(s); blank it out"


def _implausible(frame: pd.DataFrame) -> Iterator[str]:
    ok = frame[frame["status"] == "ok"]
    rate, epochs, samples = ok["samples_per_second"], ok["epochs"], ok["samples"]
    trained = ok["train_seconds"].where(ok["measured"] == "measured")
    apart = (rate * trained / samples).where(epochs > 0)
    shares = [name for name, about in QUALITIES.items() if about.unit == "share"]
    checks = {
        "seconds that are not above 0": ok["seconds"] <= 0,
        "neither seconds nor a rate": ok["seconds"].isna() & rate.isna(),
        "a rate that is not above 0": rate <= 0,
        **{f"{name} outside 0 to 1": (ok[name] < 0) | (ok[name] > 1) for name in shares},
        "more memory used than the card has": ok["peak_memory_bytes"] > ok["card_memory_bytes"] * 1.05,
        "training faster than the wall clock by its own samples": apart > 1.5,
        "a probe error too large for its precision": (ok["precision"] == "fp32") & (ok["precision_error"] > 1e-4),
    }
    if "flops_per_sample" in frame and "measured_peak_flops" in frame:
        achieved = ok["flops_per_sample"] * rate / ok["processes"].fillna(1).clip(lower=1)
        checks["more FLOP/s than the card's measured peak"] = achieved > ok["measured_peak_flops"] * 1.1
    for what, hits in checks.items():
        if hits.any():
            models = ", ".join(dict.fromkeys(ok[hits]["model"]))
            yield f"implausible: {int(hits.sum())} row(s) with {what} ({models})"


def _trials(frame: pd.DataFrame) -> Iterator[str]:
    ok = frame[frame["status"] == "ok"]
    if ok.empty:
        yield "trials: no row is ok"
    for _, case in ok.groupby([*CASE, "mode"], dropna=False, sort=False):
        first = case.iloc[0]
        least = FEWEST.get(first["mode"], 6)
        if first["mode"] == "quick":
            yield f"trials: {first['model']} {first['precision']} was timed by --quick, a first look: run it without"
        elif len(case) < least:
            yield (
                f"trials: {first['model']} {first['precision']} has {len(case)} of the {least} that a"
                f" {first['mode']} case needs"
            )
