"""From rows of several numbers of processes to S, T(N) and e(N), and what a stated model makes of more. No torch.

The model is Hockney's (1994): a message of n bytes takes alpha + beta n. What an algorithm of all-reduce makes of
it is in `steps_of`: a ring takes 2 (N - 1) messages of n / N bytes (Patarasu and Yuan 2009), a tree of g
processes log2 g messages of n. A step of training is one process's own and what of the all-reduce it does not hide.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from gpubench.comparing.cells import short

REACH = 8
"""The model says nothing of more than this many times the most processes measured."""

FEW = "too few measured to hold any out"


@dataclass(frozen=True)
class Fit:
    """Alpha and beta of one algorithm."""

    alpha: float
    """Seconds of a message, however small."""
    beta: float
    """Seconds of a byte."""
    errors: Mapping[str, float]
    """Largest relative error on points that a second fit was not given, by what they are."""
    note: str = ""
    """Why nothing was held out, or nothing fitted."""

    @property
    def band(self) -> float:
        """The largest of the errors, 0 where there are none."""
        return max(self.errors.values(), default=0.0)


@dataclass(frozen=True)
class Point:
    """Training with `processes`: samples per second, and the share of perfect scaling that this is."""

    processes: int
    rate: float
    efficiency: float
    trials: int
    model: bool = False
    """Whether the model says so; nobody measured it."""


@dataclass(frozen=True)
class Curve:
    """One case at several numbers of processes."""

    title: str
    base: int
    """The fewest processes measured; efficiency is relative to theirs."""
    points: tuple[Point, ...]
    fit: Fit | None


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
    """All all-reduces of one card and type of number."""

    title: str
    lines: tuple[Sum, ...]
    fits: Mapping[str, Fit]

    def best(self) -> list[Sum]:
        """The fastest for each number of processes and each thing summed."""
        found: dict[tuple[int, str, int], Sum] = {}
        for line in self.lines:
            key = (line.processes, line.what, line.bytes)
            if key not in found or line.seconds < found[key].seconds:
                found[key] = line
        return [found[key] for key in sorted(found)]


def steps_of(algorithm: str, processes: int, group: int) -> tuple[float, float]:
    """(messages one after the other, bytes through one process per byte summed) of an algorithm."""

    def ring(count: int) -> tuple[float, float]:
        return 2.0 * (count - 1), 2.0 * (count - 1) / count

    if algorithm == "flat":
        return ring(processes)
    tree = math.ceil(math.log2(group)) if group > 1 else 0
    messages, traffic = ring(processes // group)
    return messages + 2 * tree, traffic + 2 * tree


def curves_of(frame: pd.DataFrame, alpha_beta: tuple[float, float] | None = None, to: int | None = None) -> list[Curve]:
    """A curve for each case that ran with two numbers of processes or more.

    Args:
        frame: rows of any suite.
        alpha_beta: seconds of a message and of a byte to reckon with instead of fitted ones.
        to: how many processes to go to with them.
    """
    ok = frame[(frame["status"] == "ok") & frame["samples_per_second"].notna() & (frame["mode"] != "published")]
    ok = ok[~((ok["suite"] == "scaling") & (ok["model"] == "allreduce"))]
    keys = ["suite", "suite_version", "model", "precision", "card", "batch_size", "params", "data", "mode"]
    curves = []
    for names, rows in ok.groupby(keys, dropna=False, sort=False):
        counts = sorted({int(count) for count in rows["processes"]})
        if len(counts) < 2:
            continue
        of_count = {count: rows.loc[rows["processes"] == count, "samples_per_second"] for count in counts}
        rates = {count: float(found.median()) for count, found in of_count.items()}
        trials = {count: len(found) for count, found in of_count.items()}
        known: dict[str, Any] = dict(zip(keys, names, strict=True))
        title = f"{known['suite']} {known['model']} {known['precision']}, {short(str(known['card']))}"
        gradients, samples = _gradients_of(rows, float(known["batch_size"]))
        curves.append(
            _curve(f"{title}, batch {samples:.0f} a process", rates, trials, gradients, samples, alpha_beta, to)
        )
    return curves


def _curve(
    title: str,
    rates: Mapping[int, float],
    trials: Mapping[int, int],
    gradients: float,
    samples: float,
    alpha_beta: tuple[float, float] | None,
    to: int | None,
) -> Curve:
    base, most = min(rates), max(rates)

    def efficiency(count: int, rate: float) -> float:
        return rate / count / (rates[base] / base)

    def step(count: int) -> float:
        return samples * count / rates[count]

    points = [Point(count, rates[count], efficiency(count, rates[count]), trials[count]) for count in sorted(rates)]
    beyond = [(count, *steps_of("flat", count, 1)) for count in rates if count > base]
    start = steps_of("flat", base, 1)
    lines = [
        (messages - start[0], (share - start[1]) * gradients, step(count) - step(base))
        for count, messages, share in beyond
    ]
    alpha, beta = alpha_beta or _least_squares(lines)
    errors: dict[str, float] = {}
    note = "given by hand" if alpha_beta else "" if len(lines) > 2 else FEW

    def predicted(count: int, fitted: tuple[float, float]) -> float:
        messages, share = steps_of("flat", count, 1)
        seconds = step(base) + fitted[0] * (messages - start[0]) + fitted[1] * (share - start[1]) * gradients
        return samples * count / seconds

    if not alpha_beta and len(lines) > 2:  # two unknowns
        kept = [line for line, (count, *_) in zip(lines, beyond, strict=True) if count != most]
        errors[f"N={most}"] = abs(predicted(most, _least_squares(kept)) / rates[most] - 1)
    limit = to if alpha_beta and to else most * REACH
    count = most * 2
    while count <= limit:
        rate = predicted(count, (alpha, beta))
        points.append(Point(count, rate, efficiency(count, rate), 0, model=True))
        count *= 2
    return Curve(title, base, tuple(points), Fit(alpha, beta, errors, note))


def _gradients_of(rows: pd.DataFrame, batch: float) -> tuple[float, float]:
    """(bytes of gradients, samples of a step of one process); 1 byte where the suite does not say."""
    for text in rows["table"]:
        for line in table_of(text):
            if "gradient_bytes" in line:
                return float(line["gradient_bytes"]), float(line["images_a_step"])
    return 1.0, batch


def sums_of(frame: pd.DataFrame) -> list[Sums]:
    """All-reduce tables by card and type of number."""
    ok = frame[(frame["status"] == "ok") & (frame["suite"] == "scaling") & (frame["model"] == "allreduce")]
    found = []
    for names, rows in ok.groupby(["card", "backend", "interconnect", "precision"], dropna=False, sort=False):
        lines: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
        for _, row in rows.iterrows():
            group = _group_of(row)
            for each in table_of(row["table"]):
                what = (each["algorithm"], bool(each["fusion_bytes"]), each["what"], int(each["bytes"]))
                key: tuple[Any, ...] = (int(row["processes"]), group, *what)
                lines.setdefault(key, []).append((float(each["seconds"]), float(each["busbw"])))
        every = tuple(Sum(*key, *map(float, np.median(values, axis=0))) for key, values in lines.items())
        card, backend, between, precision = names
        messages = [line for line in every if line.what == "message"]
        fits = {
            name: fit_sums([line for line in messages if line.algorithm == name], name)
            for name in dict.fromkeys(line.algorithm for line in every)
        }
        title = f"all-reduce, {precision} gradients, {short(str(card))}, {backend} over {between}"
        found.append(Sums(title, every, {name: fit for name, fit in fits.items() if fit}))
    return found


def fit_sums(lines: Sequence[Sum], algorithm: str) -> Fit | None:
    """Alpha and beta of one algorithm's messages, with its errors on what second fits were not given.

    Held out are the most processes, and every second size. None where there are no messages to fit.
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
    """Largest relative error on the lines held out of a fit to the others."""
    alpha, beta = _least_squares(_terms([line for line in lines if not held_out(line)], algorithm))
    return max(
        abs(alpha * messages + beta * traffic - seconds) / seconds
        for messages, traffic, seconds in _terms([line for line in lines if held_out(line)], algorithm)
    )


