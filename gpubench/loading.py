"""CSV files to one table of rows, with every problem named. Good rows are used whatever the others are."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import pandas as pd

from gpubench.records import COLUMNS, SCHEMA, Row

REQUIRED = ("schema", "suite", "model", "precision", "status")
_KINDS = {f.name: str(f.type).replace(" | None", "") for f in fields(Row)}
NUMBERS = tuple(
    name for name, kind in _KINDS.items() if kind in {"int", "float", "<class 'int'>", "<class 'float'>"}
)
FLAGS = tuple(name for name, kind in _KINDS.items() if kind in {"bool", "<class 'bool'>"})

csv.field_size_limit(1 << 30)  # a long run's laps


@dataclass(frozen=True)
class Loaded:
    """Rows of all files (one column per field of Row, numbers as numbers, missing text empty) and what was wrong."""

    frame: pd.DataFrame
    problems: list[str] = field(default_factory=list)


def load(paths: Sequence[Path]) -> Loaded:
    """Read every file; what cannot be used is left out and named in `problems`."""
    problems: list[str] = []
    frames = []
    for path in paths:
        frame = _read(path, problems)
        if frame is not None and not frame.empty:
            frames.append(frame)
    if not frames:
        empty = pd.DataFrame({name: pd.Series(dtype=str) for name in COLUMNS})
        return Loaded(_typed(empty), problems)
    return Loaded(_typed(pd.concat(frames, ignore_index=True)), problems)


def _read(path: Path, problems: list[str]) -> pd.DataFrame | None:
    try:
        content = path.read_bytes()
    except OSError as error:
        problems.append(f"{path}: cannot be read ({error.strerror})")
        return None
    if not content.strip():
        problems.append(f"{path}: empty")
        return None
    header = content[: content.find(b"\n") if b"\n" in content else None]
    names = next(csv.reader([header.decode("utf-8-sig", "replace").strip("\r")]), [])
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        problems.append(f"{path}: not a gpubench file (it has no column {', '.join(missing)})")
        return None
    if len(set(names)) != len(names):
        problems.append(f"{path}: a column stands twice in its header; left out")
        return None
    frame = _fast(content, names)
    if frame is None:
        frame = _line_by_line(path, content, names, problems)
    return _accepted(path, frame, problems)


def _fast(content: bytes, names: list[str]) -> pd.DataFrame | None:
    """The whole file at once, or None where any line needs a closer look."""
    if not content.endswith(b"\n") or b"\0" in content:
        return None
    try:
        frame = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (ValueError, pd.errors.ParserError):
        return None
    if list(frame.columns) != names or frame.isna().to_numpy().any():
        return None  # a line was shorter than the header
    return frame if not _bad(frame).any() else None


def _bad(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Rows in which a required field is empty, a number is none, or the end is missing."""
    bad = pd.Series(False, index=frame.index)
    for name in REQUIRED:
        bad |= frame[name] == ""
    if "end" in frame:
        bad |= frame["end"] != "end"  # a short line that was torn and then sealed
    for name in NUMBERS:
        if name in frame:
            wrong = pd.to_numeric(frame[name], errors="coerce").isna() & (frame[name] != "")
            bad |= wrong
    return bad


def _line_by_line(path: Path, content: bytes, names: list[str], problems: list[str]) -> pd.DataFrame:
    """Each line on its own: a row of ours never spans two, so a torn one spoils no other."""
    rows: list[list[str]] = []
    lines = content.decode("utf-8-sig", "replace").split("\n")
    torn = bool(lines[-1].strip())
    last = len(lines) if torn else len(lines) - 1
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            cells = next(csv.reader([line.rstrip("\r").replace("\0", "")]), [])
        except csv.Error:
            cells = []
        frame = pd.DataFrame([cells], columns=names) if len(cells) == len(names) else None
        whole = line.count('"') % 2 == 0 and not (torn and number == last)
        if frame is not None and whole and not _bad(frame).any():
            rows.append(cells)
        elif number == last:
            problems.append(f"{path}, line {number}: torn (its run was killed while writing it); left out")
        else:
            problems.append(f"{path}, line {number}: not a whole row; left out")
    return pd.DataFrame(rows, columns=names, dtype=str)


def _accepted(path: Path, frame: pd.DataFrame, problems: list[str]) -> pd.DataFrame | None:
    newer = pd.to_numeric(frame["schema"], errors="coerce") > SCHEMA
    if newer.any():
        version = frame["schema"][newer].iloc[0]
        problems.append(f"{path}: written by a newer gpubench (schema {version}); upgrade to read it")
        frame = frame[~newer]
    if frame.empty and not newer.any():
        problems.append(f"{path}: no rows")
    # Unknown columns are someone's own notes; missing ones are empty.
    return frame.reindex(columns=list(COLUMNS), fill_value="")


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    typed = frame.copy()
    for name in NUMBERS:
        typed[name] = pd.to_numeric(typed[name], errors="coerce")
    for name in FLAGS:
        typed[name] = typed[name] == "true"
    return typed
