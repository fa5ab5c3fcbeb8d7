"""The `table` of a row: lines by column. CSVs come from anywhere, so what is no table is none."""

import json
from typing import Any


def parsed(text: object) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns of a row's `table`, and its lines by column; neither where it is empty or broken."""
    try:
        names, *lines = json.loads(str(text))
        return list(names), [dict(zip(names, line, strict=True)) for line in lines]
    except (ValueError, TypeError):  # no JSON, no list, lines of another length
        return [], []


def table_of(text: object) -> list[dict[str, Any]]:
    """The lines alone."""
    return parsed(text)[1]
