"""Fits in a Jupyter notebook of fastai v1: what was trained, how, and the total time its output shows.

Reads the cells' text alone; nothing in a notebook is run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

FEWEST_EPOCHS = 2
"""A fit of one epoch is somebody's trial of the set-up."""


@dataclass(frozen=True)
class Fit:
    """One fit; settings are (name, value) as the cell has them."""

    model: str = ""
    mixed: bool = False
    batch_size: int | None = None
    image_size: str = ""
    epochs: int = 0
    seconds: float = 0.0
    accuracy: float | None = None
    max_lr: str = ""

    @property
    def settings(self) -> list[tuple[str, str]]:
        """What belongs to the recipe beside the epochs."""
        return [(k, v) for k, v in (("image_size", self.image_size), ("max_lr", self.max_lr)) if v]


def runs_of(notebook: dict[str, Any]) -> Iterator[Fit]:
    """Every fit with a total time, in the notebook's order. Raises KeyError where this is no notebook."""
    now = Fit()
    names: dict[str, str] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        code = "\n".join(line.partition("#")[0] for line in "".join(cell["source"]).splitlines())
        names |= dict(re.findall(r"^(\w+)\s*=\s*(\d+)\s*$", code, re.MULTILINE))
        if batch := re.search(r"\bbs\s*=\s*(\w+)\s*[,)]", code):
            value = names.get(batch[1], batch[1])
            now = replace(now, batch_size=int(value) if value.isdigit() else None)
        if size := re.search(r"\bsize\s*=\s*(\d+)", code):
            now = replace(now, image_size=size[1])
        if model := re.search(r"\bmodels\.(\w+)", code):
            now = replace(now, model=model[1], mixed="to_fp16" in code)
        elif re.search(r"=.*\bto_fp16\(", code):
            now = replace(now, mixed=True)
        fit = re.search(r"\.fit(?:_one_cycle)?\(\s*(\d+)([^)]*)\)", code)
        output = "".join(_texts(cell))
        total = re.search(r"Total time: (?:(\d+):)?(\d+):(\d\d)\b", output)
        if not (fit and total and now.model) or int(fit[1]) < FEWEST_EPOCHS:
            continue
        hours, minutes, seconds = (int(part or 0) for part in total.groups())
        rate = re.search(r"max_lr\s*=\s*([\d.e-]+)", fit[2])
        yield replace(
            now,
            epochs=int(fit[1]),
            seconds=float(hours * 3600 + minutes * 60 + seconds),
            accuracy=_last_accuracy(output),
            max_lr=rate[1] if rate else "",
        )


def _texts(cell: dict[str, Any]) -> Iterator[str]:
    for output in cell.get("outputs", []):
        yield "".join(output.get("text", []))
        for kind in ("text/html", "text/plain"):
            yield "".join(output.get("data", {}).get(kind, []))


def _last_accuracy(html: str) -> float | None:
    """The last row's value of the column `accuracy`."""
    rows = [re.findall(r"<t[dh]>\s*([^<]*?)\s*</t[dh]>", row) for row in re.findall(r"(?s)<tr>(.*?)</tr>", html)]
    if len(rows) < 2 or "accuracy" not in rows[0] or len(rows[-1]) != len(rows[0]):
        return None
    last = rows[-1][rows[0].index("accuracy")]
    return float(last) if re.fullmatch(r"[01]\.\d+", last) else None
