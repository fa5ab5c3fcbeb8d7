"""Describes a column of the row: its meaning, source, unit, digits, role and range. rows/row.py uses it."""

import math
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DIGITS = 6
"""Significant digits of a measured figure: finer than trials differ, and short in the file."""
EXACT = 2**53
"""Whole numbers up to this one are exact in a float, the type in which they are read."""


@dataclass(frozen=True)
class Range:
    """The numbers that a column allows."""

    words: str = ""
    """The range in messages, after `a number` or `a whole number`."""
    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    """Whether `least` itself is not allowed."""


ANY = Range()
POSITIVE = Range("above 0", 0, above=True)
NOT_NEGATIVE = Range("from 0", 0)
SHARE = Range("from 0 to 1", 0, 1)
AT_MOST_1 = Range("up to 1", most=1)
"""For shares that noise can make negative."""
CELSIUS = Range("above absolute zero", -273.15)


class Role(Enum):
    """Kind of fact in a column. It decides which rows are alike (see rows/alike.py)."""

    RECIPE = "what was run: rows that differ in it are never compared, nor listed in one table"
    SCALE = "what was run, in columns that may change with the number of processes"
    ORIGIN = "where the time comes from: measured or projected, published by whom"
    CASE = "what was run; a table can have several: models, precisions, batch policies"
    BATCH = "batch size: rows with different fixed batches are never compared"
    SPECIMEN = "device and run: only trials of one device in one run are pooled"
    SOFTWARE = "version of the software: no verdict between different minor versions"
    SETTING = "setting of device or software: no verdict between different settings"
    LINK = "connection of the processes: no verdict between different ones, unless one is unknown (empty)"
    CODE = "version of the timed code"
    HOST = "host: a resumed run needs the same one"
    FIGURE = "measured figure, of which a group shows the median"
    RECORD = "any other fact: it does not distinguish rows"


@dataclass(frozen=True)
class Column:
    """The description of a column; its name and type are those of the field."""

    doc: str
    """Its line in results/README.md."""
    source: str
    """Where its value comes from: `case` means the case's field of the same name, `trial.index` the trial's `index`.

    `record`: runner/record.py computes it. A column without a source keeps its default.
    """
    unit: str = ""
    digits: int | None = None
    """Significant digits in the file; None: all."""
    title: str = ""
    """Name of a quality in results; empty if results do not show it."""
    better: Literal["", "higher", "lower"] = ""
    allowed: Range = ANY
    role: Role = Role.RECORD


def column(source: str, doc: str, default: str | int | None = "", *, role: Role = Role.RECORD) -> Any:
    """Declare a column of texts or of flags."""
    return field(default=default, metadata={"column": Column(doc, source, role=role)})


def number(source: str, unit: str, doc: str, allowed: Range = NOT_NEGATIVE, *, role: Role = Role.RECORD) -> Any:
    """Declare a column of numbers that are not rounded."""
    return field(default=None, metadata={"column": Column(doc, source, unit, allowed=allowed, role=role)})


def figure(source: str, unit: str, doc: str, allowed: Range = NOT_NEGATIVE, *, role: Role = Role.RECORD) -> Any:
    """Declare a column of measured numbers, rounded to DIGITS."""
    return field(default=None, metadata={"column": Column(doc, source, unit, DIGITS, allowed=allowed, role=role)})


def quality(
    unit: str,
    doc: str,
    *,
    title: str = "",
    better: Literal["higher", "lower"] = "higher",
    allowed: Range = NOT_NEGATIVE,
) -> Any:
    """Declare a column with what a suite's training returns under this name after a whole run on real data."""
    about = Column(doc, "quality", unit, DIGITS, title, better, allowed, Role.FIGURE)
    return field(default=None, metadata={"column": about})


def breaks(
    numbers: "float | npt.NDArray[np.float64]", allowed: Range, *, whole: bool
) -> "bool | npt.NDArray[np.bool_]":
    """Return whether a number, or each number of an array, is outside the range. NaN (an empty cell) is not.

    Infinity is always outside. If `whole`, so are fractions and numbers beyond EXACT.
    """
    least, most = (max(allowed.least, -EXACT), min(allowed.most, EXACT)) if whole else (allowed.least, allowed.most)
    broken = (numbers < least) | (numbers > most) | (abs(numbers) == math.inf)
    if allowed.above:
        broken |= numbers == allowed.least
    if whole:
        broken |= numbers % 1 > 0
    return broken


def in_words(allowed: Range, *, whole: bool) -> str:
    """Return the allowed numbers in words: `a whole number above 0, at most 2^53`."""
    if not whole:
        return f"a number {allowed.words}".strip()
    return f"a whole number {allowed.words}, at most 2^53".replace(" ,", ",")


def columns_markdown(row: type) -> str:
    """Return the columns of a row's class as a Markdown table, for results/README.md and `gpubench columns`."""
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for f in fields(row):
        kind = str(f.type).replace(" | None", "").replace("<class '", "").replace("'>", "")
        about = f.metadata["column"]
        lines.append(f"| `{f.name}` | {f'{kind} {about.allowed.words}'.strip()} | {about.unit} | {about.doc} |")
    return "\n".join(lines) + "\n"
