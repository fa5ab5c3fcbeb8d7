"""Throughput and efficiency by number of processes, and the tables of all-reduces. `studies.scaling` calls it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gpubench.analysis.groups import only_sums
from gpubench.rows.alike import LINK, SPECIMEN, STACK
from gpubench.rows.params import params_of
from gpubench.rows.table import BROKEN, number, table_of

MOST_PROCESSES = 1 << 20
"""Rows with more processes than this are ignored."""


@dataclass(frozen=True)
class Point:
    """Training with `processes`: samples per second, and efficiency (1 is perfect scaling)."""

    processes: int
    rate: float
    efficiency: float
    trials: int


@dataclass(frozen=True)
class Curve:
    """One case at several numbers of processes."""

    known: Mapping[str, Any]
    """The columns that its rows agree in."""
    samples: float
    """Samples per step of one process."""
    sent: str
    """Number type of the gradients sent; empty where unknown."""
    base: int
    """The fewest processes measured. Efficiency is relative to theirs."""
    points: tuple[Point, ...]
    cases: frozenset[int]


@dataclass(frozen=True)
class Sum:
    """The fastest all-reduce of a size over a number of processes: the medians of its trials."""

    processes: int
    algorithm: str
    fused: bool
    what: str
    bytes: int
    seconds: float
    busbw: float


@dataclass(frozen=True)
class Sums:
    """The fastest all-reduces of one card and number type, by processes, content and size."""

    known: Mapping[str, Any]
    """The columns that its rows agree in."""
    lines: tuple[Sum, ...]
    cases: frozenset[int]


def curves_of(frame: pd.DataFrame) -> list[Curve]:
    """Return a curve for each case that ran with two numbers of processes or more.

    The rows, of any suite, are those of `groups.completed` and `compare.once`.
    """
    rate = frame["samples_per_second"]
    ok = frame[(frame["status"] == "ok") & (rate > 0) & (rate < math.inf) & (frame["mode"] != "published")]
    ok = ok[~only_sums(ok) & (ok["batch_size"] > 0)]
    keys = ["suite", "suite_version", "model", "precision", "batch_size", "params", "data", "mode"]
    curves = []
    for shared, rows in alike_rows(ok, keys):
        if rows["processes"].nunique() < 2:
            continue
        by_count = rows["samples_per_second"].groupby(rows["processes"].astype(int))
        medians, sizes = by_count.median(), by_count.size()
        rates = dict(zip(medians.index.tolist(), medians.tolist(), strict=True))
        trials = dict(zip(sizes.index.tolist(), sizes.tolist(), strict=True))
        base = min(rates)
        points = tuple(Point(n, rates[n], rates[n] / n / (rates[base] / base), trials[n]) for n in sorted(rates))
        sent, samples = _step_of(rows, float(shared["batch_size"]))
        curves.append(Curve(shared, samples, sent, base, points, cases_of(rows)))
    return curves


def cases_of(rows: pd.DataFrame) -> frozenset[int]:
    """Return the numbers of the rows' cases."""
    return frozenset(map(int, rows["case"].unique()))


def alike_rows(rows: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield rows of one card and stack that agree in `keys`, with all columns that they agree in.

    A session with several numbers of processes is not joined with others. Sessions with one number each, as with
    several machines, are joined where their stack is the same.
    """
    rows = rows[rows["processes"].between(1, MOST_PROCESSES)]
    # The link depends on the number of processes: one process has none.
    same = [*keys, *SPECIMEN, *(name for name in STACK if name not in LINK)]
    alone = rows.groupby(same, dropna=False)["processes"].transform("nunique") > 1
    joined = [column for column in SPECIMEN if column != "card"]
    rows = rows.assign(**{column: rows[column].where(alone, "") for column in joined})
    for names, members in rows.groupby(same, dropna=False, sort=False):
        yield dict(zip(same, names, strict=True)), members


def is_count(text: str) -> bool:
    """Return whether a parameter is a whole number that can be a count."""
    return text.isdecimal() and len(text) <= len(str(MOST_PROCESSES))


def _step_of(rows: pd.DataFrame, batch: float) -> tuple[str, float]:
    """Return (number type of the gradients sent, samples per step of one process), from the rows' tables."""
    for text in rows["table"]:
        for line in table_of(text):
            try:
                return str(line.get("gradient_type", "")), number(line["images_a_step"])
            except BROKEN:
                continue
    return "", batch


def sums_of(frame: pd.DataFrame) -> list[Sums]:
    """Return the all-reduce tables by card, stack and number type."""
    ok = frame[(frame["status"] == "ok") & only_sums(frame)]
    tables = []
    for shared, rows in alike_rows(ok, ["suite", "suite_version", "backend", "interconnect", "precision"]):
        times: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
        for _, row in rows.iterrows():
            for key, seconds, busbw in _sums_in(row):
                times.setdefault(key, []).append((seconds, busbw))
        fastest: dict[tuple[int, str, int], Sum] = {}
        for (processes, _, *about), values in times.items():
            line = Sum(processes, *about, *map(float, np.median(values, axis=0)))
            key = (line.processes, line.what, line.bytes)
            fastest[key] = min(line, fastest.get(key, line), key=lambda other: other.seconds)
        if fastest:
            tables.append(Sums(shared, tuple(fastest[key] for key in sorted(fastest)), cases_of(rows)))
    return tables


def _sums_in(row: "pd.Series[Any]") -> Iterator[tuple[tuple[Any, ...], float, float]]:
    """Yield (key of the line, seconds, busbw) of each complete line of the row's table."""
    for line in table_of(row["table"]):
        try:
            what = (str(line["algorithm"]), bool(line["fusion_bytes"]), str(line["what"]), int(number(line["bytes"])))
            seconds, busbw = number(line["seconds"]), number(line["busbw"])
        except BROKEN:
            continue
        if seconds > 0 and what[-1] > 0:
            yield (int(row["processes"]), _layout_of(row), *what), seconds, busbw


def _layout_of(row: "pd.Series[Any]") -> tuple[float, str]:
    """Return the number of machines, and the processes in a group of the hierarchical algorithm if that was chosen."""
    return float(row["nodes"]), params_of(row["params"]).get("group", "0")
