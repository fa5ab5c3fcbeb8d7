"""What reaching a suite's goal takes: seconds over the share of runs that reached it."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from gpubench.analysis.cells import CELL, Cell
from gpubench.analysis.verdicts import Comparison
from gpubench.suite.trial import TRAINED


def success_of(frame: pd.DataFrame) -> "pd.Series[float]":
    """Share of each row's runs that reached the goal; NaN where it has none, or did not train to its end."""
    named = frame["params"].str.contains(r"(?:^| )goal=", regex=True)
    told = (frame["status"] == "ok").astype(float).where(named)
    rate = frame.get("success_rate", told)
    return rate.where(rate.notna(), told).where(frame["status"].isin(TRAINED))


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
