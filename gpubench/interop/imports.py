"""Other people's published figures as rows: timm, Lambda, DAWNBench, and fastai notebooks (in notebooks.py).

What a file does not say (the card, the precision, where it comes from) is asked for, never guessed from its name.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from gpubench.data.datasets import CIFAR10, IMAGENET
from gpubench.errors import UserError
from gpubench.interop.dawnbench import read_entry
from gpubench.interop.notebooks import runs_of
from gpubench.rows.row import Row
from gpubench.rows.table import BROKEN
from gpubench.rows.table import number as figure
from gpubench.rows.write import append

NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
"""Not all that float() takes: underscores and digits of other scripts are mistakes."""
IMPLAUSIBLE = 20
"""A rate this many times its column's median is no measurement (Lambda's NCF on several GPUs: 1e10)."""
NO_FIGURE = ("", "N/A", "NA", "NAN", "NONE", "-")
GOALS = {"top5Accuracy": (IMAGENET, 0.93), "top1Accuracy": (CIFAR10, 0.94)}
"""DAWNBench's accuracies, the one that counts first where both are there: the dataset, which is a suite too, and the
goal."""


@dataclass(frozen=True)
class Facts:
    """What the user says of files that do not say it themselves."""

    source: str = ""
    card: str = ""
    precision: str = ""
    data: str = ""
    torch: str = ""
    params: str = ""
    batches: Path | None = None


def import_files(paths: list[Path], format_name: str, facts: Facts, out: Path) -> int:
    """Append the figures of `paths` to `out` as rows of mode `published`; returns how many.

    Raises UserError where a file is not of that format or something that it does not say is not given.
    """
    if format_name not in FORMATS:
        raise UserError(f"--format {format_name}: there is {', '.join(FORMATS)}")
    if not facts.source and format_name != "dawnbench":
        raise UserError("--source: say where the figures come from, best with a commit: github.com/OWNER/REPO@COMMIT")
    rows: list[Row] = []
    if format_name == "dawnbench":  # either of an entry's files stands for both
        paths = list({path.with_suffix(""): path for path in paths}.values())
    for path in paths:
        try:
            found = FORMATS[format_name](path, facts)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        except (*BROKEN, AttributeError, csv.Error) as error:
            why = {KeyError: f"it has no {error}", RecursionError: "nested too deep"}.get(type(error), error)
            raise UserError(f"{path}: not a file of the format {format_name} ({why})") from None
        if not found:
            raise UserError(f"{path}: no figure of the format {format_name} in it")
        rows += found
    digest = hashlib.sha256("".join(map(repr, rows)).encode()).hexdigest()
    append(out, [replace(row, session=f"import-{digest[:12]}", trial=n) for n, row in enumerate(rows)])
    return len(rows)


def _needed(facts: Facts, **options: str) -> None:
    for name, why in options.items():
        if not getattr(facts, name):
            raise UserError(f"--{name}: {why}")


def _published(facts: Facts, **values: Any) -> Row:
    usual: dict[str, Any] = {
        "suite_version": 1, "batch_policy": "author", "processes": 1, "mode": "published", "card": facts.card,
        "precision": facts.precision, "data": facts.data, "torch": facts.torch, "source": facts.source, "status": "ok",
        "measured": "measured",
    }  # fmt: skip
    for text in (usual | values).values():
        if isinstance(text, str) and "\0" in text.encode().decode():  # half of a character is a ValueError too
            raise ValueError("a text in it has a NUL")
    return Row(**(usual | values))


def _table(path: Path) -> list[dict[str, str]]:
    text = path.read_text(encoding="utf-8-sig")
    names, *lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    if len(set(names)) < len(names):
        raise ValueError("a column stands twice in its header")
    for number, line in enumerate(lines, start=2):
        if line and len(line) != len(names):
            raise ValueError(f"line {number} has {len(line)} cells, the header {len(names)}")
    return [dict(zip(names, line, strict=True)) for line in lines if line]


def _number(text: str | None) -> float | None:
    """The number in a cell; None where it is empty or says that there is none. Raises ValueError for any other text."""
    if text is None or text.strip().upper() in NO_FIGURE:
        return None
    if not NUMBER.fullmatch(text.strip()):
        raise ValueError(f"{text} is not a number")
    return figure(float(text))


def timm(path: Path, facts: Facts) -> list[Row]:
    """timm's benchmark CSV: training rates where it has them, else inference; the recipe is the caller's to name."""
    _needed(
        facts,
        card="timm's tables do not name it; give the card's full name",
        precision="timm's tables do not name it; its `float32` is tf32 on Ampere and later, its amp fp16 or bf16",
    )
    rows = []
    for line in _table(path):
        kind = "train" if "train_samples_per_sec" in line else "infer"
        rate = _number(line[f"{kind}_samples_per_sec"])
        batch, size = _number(line[f"{kind}_batch_size"]), _number(line[f"{kind}_img_size"])
        params = " ".join(sorted([f"image_size={size:.0f}", f"pass={kind}", *facts.params.split()]))
        rows.append(
            _published(
                facts,
                suite="timm",
                model=line["model"],
                data=facts.data or "synthetic",
                params=params,
                batch_size=int(batch) if batch else None,
                samples_per_second=rate,
                status="ok" if rate else "failed",
                reason="" if rate else "no rate in the source",
            )
        )
    return rows


def lambda_labs(path: Path, facts: Facts) -> list[Row]:
    """lambdal/deeplearning-benchmark's throughput table: a line per machine, a column per model.

    0 is a run that failed there. `batches` is their table of batch sizes beside it.
    """
    _needed(facts, precision="Lambda's tables do not name it; its fp32 is tf32 on Ampere and later")
    lines = _table(path)
    key = "name_gpu" if lines and "name_gpu" in lines[0] else ""
    models = [name for name in lines[0] if name not in {key, "num_gpu", "watt", "price"}] if lines else []
    sizes = {line[_key(line)]: line for line in _table(facts.batches)} if facts.batches else {}
    rows = []
    for model in models:
        count = {line[key]: _number(line.get("num_gpu", "")) or _count(line[key]) for line in lines}
        rates = {line[key]: _number(line[model]) or 0.0 for line in lines}
        usual = median([rate / count[name] for name, rate in rates.items() if rate] or [0.0])
        for name, rate in rates.items():
            wild = usual and rate / count[name] > IMPLAUSIBLE * usual
            reason = f"implausible: {rate / count[name] / usual:.0f} times the median per card" if wild else ""
            reason = reason or ("" if rate else "0 in the source: the run failed there")
            batch = _number(sizes.get(name, {}).get(model, ""))
            rows.append(
                _published(
                    facts,
                    suite="lambda",
                    model=model,
                    params=" ".join(sorted(facts.params.split())),
                    card=re.sub(r"\b\d+ ?x(?= ?[A-Z])[ _]?", "", name).strip(" _"),
                    processes=int(count[name]),
                    batch_size=int(batch / count[name]) if batch else None,
                    samples_per_second=rate if rate and not wild else None,
                    status="failed" if reason else "ok",
                    reason=reason,
                )
            )
    return rows


def _key(line: dict[str, str]) -> str:
    return "name_gpu" if "name_gpu" in line else ""


def _count(name: str) -> int:
    """The cards of a line without num_gpu: `LambdaOD_4x_Texas_2xH100...` has 2, `2x A100` has 2."""
    found = re.findall(r"(\d+) ?x ?(?=[A-Z])", name)
    return max(1, int(found[-1])) if found else 1


def dawnbench(path: Path, facts: Facts) -> list[Row]:
    """A DAWNBench entry, from either of its two files: a row of the suite that has its dataset's name.

    The time is that of the first epoch at or above the goal: 94% top-1 for CIFAR-10, 93% top-5 for ImageNet.
    """
    entry = read_entry(path)
    about, names = entry.about, {name.strip() for name in entry.columns}
    quality = next((name for name in GOALS if name in names), "")
    if not quality:
        there = ", ".join(sorted(names))
        raise UserError(f"{path}: no column {' or '.join(GOALS)}, so no goal that a suite here has; it has {there}")
    data, goal = GOALS[quality]
    # An epoch that was not evaluated says so; any other gap could be the one that reached the goal.
    lines = [_figures(line, needed=("epoch", "hours", quality)) for line in entry.by_column() if line[quality] != "N/A"]
    if not lines:
        raise UserError(f"{path}: no line has a {quality}")
    reached = next((line for line in lines if line[quality] >= 100 * goal), None)
    last = reached or lines[-1]
    hourly = _number(str(about.get("costPerHour") or "").lstrip("$"))
    model = re.sub(r"[^a-z0-9]", "", str(about["model"]).lower())
    best = max(line[quality] for line in lines)
    return [
        _published(
            facts,
            suite=data,
            model=model if re.fullmatch(r"resnet(18|34|50|101|152)", model) else str(about["model"]),
            precision=facts.precision or "unknown",
            params=" ".join(sorted([f"goal={goal:g}", *facts.params.split()])),
            data=facts.data or data,
            card=facts.card or str(about["hardware"]),
            torch="" if "torch" not in str(about.get("framework")).lower() else facts.torch,
            source=facts.source or str(about.get("codeURL") or f"DAWNBench, {about.get('author', 'no author')}"),
            started=str(about.get("timestamp", "")),
            seconds=last["hours"] * 3600 if reached else None,
            dollars=last["hours"] * hourly if reached and hourly else None,
            epochs=int(last["epoch"]),
            accuracy=last["top1Accuracy"] / 100 if "top1Accuracy" in last else None,
            top5=last["top5Accuracy"] / 100 if "top5Accuracy" in last else None,
            status="ok" if reached else "goal_missed",
            reason="" if reached else f"best {best:g}%, the goal is {100 * goal:g}%",
            table=entry.table,
        )
    ]


def _figures(line: Mapping[str, str], needed: tuple[str, ...]) -> dict[str, float]:
    """The numbers in a line by column. Raises ValueError where a needed one is missing, or a cell is something else."""
    figures = {name: number for name, cell in line.items() if (number := _number(cell)) is not None}
    for name in needed:
        if name not in figures:
            raise ValueError(f"{name} is missing in the line {', '.join(line.values())}")
    return figures


def notebooks(path: Path, facts: Facts) -> list[Row]:
    """A notebook of fastai v1: each one-cycle fit of several epochs whose output shows `Total time`."""
    _needed(facts, card="a notebook does not name it; give the card's full name")
    rows = []
    for run in runs_of(json.loads(path.read_text(encoding="utf-8"))):
        params = [f"epochs={run.epochs}", *(f"{key}={value}" for key, value in run.settings), *facts.params.split()]
        rows.append(
            _published(
                facts,
                suite="notebook",
                model=run.model,
                # fastai v1's to_fp16: an fp16 model with fp32 master weights and fp32 BatchNorm.
                precision="fp16-master" if run.mixed else "fp32",
                batch_size=run.batch_size,
                params=" ".join(sorted(params)),
                seconds=run.seconds,
                epochs=run.epochs,
                accuracy=run.accuracy,
                fastai="1",
            )
        )
    return rows


FORMATS: dict[str, Callable[[Path, Facts], list[Row]]] = {
    "timm": timm,
    "lambda": lambda_labs,
    "dawnbench": dawnbench,
    "notebooks": notebooks,
}
