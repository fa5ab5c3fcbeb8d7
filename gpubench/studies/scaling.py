"""The study `scaling`: speedup and efficiency by number of processes, and times of all-reduces. `answer` calls it."""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import distinct, marks_in, only_sums, short
from gpubench.analysis.metrics import goals_of
from gpubench.rows.alike import LINK, SERIES, SPECIMEN, STACK
from gpubench.rows.params import params_of
from gpubench.rows.table import BROKEN, number, table_of
from gpubench.studies import words
from gpubench.studies.cases import PLAUSIBLE_SECONDS, cases_of, known
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Result, Section, Table, Value

MOST_PROCESSES = 1 << 20
"""Measured rows with more processes are ignored."""
MOST_EFFICIENCY = 1.05
"""A larger efficiency gets a caveat: more processes hardly make each of them faster."""
UNLIKE = {
    "device_hash": "another card or session", "session": "another card or session", "cpu": "another cpu",
    "suite_digest": "the timed code differs", "batch_policy": "batch policies differ",
    "params": "schedules differ",
}  # fmt: skip
"""The difference between the ends of a curve, by the column in which they differ."""


@dataclass(frozen=True)
class Curve:
    """One case on several numbers of processes, or one published series that reached a goal."""

    shared: Mapping[str, Any]
    """The values that all its rows share, by column; for a series also `goal`."""
    rows: pd.DataFrame

    @property
    def is_to_goal(self) -> bool:
        """Whether it is a published series: seconds to a goal, not rates."""
        return "goal" in self.shared

    @cached_property
    def points(self) -> list[dict[Hashable, Any]]:
        """Median figures for each number of processes, the fewest first.

        `rate` is in samples/s, or 1 / seconds to the goal; `efficiency` is the rate per process over that of the fewest
        processes: 1 is perfect scaling.
        """
        figure = "seconds" if self.is_to_goal else "samples_per_second"
        points = self.rows.groupby(self.rows["processes"].astype(int)).agg(
            machines=("nodes", "median"),
            rate=(figure, "median"),
            epochs=("epochs", "median"),
            trials=(figure, "size"),
            note=("reason", distinct),
        )
        points["rate"] = 1 / points["rate"] if self.is_to_goal else points["rate"]
        per_process = points["rate"] / points.index
        points["efficiency"] = per_process / per_process.iloc[0]
        return points.reset_index().to_dict("records")

    @property
    def title(self) -> str:
        """Model, precision, card, batch per process and dtype of sent gradients; for a series: goal, model, card."""
        shared, card = self.shared, short(str(self.shared["card"]))
        if self.is_to_goal:
            return f"minutes to the goal of {shared['goal']:g} by processes, {shared['model']} on {card}"
        sent, samples = _step_of(self.rows, float(shared["batch_size"]))
        sent = f", gradients sent as {sent}" if sent else ""
        return f"{shared['model']} {shared['precision']}, {card}, batch {samples:.0f} per process{sent}"


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per curve over numbers of processes, and per table of all-reduces."""
    frame = compared.frame
    if not compared.is_usual or not (frame["processes"] > 1).any():
        return
    curves = [curve for curve in (*_curves(frame), *_series(frame)) if curve.rows["processes"].nunique() > 1]
    titles = words.with_differences([curve.title for curve in curves], [curve.shared for curve in curves])
    yield from map(_of_curve, curves, titles)
    sums = list(_sums(frame))
    titles = words.with_differences([_sums_title(shared) for shared, *_ in sums], [shared for shared, *_ in sums])
    for (shared, lines, cases), title in zip(sums, titles, strict=True):
        yield _of_sums(shared, lines, cases, title)


def _curves(frame: pd.DataFrame) -> Iterator[Curve]:
    """Yield a curve per case, card and stack, of any suite; published rows are left out."""
    rate = frame["samples_per_second"]
    ok = frame[(frame["status"] == "ok") & (rate > 0) & (rate < math.inf) & (frame["mode"] != "published")]
    ok = ok[~only_sums(ok) & (ok["batch_size"] > 0)]
    keys = ["suite", "suite_version", "model", "precision", "batch_size", "params", "data", "mode"]
    for shared, rows in _alike_rows(ok, keys):
        yield Curve(shared, rows)


def _series(frame: pd.DataFrame) -> Iterator[Curve]:
    rows = frame[(frame["mode"] == "published") & (frame["status"] == "ok") & (frame["session"] != "")]
    rows = rows.assign(goal=goals_of(rows))
    rows = rows[(rows["goal"] > 0) & rows["seconds"].between(*PLAUSIBLE_SECONDS) & rows["processes"].between(1, 1e9)]
    columns = [*SERIES, "goal"]
    for values, series in rows.groupby(columns, dropna=False, sort=False):
        yield Curve(dict(zip(columns, values, strict=True)), series)


def _alike_rows(rows: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Group rows by `keys`, card and stack; yield the shared values and the rows of each group.

    A session with several numbers of processes is not joined with others. Sessions with one number each, as on
    several machines, are joined if their stack is the same.
    """
    rows = rows[rows["processes"].between(1, MOST_PROCESSES)]
    # The link depends on the number of processes: one process has none.
    same = [*keys, *SPECIMEN, *(name for name in STACK if name not in LINK)]
    is_full_curve = rows.groupby(same, dropna=False)["processes"].transform("nunique") > 1
    joined = [column for column in SPECIMEN if column != "card"]
    agreeing = rows.assign(**{column: rows[column].where(is_full_curve, "") for column in joined})
    for values, members in rows.groupby([agreeing[column] for column in same], dropna=False, sort=False):
        yield dict(zip(same, values, strict=True)), members


