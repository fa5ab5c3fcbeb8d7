"""The `table` of a row: lines by column. CSVs come from anywhere, so what is no table is none."""

import json
from typing import Any


def table_of(text: object) -> list[dict[str, Any]]:
    """The lines of a row's `table`, by column; none where it is empty or broken."""
    try:
        names, *lines = json.loads(str(text))
        return [dict(zip(names, line, strict=True)) for line in lines]
    except (ValueError, TypeError):  # no JSON, no list, lines of another length
        return []
