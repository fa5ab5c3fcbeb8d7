"""Writes rows with status `ok` for benchstat and DAWNBench. The command `export` calls it."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

import gpubench
from gpubench.analysis.compare import plausible
from gpubench.analysis.groups import as_compared, text_of
from gpubench.errors import UserError, writing
from gpubench.rows.alike import GROUP
from gpubench.rows.params import params_of
from gpubench.rows.read import load
from gpubench.rows.table import BROKEN, stages_in
from gpubench.rows.table import number as figure

Frame = pd.DataFrame
DAWN_TOP5 = 0.93
"""Target accuracy of DAWNBench on ImageNet, top-5."""


def export(paths: list[Path], format_name: str, out: Path | None) -> list[str]:
    """Write the rows with status `ok` in another tool's format to `out`; return lines to print.

    DAWNBench has two files per trial, so `out` must be a folder. For benchstat it is a file; without it the lines are
    the text of that file. Raises UserError if no row fits, or `out` cannot be written.
    """
    if format_name not in {"benchstat", "dawnbench"}:
        raise UserError(f"--format {format_name}: choose benchstat or dawnbench")
    loaded = plausible(load(paths))
    frame = loaded.frame[loaded.frame["status"] == "ok"]
    if frame.empty:
        raise UserError("; ".join(["no row with status ok to export", *loaded.problems]))
    if format_name == "dawnbench":
        if out is None:
            raise UserError("--format dawnbench writes two files per trial: add --out FOLDER")
        with writing(f"--out {out}", out / "any"):
            return _dawnbench(frame, out)
    text = benchstat(frame)
    if out is None:
        return [text.rstrip("\n")]
    with writing(f"--out {out}", out):
        out.write_text(text, encoding="utf-8")
    return [str(out)]


def _cases(frame: Frame) -> Iterator[tuple[Mapping[str, Any], Frame]]:
    """Return the facts of each case, by column, and its rows, in the order of the file.

    A case with a projected row is projected: short runs may be projected in one trial and measured in the next.
    """
    frame = as_compared(frame)
    # Of `params` the whole: cuDNN's setting, which a group's columns have apart, is in it.
    for _, rows in frame.groupby([name for name in GROUP if name in frame], sort=False, dropna=False):
        facts = {str(name): value for name, value in rows.iloc[0].items()}
        if (rows["measured"] == "projected").any():
            facts["measured"] = "projected"
        yield facts, rows


def _word(value: object) -> str:
    """Return a part of a benchmark's name: characters that separate parts become `_`."""
    return re.sub(r"[^\w.+-]+", "_", text_of(value)).strip("_")


def benchstat(frame: Frame) -> str:
    """Return the Go benchmark text format (golang.org/design/14313-benchmark-format), with a line per trial.

    `sec/op` is the duration of the whole training, in seconds. Compare with
    `benchstat -col /precision FILE` or `-col card FILE`.
    """
    lines = ["Unit sec/op better=lower assume=nothing", "Unit samples/s better=higher assume=nothing"]
    facts = ("card", "torch", "cuda", "driver", "cpu", "data", "mode", "measured", "source")
    before: dict[str, str] = {}
    for row, rows in _cases(frame):
        for name in facts:
            text = " ".join(str(row[name]).split())
            if before.get(name, "") != text:
                lines.append(f"{name}: {text}")
                before[name] = text
        name = f"{_word(row['suite']).capitalize()}/model={_word(row['model'])}/precision={_word(row['precision'])}"
        name += f"/batch={_word(row['batch_size']) or 'unknown'}-{_word(row['batch_policy'])}"
        name += f"/processes={1 if math.isnan(row['processes']) else row['processes']:.0f}"
        name += "".join(f"/{_word(f'{name}={value}')}" for name, value in params_of(row["params"]).items())
        for trial in rows.to_dict("records"):
            values = [(trial["seconds"], "sec/op"), (trial["samples_per_second"], "samples/s")]
            shown = " ".join(f"{value!r} {unit}" for value, unit in values if value == value)
            if shown:
                lines.append(f"Benchmark{name} 1 {shown}")
    return "\n".join(lines) + "\n"


def _dawnbench(frame: Frame, folder: Path) -> list[str]:
    """Write a JSON and a TSV for each complete training with an accuracy; return their paths and the number left out.

    Hours are those of training without validation, as DAWNBench counts them. A row whose table has a line per epoch
    gives a TSV like that of imagenet18's prepare_dawn_tsv.py: every epoch up to the first that reached 93% top-5, with
    hours that include validation.
    """
    whole = (frame["measured"] == "measured") & frame["accuracy"].notna() & (frame["seconds"] > 0)
    fit = frame[whole]
    if fit.empty:
        raise UserError("DAWNBench needs complete trainings with an accuracy: export rows of `gpubench run --full`")
    unfit = len(frame) - len(fit)
    lines = [f"{unfit} row(s) left out: incomplete, or without an accuracy"] if unfit else []
    for number, row in enumerate(fit.to_dict("records")):
        parts = ("gpubench", row["model"], row["card"], row["precision"], f"pytorch-{number}")
        stem = folder / "_".join(_word(part).replace("_", "-") for part in parts)
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
    """Return a TSV with a line per epoch, accuracies in percent; empty if the table does not begin with epoch 1."""
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