def _step_of(rows: pd.DataFrame, batch: float) -> tuple[str, float]:
    """Return the dtype of the sent gradients and one process's samples per step, from tables; else "" and `batch`."""
    for text in rows["table"]:
        for line in table_of(text):
            try:
                return str(line.get("gradient_type", "")), number(line["images_a_step"])
            except BROKEN:
                continue
    return "", batch


def _of_curve(curve: Curve, title: str) -> Section:
    """Return the section of a curve: rate and efficiency by number of processes."""
    points, to_goal = curve.points, curve.is_to_goal
    first = points[0]
    figure = Column("minutes", "min", "lower") if to_goal else Column("samples/s", "samples/s", "higher")
    lines: list[dict[Column, Value]] = [
        {
            Column("machines", "count"): known(point["machines"]),
            Column("processes", "count"): point["processes"],
            figure: 1 / point["rate"] / 60 if to_goal else point["rate"],
            Column(f"speedup over {first['processes']}", "ratio", "higher"): point["rate"] / first["rate"],
            Column(f"efficiency over {first['processes']}", "share", "higher"): point["efficiency"],
            Column("epochs", "count"): known(point["epochs"]),
            Column("trials", "count"): point["trials"],
            Column("notes", note=True): point["note"],
        }
        for point in points
    ]
    suite, table = str(curve.shared["suite"]), Table.of(title, lines)
    result = _result(curve, title)
    return Section("scaling", suite, f"{suite}: {title}", (result,), (table,), cases=result.cases)


def _result(curve: Curve, title: str) -> Result:
    """Return the result of the most processes over the fewest, with a chart of the efficiency."""
    points, suite, card = curve.points, str(curve.shared["suite"]), short(str(curve.shared["card"]))
    first, last, cases = points[0], points[-1], cases_of(curve.rows)
    sides = [curve.rows[curve.rows["processes"] == point["processes"]] for point in (last, first)]
    both = pd.concat(sides)
    gain = last["rate"] / first["rate"]
    verb = "reach the goal" if curve.is_to_goal else "train"
    claim = f"{last['processes']} processes {verb} {words.times(gain)} as fast as {first['processes']}"
    claim += f" on {words.name(card)}: scaling efficiency {last['efficiency']:.0%}"
    bars = [Bar(f"{point['processes']} processes", point["efficiency"]) for point in points]
    chart = Bars(
        words.slug(f"{suite} {'goal' if curve.is_to_goal else 'scaling'} efficiency"),
        claim,
        f"Efficiency by processes{', published times to the goal' * curve.is_to_goal}; higher is better",
        (BarGroup(card, tuple(bars)),),
        "share",
        cases=cases,
    )
    differences = [text for name, text in UNLIKE.items() if set(sides[0][name]) != set(sides[1][name])]
    remarks = [text for point in (last, first) for text in point["note"].split("; ") if text]
    return Result(
        kind="scaling",
        suite=suite,
        subject=f"{last['processes']} processes",
        baseline=str(first["processes"]),
        value=gain,
        models=(str(curve.shared["model"]),),
        trials=(last["trials"], first["trials"]),
        said=claim,
        place=card,
        origin=f"{'to the goal, ' * curve.is_to_goal}efficiency {last['efficiency']:.0%}",
        facts={"title": title},
        differences=(*["published"] * curve.is_to_goal, *dict.fromkeys(differences)),
        caveats=(
            *["efficiency above 100%: the sides may be unlike"] * (last["efficiency"] > MOST_EFFICIENCY),
            *words.marked(marks_in(both), len(both), "runs "),
            *filter(None, distinct([] if curve.is_to_goal else remarks).split("; ")),
        ),
        projected=bool(both["measured"].isin(["projected"]).any()),
        charts=(chart,),
        cases=cases,
        source="; ".join(curve.rows["source"].unique()) if curve.is_to_goal else "",
    )