def _terms(lines: Iterable[Sum], algorithm: str) -> list[tuple[float, float, float]]:
    found = []
    for line in lines:
        messages, share = steps_of(algorithm, line.processes, line.group)
        found.append((messages, share * line.bytes, line.seconds))
    return found


def _least_squares(lines: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Alpha and beta, neither below 0, that make the relative errors of seconds least."""
    weights = np.array([1 / max(abs(seconds), 1e-9) for _, _, seconds in lines])
    matrix = np.array([[messages, traffic] for messages, traffic, _ in lines]) * weights[:, None]
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    solution, _ = nnls(matrix / scale, np.array([seconds for *_, seconds in lines]) * weights)
    return float(solution[0] / scale[0]), float(solution[1] / scale[1])


def _group_of(row: "pd.Series[Any]") -> int:
    """Processes in a group of the hierarchical algorithm, as the suite chose it."""
    asked = dict(pair.partition("=")[::2] for pair in str(row["params"]).split()).get("group", "0")
    nodes = int(row["nodes"]) if row["nodes"] == row["nodes"] else 1
    return int(asked) or int(row["processes"]) // nodes


@dataclass(frozen=True)
class Held:
    """Accuracy of one optimizer and precision against the samples of a step."""

    title: str
    points: tuple[tuple[int, float, int], ...]
    """(samples of a step, median accuracy, trials), smallest first."""


def held_of(frame: pd.DataFrame) -> list[Held]:
    """What `largebatch` rows of several batches show, a line for each recipe."""
    ok = frame[(frame["status"] == "ok") & (frame["suite"] == "largebatch") & frame["accuracy"].notna()]
    found: dict[str, dict[int, list[float]]] = {}
    for _, row in ok.iterrows():
        params = dict(pair.partition("=")[::2] for pair in str(row["params"]).split())
        title = f"{params['optimizer']}, {row['precision']}, {params['epochs']} epochs"
        found.setdefault(title, {}).setdefault(int(params["global_batch"]), []).append(float(row["accuracy"]))
    return [
        Held(title, tuple((size, float(np.median(values)), len(values)) for size, values in sorted(sizes.items())))
        for title, sizes in found.items()
    ]


def table_of(text: object) -> list[dict[str, Any]]:
    """The lines of a row's `table`, by column."""
    if not isinstance(text, str) or not text:
        return []
    names, *lines = json.loads(text)
    return [dict(zip(names, line, strict=True)) for line in lines]
