"""A row of a submitted file with its place and its laps, and a problem of such a row."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpubench.rows.read import Loaded, Place
from gpubench.suite.trial import TRAINED, Lap

KINDS = ("warmup", "timed", "resident")
LAP_SECONDS = 1e-6
"""Laps are written to the microsecond."""
MOST_SHOWN = 60
"""Characters of a cell in a message."""


@dataclass(frozen=True)
class Problem:
    """A cell that cannot be right."""

    place: Place
    column: str
    value: str
    """The cell, as a message shows it."""
    reason: str


@dataclass(frozen=True)
class SubmittedRow:
    """One row of a file."""

    place: Place
    cells: Mapping[str, Any]
    laps: tuple[Lap, ...] | None
    """None where the cell has no laps."""

    def number(self, column: str) -> float:
        """The cell of a column of numbers, NaN where it is empty."""
        return float(self.cells[column])

    def text(self, column: str) -> str:
        """The cell of a column of texts, empty where there is none."""
        return str(self.cells[column])

    def problem(self, column: str, reason: str) -> Problem:
        """The problem that this cell has."""
        return Problem(self.place, column, shown_cell(self.cells[column]), reason)

    def has(self, column: str) -> bool:
        """Whether the file has the column; files of an older gpubench may lack some."""
        return column in self.place.header

    def known(self, *columns: str) -> bool:
        """Whether none of these cells is empty."""
        return all(self.cells[name] != "" and self.cells[name] == self.cells[name] for name in columns)

    @property
    def published(self) -> bool:
        """Whether somebody else measured and published its figures."""
        return bool(self.text("source"))

    @property
    def trained(self) -> bool:
        """Whether its training ended, with or without reaching the goal."""
        return self.text("status") in TRAINED

    @property
    def accelerator(self) -> bool:
        """Whether it ran on another device than the CPU."""
        return not self.text("device").startswith("cpu")

    @property
    def learns(self) -> bool:
        """Whether it is a whole training on real data, whose quality counts."""
        return self.text("mode") == "full" and self.text("data") != "synthetic" and self.text("weights") != "random"


def rows_of(loaded: Loaded) -> list[SubmittedRow]:
    """Return every row that `load` read with `keep`."""
    records = zip(loaded.places, loaded.frame.to_dict("records"), strict=True)
    return [_row(place, {str(name): cell for name, cell in cells.items()}) for place, cells in records]


def _row(place: Place, cells: Mapping[str, Any]) -> SubmittedRow:
    try:
        laps = tuple(_lap(*lap) for lap in json.loads(str(cells["laps"])))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return SubmittedRow(place, cells, None)
    return SubmittedRow(place, cells, laps)


def _lap(phase: str, epoch: int, kind: Any, steps: int, samples: int, seconds: float, wait: float) -> Lap:
    """Return the lap. Raises ValueError or TypeError for values that no lap has."""
    whole = all(type(count) is int for count in (epoch, steps, samples)) and steps >= 0 and samples >= 0
    timed = math.isfinite(seconds) and math.isfinite(wait) and -LAP_SECONDS <= wait <= seconds + 2 * LAP_SECONDS
    if not (isinstance(phase, str) and kind in KINDS and whole and timed):
        raise ValueError(phase)
    return Lap(phase, epoch, kind, steps, samples, float(seconds), float(wait))


def shown_cell(value: object) -> str:
    """A cell as a message shows it."""
    if isinstance(value, float):
        return "empty" if math.isnan(value) else f"{value:.6g}"
    text = str(value)
    return "empty" if not text else text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
