"""What reaching a suite's goal takes: seconds over the share of runs that reached it, and by number of processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from gpubench.analysis.cells import Cell
from gpubench.analysis.scaling import cases_of
from gpubench.analysis.verdicts import Comparison
from gpubench.rows.alike import CELL, SERIES
from gpubench.suite.trial import TRAINED


def success_of(frame: pd.DataFrame) -> "pd.Series[float]":
    """Share of each row's runs that reached the goal; NaN where it has none, or did not train to its end.

    Rows of before `success_rate`, and published ones, say it by their status.
    """
    trained = frame["mode"].isin(["full", "published"]) & (frame["data"] != "synthetic")
    told = (frame["status"] == "ok").astype(float).where(trained & (_goals(frame) > 0))
    rate = frame.get("success_rate", told)
    return rate.where(rate.notna(), told).where(frame["status"].isin(TRAINED))


def _goals(frame: pd.DataFrame) -> "pd.Series[float]":
    """The goal among each row's parameters; NaN where it has none."""
    return pd.to_numeric(frame["params"].str.extract(r"(?:^| )goal=(\S+)", expand=False), errors="coerce")


def expected(frame: pd.DataFrame) -> pd.DataFrame:
    """`value` over the share of their cell's runs that reached the goal, which `success` holds.

    That is what trying again until one does takes on average; NaN where none did.
    """
    by_cell = success_of(frame).groupby([frame[column] for column in CELL], dropna=False, sort=False)
    share = by_cell.transform("mean").where(frame["status"].isin(TRAINED))
    texts = share.map("{:.0%} of the runs reached the goal".format)
    some = (share > 0) & (share < 1)
    return frame.assign(
        value=frame["value"] / share.where(share > 0), success=share, reason=frame["reason"].where(~some, texts)
    )


def unsure_of_shares(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Without a verdict where a run missed the goal: intervals know how seconds scatter, not how shares do."""
    return [_unsure(c) if min(_share(c.subject), _share(c.other)) < 1 else c for c in comparisons]


def _unsure(c: Comparison) -> Comparison:
    note = f"{_share(c.subject):.0%} and {_share(c.other):.0%} of the runs reached the goal, which no interval weighs"
    return replace(c, verdict=c.verdict or "not judged", notes=(*c.notes, note))


def _share(cell: Cell) -> float:
    """The least of a combined cell's parts."""
    return float(min(part.row["success"] for part in cell.parts or (cell,)))


PLAUSIBLE_SECONDS = (1e-9, 1e12)
"""Of a run: they lie between these."""


@dataclass(frozen=True)
class Reach:
    """A number of processes that reached the goal, in a median of so many seconds."""

    processes: int
    machines: float
    """NaN where the rows do not say, like `epochs`."""
    seconds: float
    efficiency: float
    """Processes times seconds of the fewest processes over those of this many: of perfect scaling 1."""
    epochs: float
    trials: int
    note: str


@dataclass(frozen=True)
class GoalCurve:
    """One published series at several numbers of processes."""

    known: Mapping[str, Any]
    """What its rows agree in, `goal` among it."""
    points: tuple[Reach, ...]
    sources: tuple[str, ...]
    recipes: int
    """Different parameters among its rows: a schedule may be one for each number of processes."""
    cases: frozenset[int]


def goal_curves_of(frame: pd.DataFrame) -> list[GoalCurve]:
    """A curve for each published series that reached its goal with two numbers of processes or more.

    One's own rows have rates, which scale without the recipe changing (see `scaling.curves_of`).
    """
    rows = frame[(frame["mode"] == "published") & (frame["status"] == "ok") & (frame["session"] != "")]
    rows = rows.assign(goal=_goals(rows))
    rows = rows[(rows["goal"] > 0) & rows["seconds"].between(*PLAUSIBLE_SECONDS) & rows["processes"].between(1, 1e9)]
    curves = []
    for names, own in rows.groupby([*SERIES, "goal"], dropna=False, sort=False):
        if own["processes"].nunique() > 1:
            known = dict(zip([*SERIES, "goal"], names, strict=True))
            sources = tuple(dict.fromkeys(own["source"]))
            curves.append(GoalCurve(known, _reaches(own), sources, own["params"].nunique(), cases_of(own)))
    return curves


def _reaches(rows: pd.DataFrame) -> tuple[Reach, ...]:
    counts = sorted({int(count) for count in rows["processes"]})
    by_count = {count: rows[rows["processes"] == count] for count in counts}
    fewest = counts[0]
    least = fewest * float(by_count[fewest]["seconds"].median())
    return tuple(
        Reach(
            count,
            float(own["nodes"].dropna().median()),
            seconds := float(own["seconds"].median()),
            least / (count * seconds),
            float(own["epochs"].dropna().median()),
            len(own),
            "; ".join(dict.fromkeys(filter(None, own["reason"]))),
        )
        for count, own in by_count.items()
    )
