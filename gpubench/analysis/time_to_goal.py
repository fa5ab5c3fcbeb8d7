"""The metric `time-to-goal`: seconds of a run over the share of runs that reached the goal. `compare` calls it."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from gpubench.analysis.groups import Group
from gpubench.analysis.scaling import goals_of
from gpubench.analysis.verdicts import Comparison
from gpubench.rows.alike import GROUP
from gpubench.suite.trial import TRAINED


def success_of(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return the share of each row's runs that reached the goal; NaN without a goal or a finished training.

    For old and published rows without a `success_rate` it follows from their status.
    """
    trained = frame["mode"].isin(["full", "published"]) & (frame["data"] != "synthetic")
    from_status = (frame["status"] == "ok").astype(float).where(trained & (goals_of(frame) > 0))
    rate = frame.get("success_rate", from_status)
    return rate.where(rate.notna(), from_status).where(frame["status"].isin(TRAINED))


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
