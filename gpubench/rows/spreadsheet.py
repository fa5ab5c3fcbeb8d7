"""Tables as CSV for a spreadsheet: a field that a program would take for a formula is shown as text."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of what spreadsheets execute (OWASP, CSV injection)."""

_SUSPECT = re.compile(rb'(^|,)"?[=+\-@\t\r]')


def neutral(value: object) -> str:
    """The value as text that no spreadsheet executes; numbers, a minus included, stay as they are."""
    text = str(value)
    if isinstance(value, int | float) or not text.startswith(STARTS) or _is_number(text):
        return text
    return "'" + text


def csv_text(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """The whole table; None and NaN are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(neutral, header))
    writer.writerows([_cell(value) for value in line] for line in lines)
    return out.getvalue()


def neutral_table(table: bytes) -> bytes:
    """Return a table of rows whose texts no spreadsheet executes; other lines stay as they are.

    The digest of a row that changes stays, so that gpubench names the change where it reads the table.
    """
    lines = table.split(b"\n")
    for at, line in enumerate(lines):
        if _SUSPECT.search(line):
            cells = next(csv.reader([line.decode()]))
            lines[at] = csv_text(cells, []).rstrip("\n").encode()
    return b"\n".join(lines)


def _cell(value: object) -> str:
    return "" if value is None or (isinstance(value, float) and value != value) else neutral(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
