"""Time to reach a suite's goal: seconds over the share of runs that reached it, and by number of processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from gpubench.analysis.groups import Group
from gpubench.analysis.scaling import cases_of
from gpubench.analysis.verdicts import Comparison
from gpubench.rows.alike import GROUP, SERIES
from gpubench.suite.trial import TRAINED


def success_of(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return the share of each row's runs that reached the goal; NaN without a goal or a finished training.

    For old and published rows without a `success_rate` it follows from their status.
    """
    trained = frame["mode"].isin(["full", "published"]) & (frame["data"] != "synthetic")
    from_status = (frame["status"] == "ok").astype(float).where(trained & (_goals(frame) > 0))
    rate = frame.get("success_rate", from_status)
    return rate.where(rate.notna(), from_status).where(frame["status"].isin(TRAINED))


def _goals(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return the goal among each row's parameters; NaN where there is none."""
    return pd.to_numeric(frame["params"].str.extract(r"(?:^| )goal=(\S+)", expand=False), errors="coerce")


def expected(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows with `value` divided by `success`, the share of their group's runs that reached the goal.

    That is the average time of training until a run reaches the goal; NaN where none did.
    """
    by_group = success_of(frame).groupby([frame[column] for column in GROUP], dropna=False, sort=False)
    share = by_group.transform("mean").where(frame["status"].isin(TRAINED))
    texts = share.map("{:.0%} of the runs reached the goal".format)
    some = (share > 0) & (share < 1)
    return frame.assign(
        value=frame["value"] / share.where(share > 0), success=share, reason=frame["reason"].where(~some, texts)
    )


def without_verdict_if_missed(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return comparisons without a verdict where a run missed the goal: intervals ignore how shares vary."""
    return [_without_verdict(c) if min(_share(c.subject), _share(c.other)) < 1 else c for c in comparisons]


def _without_verdict(c: Comparison) -> Comparison:
    note = f"{_share(c.subject):.0%} and {_share(c.other):.0%} of the runs reached the goal, which no interval weighs"
    return replace(c, verdict=c.verdict or "not judged", notes=(*c.notes, note))


def _share(group: Group) -> float:
    """Return the share of runs that reached the goal: the least of a combined group's parts."""
    return float(min(part.row["success"] for part in group.parts or (group,)))


PLAUSIBLE_SECONDS = (1e-9, 1e12)
"""Range of the seconds of a run."""


@dataclass(frozen=True)
class Reach:
    """A number of processes, with the median seconds in which they reached the goal."""

    processes: int
    machines: float
    """NaN where unknown, like `epochs`."""
    seconds: float
    efficiency: float
    """Process-seconds of the fewest processes over those of this number: 1 is perfect scaling."""
    epochs: float
    trials: int
    note: str


@dataclass(frozen=True)
class GoalCurve:
    """One published series at several numbers of processes."""

    known: Mapping[str, Any]
    """The columns that its rows agree in, and `goal`."""
    points: tuple[Reach, ...]
    sources: tuple[str, ...]
    recipes: int
    """Number of different parameters among its rows: each number of processes may have another schedule."""
    cases: frozenset[int]


def goal_curves_of(frame: pd.DataFrame) -> list[GoalCurve]:
    """Return a curve for each published series that reached its goal with two numbers of processes or more.

    Measured rows are in `scaling.curves_of`: it compares rates, with one recipe for all numbers of processes.
    """
    rows = frame[(frame["mode"] == "published") & (frame["status"] == "ok") & (frame["session"] != "")]
    rows = rows.assign(goal=_goals(rows))
    rows = rows[(rows["goal"] > 0) & rows["seconds"].between(*PLAUSIBLE_SECONDS) & rows["processes"].between(1, 1e9)]
    curves = []
    for names, series in rows.groupby([*SERIES, "goal"], dropna=False, sort=False):
        if series["processes"].nunique() > 1:
            shared = dict(zip([*SERIES, "goal"], names, strict=True))
            sources = tuple(dict.fromkeys(series["source"]))
            curves.append(GoalCurve(shared, _reaches(series), sources, series["params"].nunique(), cases_of(series)))
    return curves


def _reaches(rows: pd.DataFrame) -> tuple[Reach, ...]:
    points = rows.groupby("processes").agg(
        machines=("nodes", "median"),
        seconds=("seconds", "median"),
        epochs=("epochs", "median"),
        trials=("seconds", "size"),
        note=("reason", lambda reasons: "; ".join(dict.fromkeys(filter(None, reasons)))),
    )
    points = points.reset_index().astype({"processes": int})
    points["efficiency"] = points["processes"][0] * points["seconds"][0] / (points["processes"] * points["seconds"])
    return tuple(Reach(**{str(name): value for name, value in line.items()}) for line in points.to_dict("records"))
