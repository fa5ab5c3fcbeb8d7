"""Parses a CSV line by line where pandas cannot: each bad line is named, and the others are used."""

import codecs
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpubench.rows.column import breaks, in_words
from gpubench.rows.digest import NAMED_LINES, edited, in_our_columns, named
from gpubench.rows.files import File, split
from gpubench.rows.row import ABOUT, COLUMNS, DIGEST, END, INTEGERS, NUMBERS, SCHEMA

REQUIRED = ("schema", "suite", "model", "precision", "status")
NOT_WHOLE = "not a whole row"
SAID = 24
"""Letters of a wrong number that are repeated."""


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
    return pd.to_numeric(frame["schema"], errors="coerce").between(SCHEMA, np.inf, inclusive="neither")


def _wrong(frame: pd.DataFrame) -> dict[int, str]:
    """By line what is wrong with a row of a known schema.

    A required field is empty, the end is missing, or a number is none, or none that its column may hold.
    """
    newer = _newer(frame)
    bad = pd.Series(False, index=frame.index)
    for name in REQUIRED:
        bad |= frame[name] == "" if name in frame else True
    if END in frame:
        bad |= frame[END] != "end"  # a short line that was torn and then sealed
    texts = frame[[name for name in frame if name in NUMBERS]]
    numbers = _numbers(texts)
    bad |= (~np.isfinite(numbers) & (texts != "").to_numpy()).any(axis=1)
    found = dict.fromkeys(frame.index[bad & ~newer], NOT_WHOLE)
    for name, values in zip(map(str, texts), numbers.T, strict=True):
        broken = may_not_hold(name, values)
        for line in frame.index[broken & ~bad & ~newer] if broken.any() else ():
            allowed = in_words(ABOUT[name].allowed, whole=name in INTEGERS)
            said = str(frame.at[line, name])
            said = said if len(said) <= SAID else f"{said[:SAID]}..."
            found.setdefault(line, f"{name} is {said}, not {allowed}")
    return found


def may_not_hold(name: str, values: "np.ndarray[Any, np.dtype[np.float64]]") -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Which of these numbers are none that the column may hold; NaN is an empty cell."""
    return breaks(values, ABOUT[name].allowed, whole=name in INTEGERS)


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
    lines = [_text(line.rstrip(b"\r")) for line in file.content.removeprefix(codecs.BOM_UTF8).split(b"\n")]
    header, last = lines[0], len(lines)
    # A last line without a newline was torn, unless it is whole to its last cell (an editor's doing).
    torn = bool(lines[-1].strip()) and not _whole(lines[-1], names)
    rows, wrong = dict[int, list[str]](), dict[int, str]()
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip() or line == header:  # files joined with `cat` repeat it
            continue
        cells = split(line) if "\0" not in line else []
        if len(cells) == len(names) and line.count('"') % 2 == 0 and not (torn and number == last):
            rows[number] = [cells[at] for at in known]
        elif torn and number == last:
            problems.append(f"{path}, line {number}: torn (its run was killed while writing it); left out")
        else:
            wrong[number] = NOT_WHOLE
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=[names[at] for at in known], dtype=str)
    wrong = dict(sorted({**wrong, **_wrong(frame)}.items()))
    problems += [f"{path}, line {number}: {why}; left out" for number, why in [*wrong.items()][:NAMED_LINES]]
    if len(wrong) > NAMED_LINES:
        problems.append(f"{path}: {len(wrong) - NAMED_LINES} more lines are no whole rows; left out")
    good = frame.drop(index=[line for line in wrong if line in frame.index])
    problems += named(path, [line for line in edited(file) if line in good.index])
    if DIGEST in names and names != COLUMNS:
        good[DIGEST] = [in_our_columns(names, split(lines[line - 1]))[-2] for line in good.index]
    return good


def _text(line: bytes) -> str:
    """The line as text; one that is none has a NUL, as a line with a lost byte has."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return "\0"


def _whole(line: str, names: Sequence[str]) -> bool:
    cells = split(line)
    return len(cells) == len(names) and cells[-1:] == ["end"] and line.count('"') % 2 == 0


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of `good_rows` with numbers for texts where a column has them."""
    known = [name for name in frame if name in NUMBERS]
    texts = frame.drop(columns=known).astype(object)
    return pd.concat([texts, pd.DataFrame(_numbers(frame[known]), index=frame.index, columns=known)], axis=1)
