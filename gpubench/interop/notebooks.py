"""Fits in a Jupyter notebook of fastai v1: what was trained, how, and the total time its output shows.

Reads the cells' text alone; nothing in a notebook is run. Patterns are bounded, so that no text takes long.
"""

import re
from collections.abc import Iterator, Mapping
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


def runs_of(notebook: object) -> Iterator[Fit]:
    """Every fit with a total time, in the notebook's order; what is odd in it is passed over.

    Raises ValueError where this is no notebook.
    """
    now = Fit()
    names: dict[str, str] = {}
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("it has no list of cells")
    for cell in _tables(notebook["cells"]):
        if cell.get("cell_type") != "code":
            continue
        lines = [line.partition("#")[0].split() for line in _plain(_text(cell.get("source"))).splitlines()]
        code = "\n".join(" ".join(line) for line in lines if line)
        names |= dict(re.findall(r"^(\w+) ?= ?(\d+)$", code, re.MULTILINE))
        # What is given as anything but a number, or the name of one, is not known.
        if batch := re.search(r"\bbs\s?=\s?([^,)\n]{0,99}?)\s?[,)]", code):
            value = names.get(batch[1], batch[1])
            now = replace(now, batch_size=int(value) if value.isdecimal() else None)
        if size := re.search(r"\bsize\s?=\s?([^,)\s]{1,99})", code):
            value = names.get(size[1], size[1])
            now = replace(now, image_size=value if value.isdecimal() else "")
        if model := re.search(r"\bmodels\.(\w+)", code):
            now = replace(now, model=model[1], mixed="to_fp16" in code)
        elif any("=" in line.partition("to_fp16(")[0] for line in code.splitlines() if "to_fp16(" in line):
            now = replace(now, mixed=True)
        fit = re.search(r"\.fit(?:_one_cycle)?\(\s?(\d+)\s?((?:,[^)]{0,300})?)\)", code)
        output = _plain("\n".join(_texts(cell)))
        total = re.search(r"Total time: (?:(\d+):)?(\d+):(\d\d)(?=[\s<]|$)", output)
        if not (fit and total and now.model) or int(fit[1]) < FEWEST_EPOCHS:
            continue
        hours, minutes, seconds = (int(part or 0) for part in total.groups())
        rate = re.search(r"max_lr\s?=\s?([\d.e-]+)", fit[2])
        yield replace(
            now,
            epochs=int(fit[1]),
            seconds=float(hours * 3600 + minutes * 60 + seconds),
            accuracy=_last_accuracy(output),
            max_lr=rate[1] if rate else "",
        )


def _texts(cell: Mapping[str, Any]) -> Iterator[str]:
    for output in _tables(cell.get("outputs")):
        yield _text(output.get("text"))
        for data in _tables([output.get("data")]):
            yield from (_text(data.get(kind)) for kind in ("text/html", "text/plain"))


def _plain(text: str) -> str:
    """Without letters and digits of other scripts, which no number here is written in."""
    return text.encode("ascii", "replace").decode()


def _tables(value: object) -> list[dict[str, Any]]:
    """Those of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    """A text, or the lines of one."""
    lines = value if isinstance(value, list) else [value]
    return "".join(line for line in lines if isinstance(line, str))


def _last_accuracy(html: str) -> float | None:
    """The last row's value of the column `accuracy`."""
    parts = [part.partition("</tr>")[0] for part in html.split("<tr>")[1:]]
    rows = [[text.strip() for text in re.findall(r"<t[dh]>([^<]*)</t[dh]>", part)] for part in parts]
    if len(rows) < 2 or "accuracy" not in rows[0] or len(rows[-1]) != len(rows[0]):
        return None
    last = rows[-1][rows[0].index("accuracy")]
    return float(last) if re.fullmatch(r"[01]\.\d+", last) else None
