"""Numbers as text, rounded to their significant digits. Modules that show results as texts or charts call it."""

import math
from collections.abc import Iterator
from statistics import fmean, geometric_mean

from gpubench.printed import size_text
from gpubench.studies.section import Answer, Column, Estimate, Result, Table, Value
from gpubench.studies.words import time_unit

LEAST_P = 0.0001
"""Smaller p values are shown as `<0.0001`."""


def filled_columns(table: Table) -> Iterator[tuple[Column, list[Value], list[str]]]:
    """Yield each column that is not empty, with its values and their texts."""
    for at, column in enumerate(table.columns):
        values = [line[at] for line in table.lines]
        texts = [cell_text(value, column) for value in values]
        if any(texts):
            yield column, values, texts


def cell_text(value: Value, column: Column) -> str:
    """Return a cell of a table as text, without its interval; empty for None."""
    if isinstance(value, Estimate):
        half = (value.high - value.low) / 2 if value.low is not None and value.high is not None else None
        return number(value.value, column, half)
    if isinstance(value, tuple):
        return ", ".join(f"{figure:,.0f}" if figure >= 1e5 else f"{figure:.6g}" for figure in value)
    return value if isinstance(value, str) else "" if value is None else number(value, column)


def interval_text(value: Value, column: Column) -> str:
    """Return an interval as text, `1.33 to 1.58`; empty where there is none."""
    if not isinstance(value, Estimate) or value.low is None or value.high is None:
        return ""
    half = (value.high - value.low) / 2
    return f"{number(value.low, column, half)} to {number(value.high, column, half)}"


def number(value: float, column: Column, half_width: float | None = None) -> str:
    """Return a figure in the unit of its column; `half_width` is half the width of its interval."""
    if not math.isfinite(value):
        return ""
    if column.places is not None:
        return f"{100 * value:.{column.places}f}%" if column.unit == "share" else f"{value:,.{column.places}f}"
    match column.unit:
        case "share":
            return f"{value:.1%}"
        case "ratio":
            return f"{value:.{1 if value >= 10 else 3 if (half_width and half_width < 0.02) or value < 0.1 else 2}f}"
        case "bytes":
            return size_text(value)
        case "count":
            return f"{value:,.0f}"
        case "points":
            return f"{value:.2f}"
        case "p" if value < LEAST_P:
            return f"<{LEAST_P:.4f}"
    return significant(value, half_width)


def significant(value: float, half_width: float | None = None) -> str:
    """Return the value with three digits, or with the digits that are significant for an interval of +-`half_width`."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    digits = 3 if not half_width else math.ceil(math.log10(abs(value) / half_width)) + 1
    decimals = max(0, min(max(digits, 2), 6) - 1 - magnitude)
    return f"{value:.3g}" if decimals > 6 else f"{value:,.{decimals}f}"


def read_of(answer: Answer) -> list[str]:
    """Return how many files and rows were read; if the answer covers all, also how many rows were not compared."""
    files = f"{answer.files:,} file{'s' * (answer.files != 1)}"
    rows = f"{answer.rows:,} row{'s' * (answer.rows != 1)}"
    if not answer.rows:
        return [f"{files}, no rows."] if answer.files else []
    if answer.about < answer.rows:
        return [f"{answer.about:,} of {rows}{f' in {files}' if answer.files else ''}."]
    sentences = [f"{files}, {rows}." if answer.files else f"{rows}."]
    sentences += [f"{answer.unread} file{'s' * (answer.unread > 1)} not read."] * bool(answer.unread)
    sentences += [f"{answer.stopped:,} trial{'s' * (answer.stopped > 1)} not finished."] if answer.stopped else []
    what = "a usable time" if answer.metric == "seconds" else f"a figure for {answer.metric}"
    sentences += [f"{answer.failed - answer.stopped:,} without {what}."] * (answer.failed > answer.stopped)
    sentences += [f"{answer.missed:,} run{'s' * (answer.missed > 1)} missed the goal."] if answer.missed else []
    return sentences


def sides_of(result: Result, unit: str) -> str:
    """Return the figures of the subject and the baseline, such as `28/35 min`: means over the models."""
    if not result.parts:
        return ""
    unit, mean = result.unit or unit, fmean if result.is_points else geometric_mean
    sides = [mean([getattr(part, side) for part in result.parts]) for side in ("subject", "baseline")]
    if unit == "s":
        seconds, unit = time_unit(max(sides))
        sides = [side / seconds for side in sides]
    if unit == "share":
        return "/".join(f"{100 * side:.2f}" for side in sides) + "%"
    unit = unit if result.unit or unit in {"days", "h", "min", "s"} else ""
    if max(sides) >= 1e6:
        sides, unit = [side / 1e6 for side in sides], f"million {unit}"
    texts = (f"{side:,.0f}" if side >= 9.995 else f"{side:#.3g}" for side in sides)
    return f"{'/'.join(texts)} {unit}".rstrip()
