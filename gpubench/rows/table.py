"""Reads the JSON of a row's `table` column: a suite's own lines, such as one per epoch. Broken text gives no lines."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PLAUSIBLE = (1e-50, 1e50)
"""Smallest and largest figure other than 0 that is used, so that products and quotients do not overflow."""
LONGEST = 10**6
"""Upper limit of epochs, of hours, and of the pixels of an image's side."""
BROKEN = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""Errors of reading a field that is no JSON, is nested too deep, or has a value of a wrong type."""


def number(value: object) -> float:
    """Return a figure from the JSON as a float. Raises ValueError if it is no figure, or not plausible."""
    if isinstance(value, int | float) and (value == 0 or PLAUSIBLE[0] <= abs(value) <= PLAUSIBLE[1]):
        return float(value)
    raise ValueError("not a figure")


def table_of(text: object) -> list[dict[str, Any]]:
    """Return the lines of a row's `table`, by column; none if the text is empty or broken.

    Version 0.2 imported entries of DAWNBench, whose tables begin with an object before the columns.
    """
    try:
        content = json.loads(str(text))
        names, *lines = content[1:] if isinstance(content[0], dict) else content
        return [dict(zip(map(str, names), line, strict=True)) for line in lines]
    except BROKEN:
        return []


def stages_in(text: str) -> list[dict[str, Any]]:
    """Return the lines of a table with hours and image sizes; none for another table, or broken text."""
    table = table_of(text)
    return table if table and {"hours", "size"} <= set(table[0]) else []


def hours_by_size(table: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Return (pixels, hours) of each stage, or of each image size if the lines are epochs, in order.

    A line is a stage with its hours, or an epoch with the hours since the beginning. Other tables give an empty list.
    """
    try:
        if table and "epoch" not in table[0]:
            return [(int(number(line["size"])), number(line["hours"])) for line in table]
        if not table or table[0]["epoch"] != 1:
            return []
        by_size: dict[int, float] = defaultdict(float)
        before = 0.0
        for line in table:
            hours = number(line["hours"])
            by_size[int(number(line["size"]))] += hours - before
            before = hours
        return list(by_size.items())
    except BROKEN:
        return []


@dataclass(frozen=True)
class Epoch:
    """A line of a table with a line per epoch; None for missing figures."""

    number: int
    hours: float
    """Since the beginning of the run."""
    top1: float | None
    top5: float | None
    """Shares, 0.93 for 93%."""
    size: int | None
    """Pixels."""


def epochs_in(text: object) -> list[Epoch]:
    """Return the epochs of a table with hours; empty for another table, or broken text.

    If an epoch has several lines, the first is used: imagenet scores the last epoch on other crops too.
    """
    epochs: dict[float, Epoch] = {}
    for line in table_of(text):
        at, hours, size = (_figure(line.get(name), LONGEST) for name in ("epoch", "hours", "size"))
        if at is not None and hours is not None and at not in epochs:
            top1, top5 = (_share(line, name) for name in ("top1", "top5"))
            epochs[at] = Epoch(int(at), hours, top1, top5, None if size is None else int(size))
    return list(epochs.values())


def _share(line: Mapping[str, Any], name: str) -> float | None:
    """Return an accuracy as a share, or None. In tables of DAWNBench it is in per cent."""
    percent = _figure(line.get(f"{name}Accuracy"), 100)
    return _figure(line.get(name), 1) if percent is None else percent / 100


def _figure(value: object, most: float) -> float | None:
    """Return a number from 0 to `most`; None for any other value, such as `N/A`."""
    try:
        figure = float(str(value))
    except ValueError:
        return None
    return figure if 0 <= figure <= most else None
