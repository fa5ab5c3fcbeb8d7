"""Reads the column `table` of a row, a suite's own lines by column; text that is no such table gives an empty one."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def parsed(text: object) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns of a row's `table`, and its lines by column; neither where it is empty or broken."""
    try:
        names, *lines = json.loads(str(text))
        return list(names), [dict(zip(names, line, strict=True)) for line in lines]
    except (ValueError, TypeError, OverflowError, RecursionError):  # no JSON, no list, lines of another length
        return [], []


def table_of(text: object) -> list[dict[str, Any]]:
    """The lines alone."""
    return parsed(text)[1]


def stages_in(text: str) -> list[dict[str, Any]] | None:
    """The lines of a table that has hours and image sizes; None where it is another, or broken."""
    columns, table = parsed(text)
    return table if {"hours", "size"} <= set(columns) else None


def hours_by_size(table: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """(pixels, hours) of each stage, in order.

    Lines are stages with their own hours, or epochs with the hours since the beginning; those of epochs begin
    with the first, else nobody could tell what came before.
    """
    try:
        return _hours(table)
    except (ValueError, TypeError, OverflowError):  # figures that are none
        return []


def _hours(table: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    if table and "epoch" not in table[0]:
        return [(int(line["size"]), float(line["hours"])) for line in table]
    if not table or table[0]["epoch"] != 1:
        return []
    found: dict[int, float] = {}
    before = 0.0
    for line in table:
        found[int(line["size"])] = found.get(int(line["size"]), 0.0) + float(line["hours"]) - before
        before = float(line["hours"])
    return list(found.items())
