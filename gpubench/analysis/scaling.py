"""Speed and efficiency by number of processes, and the tables of all-reduces. `studies.scaling` calls it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gpubench.analysis.groups import only_sums
from gpubench.rows.alike import LINK, SERIES, SPECIMEN, STACK
from gpubench.rows.params import params_of
from gpubench.rows.table import BROKEN, number, table_of

MOST_PROCESSES = 1 << 20
"""Rows with more processes than this are ignored."""
PLAUSIBLE_SECONDS = (1e-9, 1e12)
"""Range of the seconds of a run."""


@dataclass(frozen=True)
class Point:
    """Training with a number of processes: medians over its trials."""

    processes: int
    machines: float
    """NaN where unknown, like `epochs`."""
    speed: float
    """Samples per second, or 1 / seconds to the goal."""
    efficiency: float
    """Speed per process, relative to the point with the fewest processes: 1 is perfect scaling."""
    epochs: float
    trials: int
    note: str


@dataclass(frozen=True)
class Curve:
    """One case at several numbers of processes, or one published series that reached a goal."""

    known: Mapping[str, Any]
    """The columns that its rows agree in; of a series also `goal`."""
    points: tuple[Point, ...]
    """The fewest processes first."""
    cases: frozenset[int]
    samples: float = math.nan
    """Samples per step of one process."""
    sent: str = ""
    """Number type of the gradients sent; empty where unknown."""
    sources: tuple[str, ...] = ()
    """Where a series was published."""
    recipes: int = 1
    """Number of different parameters in a series: each number of processes may have its own schedule."""

    @property
    def is_to_goal(self) -> bool:
        """Whether it is of a published series: seconds to a goal, not rates."""
        return "goal" in self.known


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

    `frame` has rows of any suite, from `groups.completed` and `compare.once`.
    """
    rate = frame["samples_per_second"]
    ok = frame[(frame["status"] == "ok") & (rate > 0) & (rate < math.inf) & (frame["mode"] != "published")]
    ok = ok[~only_sums(ok) & (ok["batch_size"] > 0)]
    keys = ["suite", "suite_version", "model", "precision", "batch_size", "params", "data", "mode"]
    curves = []
    for shared, rows in alike_rows(ok, keys):
        if rows["processes"].nunique() > 1:
            sent, samples = _step_of(rows, float(shared["batch_size"]))
            points = _points(rows, "samples_per_second")
            curves.append(Curve(shared, points, cases_of(rows), samples, sent))
    return curves


def goal_curves_of(frame: pd.DataFrame) -> list[Curve]:
    """Return a curve for each published series that reached its goal with two numbers of processes or more."""
    rows = frame[(frame["mode"] == "published") & (frame["status"] == "ok") & (frame["session"] != "")]
    rows = rows.assign(goal=goals_of(rows))
    rows = rows[(rows["goal"] > 0) & rows["seconds"].between(*PLAUSIBLE_SECONDS) & rows["processes"].between(1, 1e9)]
    curves = []
    for names, series in rows.groupby([*SERIES, "goal"], dropna=False, sort=False):
        if series["processes"].nunique() > 1:
            shared = dict(zip([*SERIES, "goal"], names, strict=True))
            points, sources = _points(series, "seconds"), tuple(dict.fromkeys(series["source"]))
            recipes = series["params"].nunique()
            curves.append(Curve(shared, points, cases_of(series), sources=sources, recipes=recipes))
    return curves


def _points(rows: pd.DataFrame, figure: str) -> tuple[Point, ...]:
    """Return a point per number of processes; `figure` is the column with a rate, or with seconds."""
    points = rows.groupby(rows["processes"].astype(int)).agg(
        machines=("nodes", "median"),
        speed=(figure, "median"),
        epochs=("epochs", "median"),
        trials=(figure, "size"),
        note=("reason", lambda reasons: "; ".join(dict.fromkeys(filter(None, reasons)))),
    )
    points["speed"] = 1 / points["speed"] if figure == "seconds" else points["speed"]
    per_process = points["speed"] / points.index
    points["efficiency"] = per_process / per_process.iloc[0]
    lines = points.reset_index().to_dict("records")
    return tuple(Point(**{str(name): value for name, value in line.items()}) for line in lines)


def goals_of(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return the goal among each row's parameters; NaN where there is none."""
    return pd.to_numeric(frame["params"].str.extract(r"(?:^| )goal=(\S+)", expand=False), errors="coerce")


def cases_of(rows: pd.DataFrame) -> frozenset[int]:
    """Return the numbers of the rows' cases."""
    return frozenset(map(int, rows["case"].unique()))


def alike_rows(rows: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the rows of one card and stack that agree in `keys`, and the values in which they agree.

    A session with several numbers of processes is not joined with others. Sessions with one number each, as on
    several machines, are joined if their stack is the same.
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
    """Return whether a parameter is a whole number of plausible size."""
    return text.isdecimal() and len(text) <= len(str(MOST_PROCESSES))


def _step_of(rows: pd.DataFrame, batch: float) -> tuple[str, float]:
    """Return the number type of the gradients sent, and the samples per step of one process, from the rows' tables."""
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
    """Yield the key, the seconds and the busbw of each complete line of the row's table."""
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
