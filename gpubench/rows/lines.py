"""Parses a CSV line by line where pandas cannot: each bad line is named, and the others are used."""

import codecs
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpubench.rows.files import File, split
from gpubench.rows.row import COLUMNS, NUMBERS, SCHEMA

REQUIRED = ("schema", "suite", "model", "precision", "status")
NAMED_LINES = 5
"""Bad lines named one by one; further ones are counted."""


def good_rows(file: File, problems: list[str]) -> pd.DataFrame:
    """The good rows of one file as text, each line on its own; what is wrong with the others goes to `problems`."""
    frame = _line_by_line(file, problems)
    newer = _newer(frame)
    if newer.any():
        version = frame["schema"][newer].iloc[0]
        problems.append(
            f"{file.path}: {int(newer.sum())} row(s) by a newer gpubench (schema {version}, this one reads"
            f" {SCHEMA}); upgrade gpubench to read them"
        )
    elif frame.empty and not bytes(file.body).strip():
        problems.append(f"{file.path}: no rows")
    return frame[~newer]


def _newer(frame: pd.DataFrame) -> "pd.Series[bool]":
    return pd.to_numeric(frame["schema"], errors="coerce") > SCHEMA


def _bad(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Rows of a known schema in which a required field is empty, a number is none, or the end is missing."""
    bad = pd.Series(False, index=frame.index)
    for name in REQUIRED:
        bad |= frame[name] == "" if name in frame else True
    if "end" in frame:
        bad |= frame["end"] != "end"  # a short line that was torn and then sealed
    texts = frame[[name for name in frame if name in NUMBERS]]
    none = (~np.isfinite(_numbers(texts)) & (texts != "").to_numpy()).any(axis=1)
    wrong: pd.Series[bool] = (bad | pd.Series(none, index=frame.index)) & ~_newer(frame)
    return wrong


def _numbers(texts: pd.DataFrame) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Every text as a number, NaN where it is none."""
    flat = texts.to_numpy(dtype=object).ravel()
    found = np.array(pd.to_numeric(pd.Series(flat), errors="coerce"), dtype=float)
    known = np.isfinite(found)
    found[known] = flat[known].astype(float)  # pandas tells what a number is, and before 3.1 is off by a bit
    return found.reshape(texts.shape)


def _line_by_line(file: File, problems: list[str]) -> pd.DataFrame:
    """Each line on its own: a row of ours never spans two, so a torn one spoils no other."""
    path, names = file.path, file.names
    known = [number for number, name in enumerate(names) if name in COLUMNS]
    lines = [_text(line) for line in file.content.removeprefix(codecs.BOM_UTF8).split(b"\n")]
    header = lines[0].rstrip("\r")
    last = len(lines)
    # A last line without a newline was torn, unless it is whole to its last cell (an editor's doing).
    torn = bool(lines[-1].strip()) and not _whole(lines[-1], names)
    rows, numbers, wrong = [], [], []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip() or line.rstrip("\r") == header:  # files joined with `cat` repeat it
            continue
        cells = split(line.rstrip("\r")) if "\0" not in line else []
        if len(cells) == len(names) and line.count('"') % 2 == 0 and not (torn and number == last):
            rows.append([cells[at] for at in known])
            numbers.append(number)
        elif torn and number == last:
            problems.append(f"{path}, line {number}: torn (its run was killed while writing it); left out")
        else:
            wrong.append(number)
    frame = pd.DataFrame(rows, columns=[names[at] for at in known], index=numbers, dtype=str)
    bad = _bad(frame)
    wrong = sorted(wrong + list(frame.index[bad]))
    problems += [f"{path}, line {number}: not a whole row; left out" for number in wrong[:NAMED_LINES]]
    if len(wrong) > NAMED_LINES:
        problems.append(f"{path}: {len(wrong) - NAMED_LINES} more lines are no whole rows; left out")
    return frame[~bad]


def _text(line: bytes) -> str:
    """The line as text; one that is none has a NUL, as a line with a lost byte has."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return "\0"


def _whole(line: str, names: Sequence[str]) -> bool:
    cells = split(line.rstrip("\r"))
    return len(cells) == len(names) and cells[-1:] == ["end"] and line.count('"') % 2 == 0


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of `good_rows` with numbers for texts where a column has them."""
    known = [name for name in frame if name in NUMBERS]
    texts = frame.drop(columns=known).astype(object)
    return pd.concat([texts, pd.DataFrame(_numbers(frame[known]), index=frame.index, columns=known)], axis=1)
