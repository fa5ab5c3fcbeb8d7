"""What several studies use: tables of cases with their figures and the evidence for each, and limits of figures."""

import math
from collections.abc import Sequence

import pandas as pd

from gpubench.analysis.groups import Group, texts_of
from gpubench.analysis.matching import TWIN_POLICIES
from gpubench.analysis.metrics import SECONDS, Metric
from gpubench.rows.row import SHOWN_QUALITIES
from gpubench.studies import words
from gpubench.studies.section import Column, Estimate, Table, Value
from gpubench.suite.trial import TRAINED

PLAUSIBLE_SECONDS = (1e-9, 1e12)
"""Range of the seconds of a published run; other times are ignored."""


def cases_of(rows: pd.DataFrame) -> frozenset[int]:
    """Return the numbers of the rows' cases."""
    return frozenset(map(int, rows["case"].unique()))


def estimate(group: Group, metric: Metric = SECONDS) -> Value:
    """Return a group's median with its interval. Without values, return its status if it failed, else None."""
    if not group.values:
        return group.status.replace("_", " ") if group.status not in TRAINED else None
    return Estimate(metric.median_of(group.values), *(interval_of(group, metric) or (None, None)))


def interval_of(group: Group, metric: Metric) -> tuple[float, float] | None:
    """Return the 95% interval of a group's median, in the metric's unit; None below six values."""
    if not group.interval:
        return None
    low, high = sorted(map(metric.shown, group.interval))
    return low, high


def known(value: float) -> float | None:
    """Return the value, or None for NaN."""
    return None if math.isnan(value) else value


def cases_table(groups: Sequence[Group], metric: Metric) -> Table:
    """Return the table of cases; a case without a figure shows its status."""
    compared = Column(
        metric.title, metric.unit, "higher" if metric.inverse else "lower", places=2 if metric.unit == "share" else None
    )
    qualities = {
        name: Column(about.title, about.unit or name, about.better, places=2)
        for name, about in SHOWN_QUALITIES.items()
        if about.title != metric.title
    }
    lines = []
    for group, label in zip(groups, words.labels_of(groups), strict=True):
        line: dict[Column, Value] = {
            Column("model"): group.model,
            Column("card"): label,
            Column("precision"): group.precision,
            Column("batch"): batch_text(group),
            compared: None,
            Column("samples/s", "samples/s", "higher"): known(group.samples_per_second),
            Column("trials", "count"): group.trials or None,
            **{column: known(group.number(name)) for name, column in qualities.items()},
            Column("notes", note=True): words.notes_of(group),
        }
        lines.append(line | {compared: estimate(group, metric)})  # last: may replace `samples/s`
    return Table.of("cases", lines)


def cut_notes(cut: int, trained: int) -> list[str]:
    """Return the note on the trials that diverged or reached the time limit, beside `trained` others; [] if none."""
    return [f"{cut} of {cut + trained} trials diverged or reached the time limit"] if cut else []


def batch_text(group: Group) -> str:
    """Return the batch and the policy that chose it."""
    size = "unknown " if math.isnan(group.batch_size) else f"{group.batch_size:.0f} "
    return f"{size}({group.batch_policy}{', capped' if group.row['batch_capped'] else ''})"


def rate_text(value: float) -> str:
    """Return a rate as text: whole from 100 on, else at most three digits; `unknown` for 0 and NaN."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value > 0 else "unknown"


def evidence_table(groups: Sequence[Group], metric: Metric) -> Table:
    """Return the table of the values behind each median (`basis`: measured or projected), with machine and software."""
    facts = ("suite_version", "session", "device_hash", "torch", "cuda", "cudnn", "driver", "cpu", "source")
    long = any(len(part.values) > 1 for group in groups for part in group.parts or (group,))
    names = map(Column, ("model", "card", "precision", "basis"))
    lines: list[tuple[Value, ...]] = [
        (
            part.model,
            label,
            part.precision,
            part.measured,
            tuple(map(metric.shown, part.values)) if metric.inverse else part.values,
            *texts_of(part, facts),
        )
        for group, label in zip(groups, words.labels_of(groups), strict=True)
        for part in group.parts or (group,)
    ]
    columns = (*names, Column("values", note=long), *map(Column, facts))
    return Table("evidence", columns if lines else (), tuple(lines))


def policy_text(policy: str) -> str:
    """Return the batch policy in brackets for an extra run at another batch (TWIN_POLICIES), else an empty text."""
    return f" ({policy})" if policy in TWIN_POLICIES else ""
