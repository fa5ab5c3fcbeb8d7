"""Reads a CSV file line by line if polars cannot read it at once: uses good lines, reports bad, torn and newer ones."""

import math
import re
from collections.abc import Mapping, Sequence

from gpubench.rows.column import breaks, in_words
from gpubench.rows.digest import NAMED_LINES, edited, in_our_columns, is_whole, named
from gpubench.rows.files import REQUIRED, File, split
from gpubench.rows.row import ABOUT, END, INTEGERS, NUMBERS, SCHEMA

NOT_WHOLE = "not a whole row"
LOST = "\0"
"""The text of a line that is not UTF-8."""
LONGEST_NUMBER = 24
"""Most characters of a wrong number in a message."""
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)


def good_rows(file: File, problems: list[str]) -> dict[int, list[str]]:
    """Return the cells of the good rows, in our columns, by line number; report bad and changed rows in `problems`.

    gpubench writes a row in one line, so that a torn line damages no other.
    """
    path, names, lines = file.path, file.names, [_text(line) for line in file.lines]
    last = len(lines) + 1
    # A last line without a newline is torn, unless it is complete: editors drop the last newline, and may move `end`.
    cells = _cells(lines[-1], names)
    torn = bool(lines[-1].strip()) and cells[-1:] != ["end"] and not (cells and is_whole(names, cells))
    rows, wrong, newer = dict[int, list[str]](), dict[int, str](), list[str]()
    for number, line in enumerate(lines, start=2):
        if not line.strip() or line.lstrip("\ufeff") == file.header:  # files joined with `cat` repeat it
            continue
        cells = _cells(line, names)
        by_name = dict(zip(names, cells, strict=False))
        if torn and number == last:
            problems.append(f"{path}, line {number}: torn (its run was killed while writing it); left out")
        elif cells and SCHEMA < number_of(by_name["schema"]) < math.inf:
            newer.append(by_name["schema"])
        elif why := _fault(by_name):
            wrong[number] = why
        else:
            rows[number] = in_our_columns(names, cells)
    problems += [f"{path}, line {number}: {why}; left out" for number, why in [*wrong.items()][:NAMED_LINES]]
    if len(wrong) > NAMED_LINES:
        problems.append(f"{path}: {len(wrong) - NAMED_LINES} more lines are no whole rows; left out")
    problems += named(path, [line for line in edited(file) if line in rows])
    if newer:
        what = f"{len(newer)} row(s) by a newer gpubench (schema {newer[0]}, this one reads {SCHEMA})"
        problems.append(f"{path}: {what}; upgrade gpubench to read them")
    elif not file.body.strip():
        problems.append(f"{path}: no rows")
    return rows


def _text(line: bytes) -> str:
    """Return the line as text, or LOST if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return LOST


def _cells(line: str, names: Sequence[str]) -> list[str]:
    """Return the cells of a line; an empty list if their number is wrong or a quote is open."""
    cells = split(line) if LOST not in line and line.count('"') % 2 == 0 else []
    return cells if len(cells) == len(names) else []


def _fault(cells: Mapping[str, str]) -> str:
    """Return the fault of a row, given its cells by column; an empty text if it has none.

    Faults: an empty required cell, a missing end, a text in place of a number, a number out of its column's range.
    """
    if not all(cells.get(name) for name in REQUIRED) or cells.get(END, "end") != "end":
        return NOT_WHOLE
    numbers = {name: number_of(cells[name]) for name in NUMBERS if cells.get(name, "").strip()}
    for name, value in numbers.items():
        is_number = math.isfinite(value)
        if not is_number or breaks(value, ABOUT[name].allowed, whole=name in INTEGERS):
            text = cells[name] if len(cells[name]) <= LONGEST_NUMBER else f"{cells[name][:LONGEST_NUMBER]}..."
            wanted = in_words(ABOUT[name].allowed, whole=name in INTEGERS) if is_number else "a number"
            return f"{name} is {text}, not {wanted}"
    return ""


def number_of(text: str) -> float:
    """Return a cell as a number; NaN if it is none."""
    number = text.strip()  # str.strip() removes more characters than float() does
    return float(number) if _NUMBER.fullmatch(number) else math.nan
