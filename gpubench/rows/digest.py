"""Finds rows that were changed since gpubench wrote them, by their digest. Another spelling of a number is none."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from gpubench.rows.files import File, split
from gpubench.rows.row import COLUMNS, DIGEST, DIGEST_DIGITS, END, FLAGS, INTEGERS, NUMBERS, digest_of

AFTER_VALUES = len(f",{'0' * DIGEST_DIGITS},end")
"""Bytes of a line that follow its values."""
NAMED_LINES = 5
"""Lines of one kind that are named one by one; further ones are counted."""


def edited(file: File) -> list[int]:
    """The numbers of the whole lines whose values are not those that they were written with."""
    names, content = file.names, file.content
    if DIGEST not in names:
        return []
    ends = [*file.newlines.tolist(), len(content)]
    spans = [(start + 1, end) for start, end in pairwise(ends)]
    suspects: Iterable[int] = range(len(spans))
    if tuple(names[-2:]) == (DIGEST, END):  # as they were written, which nearly all are: a million take a second
        view, hashed = memoryview(content), hashlib.sha256
        suspects = [
            at
            for at, (start, end) in enumerate(spans)
            if content[end - AFTER_VALUES : end]
            != b",%b,end" % hashed(view[start : end - AFTER_VALUES]).hexdigest()[:DIGEST_DIGITS].encode()
        ]
    found = []
    for at in suspects:
        cells = split(content[slice(*spans[at])].decode(errors="replace").rstrip("\r"))
        if len(cells) == len(names) and cells[names.index(DIGEST)] and not is_whole(names, cells):
            found.append(at + 2)
    return found


def is_whole(names: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether the digest among these cells is that of the others.

    Columns that nobody here knows are a newer gpubench's, or somebody's notes. A program may have moved columns, or
    dropped those that are empty.
    """
    cell = dict(zip(names, cells, strict=True))
    orders = (names, [name for name in COLUMNS if name in cell], COLUMNS)
    return any(
        digest_of([_spelled(name, cell.get(name, "")) for name in order if name not in (DIGEST, END)]) == cell[DIGEST]
        for order in orders
    )


def in_our_columns(names: Sequence[str], cells: Sequence[str]) -> list[str]:
    """The cells of a row of another table as those of ours, whole where they were; other columns are left out."""
    known = dict(zip(names, cells, strict=True))
    values = [known.get(name, "") for name in COLUMNS[:-2]]
    digest = known.get(DIGEST, "")
    if digest and is_whole(names, cells):
        digest = digest_of([_spelled(name, value) for name, value in zip(COLUMNS, values, strict=False)])
    return [*values, digest, "end"]


def _spelled(name: str, cell: str) -> str:
    """The cell as `to_cells` spells its value."""
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


def named(path: Path, lines: Sequence[int]) -> list[str]:
    """What is said of a file in which these lines were changed."""
    found = [f"{path}, line {line}: changed after gpubench wrote it (row_digest); used" for line in lines[:NAMED_LINES]]
    if len(lines) > NAMED_LINES:
        found.append(
            f"{path}: {len(lines) - NAMED_LINES} more lines were changed, by hand or by a program that saved them; used"
        )
    return found
