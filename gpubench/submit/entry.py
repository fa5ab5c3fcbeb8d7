"""A row as `submit` sees it: where it stands, its cells and its laps; and what speaks against it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpubench.rows.read import Place
from gpubench.suite.trial import Lap

KINDS = ("warmup", "timed", "resident")
LAP_SECONDS = 1e-6
"""Laps are written to the microsecond."""


@dataclass(frozen=True)
class Doubt:
    """Something in a row that cannot be as the row says."""

    line: int
    column: str
    said: str
    """What the row says there."""
    follows: str
    """What follows from the rest."""


@dataclass(frozen=True)
class Entry:
    """One row of our own that is ok, and where it stands."""

    place: Place
    row: Mapping[str, Any]
    laps: tuple[Lap, ...] | None
    """None where the cell holds no laps."""

    def number(self, column: str) -> float:
        """NaN where the cell is empty."""
        return float(self.row[column])

    def text(self, column: str) -> str:
        """The cell of a column of texts, empty where there is none."""
        return str(self.row[column])

    def doubt(self, column: str, follows: str) -> Doubt:
        """That this cell cannot be right, since something else follows from the rest."""
        return Doubt(self.place.line, column, shown(self.row[column]), follows)

    def has(self, column: str) -> bool:
        """Whether its file has the column at all; an older gpubench's may lack some."""
        return column in self.place.header

    def known(self, *columns: str) -> bool:
        """Whether none of these cells is empty."""
        return all(self.row[name] != "" and self.row[name] == self.row[name] for name in columns)

    @property
    def accelerator(self) -> bool:
        """Whether it ran on another device than the CPU."""
        return not self.text("device").startswith("cpu")

    def where(self, other: "Entry") -> str:
        """The place of another row, as a message about this one says it."""
        place = other.place
        return f"line {place.line}" if place.path == self.place.path else f"{place.path}, line {place.line}"


def entry_of(place: Place, row: Mapping[str, Any]) -> Entry:
    """The row at this place."""
    try:
        laps = tuple(_lap(*each) for each in json.loads(str(row["laps"])))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return Entry(place, row, None)
    return Entry(place, row, laps)


def _lap(phase: str, epoch: int, kind: Any, steps: int, samples: int, seconds: float, wait: float) -> Lap:
    """Raises ValueError or TypeError where it is none."""
    whole = all(type(each) is int for each in (epoch, steps, samples)) and steps >= 0 and samples >= 0
    timed = math.isfinite(seconds) and math.isfinite(wait) and -LAP_SECONDS <= wait <= seconds + 2 * LAP_SECONDS
    if not (isinstance(phase, str) and kind in KINDS and whole and timed):
        raise ValueError(phase)
    return Lap(phase, epoch, kind, steps, samples, float(seconds), float(wait))


def shown(value: object) -> str:
    """A cell as a message shows it."""
    if isinstance(value, float):
        return "nothing" if math.isnan(value) else f"{value:.6g}"
    text = str(value)
    return "nothing" if not text else text if len(text) <= 60 else f"{text[:57]}..."
