"""Reads the JSON in a row's fields; a `table`, a suite's own lines by column, is empty where the text is none."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PLAUSIBLE = (1e-50, 1e50)
"""Between these a figure of any unit lies, or it is 0; products and quotients of some are numbers too."""
BROKEN = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""What reading a field raises that is no JSON, is nested too deep, or is another thing than it should be."""


def number(value: object) -> float:
    """A figure of such a field; raises ValueError for any other."""
    if isinstance(value, int | float) and (value == 0 or PLAUSIBLE[0] <= abs(value) <= PLAUSIBLE[1]):
        return float(value)
    raise ValueError("not a figure")


def parsed(text: object) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns of a row's `table`, and its lines by column; neither where it is empty or broken.

    Version 0.2 imported entries of DAWNBench: their tables begin with an object, which is not a line.
    """
    try:
        content = json.loads(str(text))
        names, *lines = content[1:] if isinstance(content[0], dict) else content
        return list(names), [dict(zip(names, line, strict=True)) for line in lines]
    except BROKEN:
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
    except BROKEN:
        return []


def _hours(table: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    if table and "epoch" not in table[0]:
        return [(int(number(line["size"])), number(line["hours"])) for line in table]
    if not table or table[0]["epoch"] != 1:
        return []
    found: dict[int, float] = {}
    before = 0.0
    for line in table:
        size, hours = int(number(line["size"])), number(line["hours"])
        found[size] = found.get(size, 0.0) + hours - before
        before = hours
    return list(found.items())


MOST = 10**6
"""No run has more epochs, or hours."""


@dataclass(frozen=True)
class Epoch:
    """A line of a table that goes on epoch by epoch; None where the table does not say."""

    number: int
    hours: float
    """Since the beginning of the run."""
    top1: float | None
    top5: float | None
    """Shares, 0.93 for 93%."""
    size: int | None
    """Pixels."""


def epochs_in(text: object) -> list[Epoch]:
    """The epochs of a table that has their hours; none where it is another, or broken.

    Of several lines of an epoch the first counts: the last epoch of imagenet is scored on other crops too.
    """
    found: dict[int, Epoch] = {}
    for line in table_of(text):
        epoch = _epoch(line)
        if epoch is not None:
            found.setdefault(epoch.number, epoch)
    return list(found.values())


def _epoch(line: Mapping[str, Any]) -> Epoch | None:
    number, hours, size = (_figure(line.get(name)) for name in ("epoch", "hours", "size"))
    if number is None or hours is None or not (0 <= number <= MOST and 0 <= hours <= MOST):
        return None
    return Epoch(int(number), hours, _share(line, "top1"), _share(line, "top5"), None if size is None else int(size))


def _share(line: Mapping[str, Any], name: str) -> float | None:
    """Ours, or DAWNBench's, which is in per cent."""
    share = _figure(line.get(name))
    percent = _figure(line.get(f"{name}Accuracy"))
    share = percent / 100 if share is None and percent is not None else share
    return share if share is not None and 0 <= share <= 1 else None


def _figure(value: object) -> float | None:
    """None where it is no finite number: empty, `N/A`."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
