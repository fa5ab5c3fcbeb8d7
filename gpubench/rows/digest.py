"""Finds rows that were changed after gpubench wrote them, by their digests (of row.py). read.py and lines.py call it.

A number in another spelling (`1e3` for 1000.0) is no change.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from gpubench.rows.files import File, opened, split
from gpubench.rows.row import COLUMNS, DIGEST, DIGEST_DIGITS, END, FLAGS, INTEGERS, NUMBERS, digest_of

AFTER_VALUES = len(f",{'0' * DIGEST_DIGITS},end")
"""Number of bytes of a line after its values."""
CHILD_SECONDS = 600
"""Time limit of the process that checks digests, in seconds."""
NAMED_LINES = 5
"""Most lines that are named in messages of one kind; further lines are counted."""


def edited(file: File) -> list[int]:
    """Return the line numbers of the changed rows of a file."""
    names = file.names
    if DIGEST not in names:
        return []
    as_written, sha256 = names[-2:] == (DIGEST, END), hashlib.sha256
    numbers = []
    for number, line in enumerate(file.lines, start=2):
        if as_written:  # the fast path: nearly all lines of nearly all files
            digest = sha256(line[:-AFTER_VALUES]).hexdigest()[:DIGEST_DIGITS]
            if line[-AFTER_VALUES:] == b",%b,end" % digest.encode():
                continue
        cells = split(line.decode(errors="replace"))
        # polars reads some lines with stray quotes in which Python's csv finds another number of cells.
        if line and (len(cells) != len(names) or (cells[names.index(DIGEST)] and not is_whole(names, cells))):
            numbers.append(number)
    return numbers


def is_whole(names: Sequence[str], cells: Sequence[str]) -> bool:
    """Return whether the digest of a row fits its other cells.

    Programs may have moved the columns, dropped empty ones or added others: three orders of columns are tried.
    """
    cell = dict(zip(names, cells, strict=True))
    orders = (names, [name for name in COLUMNS if name in cell], COLUMNS)
    return any(
        digest_of([_spelled(name, cell.get(name, "")) for name in order if name not in (DIGEST, END)])
        == cell.get(DIGEST)
        for order in orders
    )


def in_our_columns(names: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Return a row's cells in the order of our columns. A digest that was right is computed anew."""
    known = dict(zip(names, cells, strict=True))
    values = [known.get(name, "") for name in COLUMNS[:-2]]
    digest = known.get(DIGEST, "")
    if digest and is_whole(names, cells):
        digest = digest_of([_spelled(name, value) for name, value in zip(COLUMNS, values, strict=False)])
    return [*values, digest, "end"]


def _spelled(name: str, cell: str) -> str:
    if name in FLAGS:
        return cell.lower()
    return _number(cell, name in INTEGERS) if cell and name in NUMBERS else cell


@lru_cache(1 << 16)
def _number(cell: str, whole: bool) -> str:
    try:
        value = float(cell)
    except ValueError:
        return cell
    return str(int(value)) if whole and value.is_integer() else repr(value)


def edited_later(paths: Sequence[Path]) -> Callable[[], Mapping[Path, Sequence[int]]]:
    """Return a function that returns the numbers of the changed lines by file.

    Another process looks for them meanwhile; if it cannot, the function does.
    """
    child = ThreadPoolExecutor(1).submit(_edited_by_child, paths)
    return lambda: child.result() or edited_in(paths)


def edited_in(paths: Sequence[Path]) -> dict[Path, list[int]]:
    """Return the line numbers of the changed rows of each file that can be opened."""
    return {path: edited(file) for path in paths if (file := opened(path, []))}


def _edited_by_child(paths: Sequence[Path]) -> dict[Path, list[int]] | None:
    names = [os.path.realpath(path) for path in paths]  # in the other process, /dev/stdin is another file
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(
            command, input=json.dumps(names), capture_output=True, text=True, check=True, timeout=CHILD_SECONDS
        )
        lines = json.loads(done.stdout)
        return {path: list(lines[name]) for path, name in zip(paths, names, strict=True)}
    except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError):  # some hosts forbid new processes
        return None


def named(path: Path, lines: Sequence[int]) -> list[str]:
    """Return the problems of a file in which these lines were changed."""
    problems = [f"{path}, line {line}: changed after gpubench wrote it (row_digest); used" for line in lines]
    more = len(lines) - NAMED_LINES
    if more > 0:
        problems[NAMED_LINES:] = [f"{path}: {more} more lines were changed, by hand or by a program; used"]
    return problems


if __name__ == "__main__":
    lines_by_path = edited_in([*map(Path, json.load(sys.stdin))])
    json.dump({str(path): lines for path, lines in lines_by_path.items()}, sys.stdout)
