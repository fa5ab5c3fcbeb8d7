"""Tables as CSV for a spreadsheet: a field that a program would take for a formula is shown as text."""

import csv
import io
from collections.abc import Iterable, Sequence

STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of what spreadsheets execute (OWASP, CSV injection)."""


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


def _cell(value: object) -> str:
    return "" if value is None or (isinstance(value, float) and value != value) else neutral(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