def _sums(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], list[dict[Hashable, Any]], frozenset[int]]]:
    """Yield the shared values, the fastest all-reduces and the cases of each card, stack and dtype.

    For each number of processes, content and size, the algorithm with the smallest median seconds is the fastest.
    """
    ok = frame[(frame["status"] == "ok") & only_sums(frame)]
    for shared, rows in _alike_rows(ok, ["suite", "suite_version", "backend", "interconnect", "precision"]):
        lines = pd.DataFrame([line for row in rows.to_dict("records") for line in _sums_in(row)])
        if lines.empty:
            continue
        what = ["processes", "what", "bytes"]
        medians = lines.groupby([*what, "machines", "group", "algorithm", "fused"], dropna=False).median().reset_index()
        fastest = medians.loc[medians.groupby(what)["seconds"].idxmin()]
        yield shared, fastest.to_dict("records"), cases_of(rows)


def _sums_in(row: Mapping[Hashable, Any]) -> Iterator[dict[str, Any]]:
    """Yield each complete line of the table of a row; `group`: processes per group of the hierarchical algorithm."""
    group = params_of(row["params"]).get("group", "0")
    about = {"processes": int(row["processes"]), "machines": float(row["nodes"]), "group": group}
    for line in table_of(row["table"]):
        try:
            figures = {name: number(line[name]) for name in ("bytes", "seconds", "busbw")}
            texts = {name: str(line[name]) for name in ("algorithm", "what")} | {"fused": bool(line["fusion_bytes"])}
        except BROKEN:
            continue
        if figures["seconds"] > 0 and figures["bytes"] > 0:
            yield about | texts | figures | {"bytes": int(figures["bytes"])}


def _sums_title(shared: Mapping[str, Any]) -> str:
    where = f"{short(str(shared['card']))}, {shared['backend']} over {shared['interconnect']}"
    return f"all-reduce of {shared['precision']} gradients on {where}"


def _of_sums(
    shared: Mapping[str, Any], sums: Sequence[Mapping[Hashable, Any]], cases: frozenset[int], title: str
) -> Section:
    """Return the section of the all-reduces: the fastest algorithm for each size."""
    lines: list[dict[Column, Value]] = [
        {
            Column("processes", "count"): line["processes"],
            Column("content"): line["what"].replace("message", "one message"),
            Column("size", "bytes"): line["bytes"],
            Column("fastest"): f"{line['algorithm']}{', fused' * line['fused']}",
            Column("seconds", "s", "lower"): line["seconds"],
            Column("busbw, GB/s", "GB/s", "higher"): line["busbw"],
        }
        for line in sums
    ]
    suite, fastest = str(shared["suite"]), max(sums, key=lambda line: line["busbw"])
    count, bandwidth = fastest["processes"], f"{fastest['busbw']:.3g} GB/s"
    result = Result(
        kind="scaling",
        suite=suite,
        subject=f"{fastest['algorithm']} all-reduce",
        value=fastest["busbw"],
        models=("all-reduce",),
        said=f"The fastest all-reduce of {count} processes moves {bandwidth} ({fastest['algorithm']})",
        origin=f"{count} processes",
        figure=bandwidth,
        place=short(str(shared["card"])),
        cases=cases,
    )
    return Section("scaling", suite, title, (result,), (Table.of("all-reduces", lines),), cases=cases)
