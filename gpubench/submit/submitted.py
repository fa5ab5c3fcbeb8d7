"""Rows of submitted files with their laps, and problems of such rows; for check.py, row_checks.py, across_rows.py."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpubench.rows.read import Loaded, Place
from gpubench.suite.trial import TRAINED, Lap

KINDS = ("warmup", "timed", "resident")
"""Kinds of laps."""
LAP_SECONDS = 1e-6
"""Resolution of laps, in seconds."""
MOST_SHOWN = 60
"""Maximum length of a cell in a message, in characters."""


@dataclass(frozen=True)
class Problem:
    """A cell that is wrong."""

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
    """None if the cell is no list of laps."""

    def number(self, column: str) -> float:
        """Return the cell of a column of numbers, NaN if it is empty."""
        return float(self.cells[column])

    def text(self, column: str) -> str:
        """Return the cell of a column of texts."""
        return str(self.cells[column])

    def problem(self, column: str, reason: str) -> Problem:
        """Return a problem of this cell."""
        return Problem(self.place, column, shown_cell(self.cells[column]), reason)

    def has(self, column: str) -> bool:
        """Return whether the file has the column; files of an older gpubench may lack some."""
        return column in self.place.header

    def known(self, *columns: str) -> bool:
        """Return whether all of these cells have a value."""
        return all(self.cells[name] != "" and self.cells[name] == self.cells[name] for name in columns)

    @property
    def published(self) -> bool:
        """Whether its figures were published elsewhere, not measured with gpubench."""
        return bool(self.text("source"))

    @property
    def trained(self) -> bool:
        """Whether its training ended, with or without reaching its goal."""
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
    """Return the rows of files that `rows.read.load` has read."""
    records = zip(loaded.places, loaded.frame.to_dict("records"), strict=True)
    by_name = ((place, {str(name): cell for name, cell in cells.items()}) for place, cells in records)
    return [SubmittedRow(place, cells, _laps(str(cells["laps"]))) for place, cells in by_name]


def _laps(text: str) -> tuple[Lap, ...] | None:
    """Return the laps in a cell; None if it is no list of laps."""
    try:
        return tuple(_lap(*lap) for lap in json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _lap(phase: str, epoch: int, kind: Any, steps: int, samples: int, seconds: float, wait: float) -> Lap:
    """Return the lap. Raises ValueError or TypeError if a value is not valid."""
    whole = all(type(count) is int for count in (epoch, steps, samples)) and steps >= 0 and samples >= 0
    timed = math.isfinite(seconds) and math.isfinite(wait) and -LAP_SECONDS <= wait <= seconds + 2 * LAP_SECONDS
    if not (isinstance(phase, str) and kind in KINDS and whole and timed):
        raise ValueError(phase)
    return Lap(phase, epoch, kind, steps, samples, float(seconds), float(wait))


def shown_cell(value: object) -> str:
    """Return a cell as a message shows it."""
    if isinstance(value, float):
        return "empty" if math.isnan(value) else f"{value:.6g}"
    text = str(value)
    return "empty" if not text else text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
