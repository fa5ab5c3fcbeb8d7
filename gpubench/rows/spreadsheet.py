"""Writes CSV tables that are safe in a spreadsheet: it executes no cell as a formula."""

import csv
import re
from collections.abc import Iterable, Sequence

from gpubench.rows.files import csv_line
from gpubench.rows.lines import number_of

STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that spreadsheets execute (OWASP, CSV injection)."""
_SUSPECT = re.compile(rb'(^|,)"?[=+\-@\t\r]')


def neutral(value: object) -> str:
    """Return the value as text that no spreadsheet executes: formulas get an apostrophe, negative numbers do not."""
    text = str(value)
    is_number = isinstance(value, int | float) or number_of(text) == number_of(text)
    return text if is_number or not text.startswith(STARTS) else f"'{text}"


def csv_text(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return the table as CSV; None and NaN become empty cells."""
    return "".join(f"{csv_line(map(_cell, line))}\n" for line in [header, *lines])


def neutral_table(table: bytes) -> bytes:
    """Return a CSV of rows, changed so that no spreadsheet executes a cell. Lines without formulas are unchanged.

    A changed row keeps its digest, so that gpubench reports the change when it reads the table.
    """
    lines = table.split(b"\n")
    for at, line in enumerate(lines):
        if _SUSPECT.search(line):
            cells = next(csv.reader([line.decode()]))
            lines[at] = csv_line(map(neutral, cells)).encode()
    return b"\n".join(lines)


def _cell(value: object) -> str:
    return "" if value is None or (isinstance(value, float) and value != value) else neutral(value)
