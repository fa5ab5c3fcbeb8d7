"""Throughput and efficiency by number of processes, and a model for more processes. `studies.scaling` calls it.

The model is Hockney's (1994): a message of n bytes takes alpha + beta n seconds. `steps_of` returns
the messages of an all-reduce: a ring sends 2 (N - 1) messages of n / N bytes (Patarasu and Yuan 2009), a tree of g
processes log2 g messages of n. A training step takes one process's time plus the part of the all-reduce that does
not overlap with it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
REACH = 8
"""The model is used up to this many times the most processes measured."""
FEW = "too few measured to hold any out"
WORTH = 0.2
"""Largest relative error on held-out points with which a model is used."""


@dataclass(frozen=True)
class Fit:
    """Alpha and beta of one algorithm, fitted to measured points."""

    alpha: float
    """Seconds per message."""
    beta: float
    """Seconds per byte."""
    errors: Mapping[str, float]
    """Largest relative error on the points held out of a second fit, by which points these are."""
    note: str = ""
    """Why nothing was held out, or nothing fitted."""

    @property
    def is_worth_saying(self) -> bool:
        """Whether the model may be used: beta is above 0, and errors on held-out points are at most WORTH."""
        return self.beta > 0 and self.band <= WORTH

    @property
    def band(self) -> float:
        """The largest of the errors; 0 where there are none."""
        return max(self.errors.values(), default=0.0)


@dataclass(frozen=True)
class Point:
    """Training with `processes`: samples per second, and efficiency (1 is perfect scaling)."""

    processes: int
    rate: float
    efficiency: float
    trials: int
    model: bool = False
    """Whether it is predicted, not measured."""


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
    fit: Fit
    cases: frozenset[int]


@dataclass(frozen=True)
class Sum:
    """One line of an all-reduce table, the median of its trials."""

    processes: int
    group: int
    algorithm: str
    fused: bool
    what: str
    bytes: int
    seconds: float
    busbw: float


@dataclass(frozen=True)
class Sums:
    """All all-reduces of one card and number type."""

    known: Mapping[str, Any]
    """The columns that its rows agree in."""
    lines: tuple[Sum, ...]
    fits: Mapping[str, Fit]
    cases: frozenset[int]

    def best(self) -> list[Sum]:
        """Return the fastest line for each number of processes, content and size."""
        fastest: dict[tuple[int, str, int], Sum] = {}
        for line in self.lines:
            key = (line.processes, line.what, line.bytes)
            if key not in fastest or line.seconds < fastest[key].seconds:
                fastest[key] = line
        return [fastest[key] for key in sorted(fastest)]


def steps_of(algorithm: str, processes: int, group: int) -> tuple[float, float]:
    """Return (sequential messages, bytes that one process sends per byte summed) of an algorithm."""

    def ring(count: int) -> tuple[float, float]:
        return 2.0 * (count - 1), 2.0 * (count - 1) / count

    if algorithm == "flat":
        return ring(processes)
    tree = math.ceil(math.log2(group)) if group > 1 else 0
    messages, traffic = ring(processes // group)
    return messages + 2 * tree, traffic + 2 * tree


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
        gradients, sent, samples = _gradients_of(rows, float(shared["batch_size"]))
        points, fit = _points(rates, trials, gradients, samples)
        curves.append(Curve(shared, samples, sent, min(rates), points, fit, cases_of(rows)))
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


def _points(
    rates: Mapping[int, float], trials: Mapping[int, int], gradients: float, samples: float
) -> tuple[tuple[Point, ...], Fit]:
    """Return the measured points and those predicted for more processes, with the fit.

    A step of all processes takes that of the fewest, plus alpha for each more message and beta for each more byte.
    """
    base, most = min(rates), max(rates)

    def point(count: int, rate: float, of_trials: int) -> Point:
        return Point(count, rate, rate / count / (rates[base] / base), of_trials, model=not of_trials)

    def added(count: int) -> tuple[float, float]:
        (messages, share), (base_messages, base_share) = (steps_of("flat", number, 1) for number in (count, base))
        return messages - base_messages, (share - base_share) * gradients

    def predicted(count: int, alpha: float, beta: float) -> float:
        messages, traffic = added(count)
        return samples * count / (samples * base / rates[base] + alpha * messages + beta * traffic)

    points = [point(count, rates[count], trials[count]) for count in sorted(rates)]
    lines = {
        count: (*added(count), samples * count / rates[count] - samples * base / rates[base])
        for count in rates
        if count > base
    }
    alpha, beta = _least_squares(list(lines.values()))
    errors: dict[str, float] = {}
    if len(lines) > 2:  # two unknowns
        held_out = _least_squares([line for count, line in lines.items() if count != most])
        errors[f"N={most}"] = abs(predicted(most, *held_out) / rates[most] - 1)
    fit = Fit(alpha, beta, errors, "" if errors else FEW)
    count = most * 2
    while fit.is_worth_saying and count <= most * REACH:
        points.append(point(count, predicted(count, alpha, beta), 0))
        count *= 2
    return tuple(points), fit


def _gradients_of(rows: pd.DataFrame, batch: float) -> tuple[float, str, float]:
    """Return (bytes of gradients, their type, samples per step of one process); 1 byte where unknown."""
    for text in rows["table"]:
        for line in table_of(text):
            try:
                sent = str(line.get("gradient_type", ""))
                return number(line["gradient_bytes"]), sent, number(line["images_a_step"])
            except BROKEN:
                continue
    return 1.0, "", batch


def sums_of(frame: pd.DataFrame) -> list[Sums]:
    """Return the all-reduce tables by card, stack and number type."""
    ok = frame[(frame["status"] == "ok") & only_sums(frame)]
    tables = []
    for shared, rows in alike_rows(ok, ["suite", "suite_version", "backend", "interconnect", "precision"]):
        lines: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
        for _, row in rows.iterrows():
            for key, seconds, busbw in _sums_in(row):
                lines.setdefault(key, []).append((seconds, busbw))
        medians = tuple(Sum(*key, *map(float, np.median(values, axis=0))) for key, values in lines.items())
        if not medians:
            continue
        messages = [line for line in medians if line.what == "message"]
        fits = {
            name: fit_sums([line for line in messages if line.algorithm == name], name)
            for name in dict.fromkeys(line.algorithm for line in medians)
        }
        tables.append(Sums(shared, medians, {name: fit for name, fit in fits.items() if fit}, cases_of(rows)))
    return tables


def _sums_in(row: "pd.Series[Any]") -> Iterator[tuple[tuple[Any, ...], float, float]]:
    """Yield (key of the line, seconds, busbw) of each complete line of the row's table."""
    processes, group = int(row["processes"]), _group_of(row)
    for line in table_of(row["table"]) if 1 <= group <= processes else []:
        try:
            what = (str(line["algorithm"]), bool(line["fusion_bytes"]), str(line["what"]), int(number(line["bytes"])))
            seconds, busbw = number(line["seconds"]), number(line["busbw"])
        except BROKEN:
            continue
        if seconds > 0 and what[-1] > 0:
            yield (processes, group, *what), seconds, busbw


