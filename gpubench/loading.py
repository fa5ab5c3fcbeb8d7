"""CSV files to one table of rows, with every problem named. Good rows are used whatever the others are."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pandas as pd

from gpubench.records import COLUMNS, SCHEMA, Row

OURS = ("schema", "suite")
"""Columns that tell our files, of any schema, from other people's."""
REQUIRED = ("schema", "suite", "model", "precision", "status")
NAMED_LINES = 5
"""Bad lines named one by one; further ones are counted."""


def _columns_of(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(Row) if f.type in (kind, kind | None))


NUMBERS = _columns_of(int) + _columns_of(float)
FLAGS = _columns_of(bool)

csv.field_size_limit(1 << 30)  # a long run's laps


@dataclass(frozen=True)
class Loaded:
    """Rows of all files, and what was wrong with them.

    One column per field of Row: numbers as floats (NaN where empty), flags as bools, missing text empty.
    """

    frame: pd.DataFrame
    problems: list[str] = field(default_factory=list)


def load(paths: Sequence[Path]) -> Loaded:
    """Read every file; what cannot be used is left out and named in `problems`. Raises nothing."""
    problems: list[str] = []
    frames = []
    for path in paths:
        frame = _read(path, problems)
        if frame is not None and not frame.empty:
            frames.append(frame)
    empty = pd.DataFrame(columns=list(COLUMNS), dtype=str)
    return Loaded(_typed(pd.concat(frames, ignore_index=True) if frames else empty), problems)


def _read(path: Path, problems: list[str]) -> pd.DataFrame | None:
    try:
        content = path.read_bytes()
    except OSError as error:
        problems.append(f"{path}: cannot be read ({error.strerror})")
        return None
    if not content.strip():
        problems.append(f"{path}: empty")
        return None
    header = content.partition(b"\n")[0].decode("utf-8-sig", "replace").rstrip("\r")
    names = _split(header)
    missing = [name for name in OURS if name not in names]
    if missing:
        problems.append(f"{path}: not a gpubench file (it has no column {', '.join(missing)}); left out")
        return None
    if len(set(names)) != len(names):
        problems.append(f"{path}, line 1: a column stands twice in the header; left out")
        return None
    frame = _fast(content, names)
    if frame is None:
        frame = _line_by_line(path, content, names, problems)
    newer = _newer(frame)
    if newer.any():
        version = frame["schema"][newer].iloc[0]
        problems.append(
            f"{path}: {int(newer.sum())} row(s) by a newer gpubench (schema {version}, this one reads"
            f" {SCHEMA}); upgrade gpubench to read them"
        )
    elif frame.empty and len(content.splitlines()) < 2:
        problems.append(f"{path}: no rows")
    # Unknown columns are someone's own notes; missing ones are empty.
    return frame[~newer].reindex(columns=list(COLUMNS), fill_value="")


def _split(line: str) -> list[str]:
    """The cells of one line; none where it is no CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _fast(content: bytes, names: list[str]) -> pd.DataFrame | None:
    """The whole file at once, or None where any line needs a closer look."""
    if not content.endswith(b"\n") or b"\0" in content:
        return None
    try:
        frame = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except ValueError:  # ParserError, EmptyDataError and UnicodeDecodeError are ValueErrors
        return None
    # Lines longer than the header become an index; shorter ones leave gaps.
    whole = list(frame.columns) == names and isinstance(frame.index, pd.RangeIndex)
    if not whole or frame.isna().to_numpy().any():
        return None
    return None if _bad(frame).any() else frame


def _newer(frame: pd.DataFrame) -> "pd.Series[bool]":
    return pd.to_numeric(frame["schema"], errors="coerce") > SCHEMA


def _bad(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Rows of a known schema in which a required field is empty, a number is none, or the end is missing."""
    bad = pd.Series(False, index=frame.index)
    for name in REQUIRED:
        bad |= frame[name] == "" if name in frame else True
    if "end" in frame:
        bad |= frame["end"] != "end"  # a short line that was torn and then sealed
    for name in NUMBERS:
        if name in frame:
            text = frame[name]
            bad |= ~np.isfinite(pd.to_numeric(text, errors="coerce").astype(float)) & (text != "")
    return bad & ~_newer(frame)


def _line_by_line(path: Path, content: bytes, names: list[str], problems: list[str]) -> pd.DataFrame:
    """Each line on its own: a row of ours never spans two, so a torn one spoils no other."""
    lines = content.decode("utf-8-sig", "replace").split("\n")
    header = lines[0].rstrip("\r")
    last = len(lines)
    # A last line without a newline was torn, unless it is whole to its last cell (an editor's doing).
    torn = bool(lines[-1].strip()) and not _whole(lines[-1], names)
    rows, numbers, wrong = [], [], []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip() or line.rstrip("\r") == header:  # files joined with `cat` repeat it
            continue
        cells = _split(line.rstrip("\r").replace("\0", ""))
        if len(cells) == len(names) and line.count('"') % 2 == 0 and not (torn and number == last):
            rows.append(cells)
            numbers.append(number)
        elif torn and number == last:
            problems.append(f"{path}, line {number}: torn (its run was killed while writing it); left out")
        else:
            wrong.append(number)
    frame = pd.DataFrame(rows, columns=names, index=numbers, dtype=str)
    bad = _bad(frame)
    wrong = sorted(wrong + list(frame.index[bad]))
    problems += [f"{path}, line {number}: not a whole row; left out" for number in wrong[:NAMED_LINES]]
    if len(wrong) > NAMED_LINES:
        problems.append(f"{path}: {len(wrong) - NAMED_LINES} more lines are no whole rows; left out")
    return frame[~bad]


def _whole(line: str, names: list[str]) -> bool:
    cells = _split(line.rstrip("\r"))
    return len(cells) == len(names) and cells[-1:] == ["end"] and line.count('"') % 2 == 0


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    typed = frame.copy()
    for name in NUMBERS:
        typed[name] = pd.to_numeric(typed[name], errors="coerce").astype(float)
    for name in FLAGS:
        typed[name] = typed[name].str.lower() == "true"
    return typed