def fit_sums(lines: Sequence[Sum], algorithm: str) -> Fit | None:
    """Return alpha and beta of one algorithm's messages, with the errors on points held out of second fits.

    Held out are the most processes, and every second size. None where there are fewer than two messages.
    """
    if len(lines) < 2:
        return None
    counts, sizes = sorted({line.processes for line in lines}), sorted({line.bytes for line in lines})
    errors = {}
    if len(counts) > 2:
        errors[f"N={counts[-1]}"] = _error(lines, algorithm, lambda line: line.processes == counts[-1])
    if len(sizes) > 3:
        errors["every second size"] = _error(lines, algorithm, lambda line: line.bytes in sizes[1::2])
    return Fit(*_least_squares(_terms(lines, algorithm)), errors, "" if errors else FEW)


def _error(lines: Sequence[Sum], algorithm: str, held_out: Callable[[Sum], bool]) -> float:
    """Return the largest relative error on the lines held out of a fit to the others."""
    alpha, beta = _least_squares(_terms([line for line in lines if not held_out(line)], algorithm))
    terms = _terms([line for line in lines if held_out(line)], algorithm)
    return max(abs(alpha * messages + beta * traffic - seconds) / seconds for messages, traffic, seconds in terms)


def _terms(lines: Iterable[Sum], algorithm: str) -> list[tuple[float, float, float]]:
    """Return (messages, bytes, seconds) of each line, as one process sends them."""
    terms = []
    for line in lines:
        messages, share = steps_of(algorithm, line.processes, line.group)
        terms.append((messages, share * line.bytes, line.seconds))
    return terms


def _least_squares(lines: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return the alpha and beta, both at least 0, with the least squares of relative errors of seconds."""
    from scipy.optimize import nnls  # takes a third of a second to import, and few comparisons need it

    weights = np.array([1 / max(abs(seconds), 1e-9) for _, _, seconds in lines])
    matrix = np.array([[messages, traffic] for messages, traffic, _ in lines]) * weights[:, None]
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    solution, _ = nnls(matrix / scale, np.array([seconds for *_, seconds in lines]) * weights)
    return float(solution[0] / scale[0]), float(solution[1] / scale[1])


def _group_of(row: "pd.Series[Any]") -> int:
    """Return the processes per group of the hierarchical algorithm, as the suite chose them; 0 where unknown."""
    asked = params_of(row["params"]).get("group", "0")
    nodes = int(row["nodes"]) if row["nodes"] >= 1 else 1
    return (int(asked) or int(row["processes"]) // nodes) if is_count(asked) else 0
