"""Tables that several studies use: cases with their figures, and the evidence for each."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from gpubench.analysis.cells import Cell, text_of
from gpubench.analysis.matching import TWIN_POLICIES
from gpubench.analysis.metrics import Metric
from gpubench.rows.row import SHOWN_QUALITIES
from gpubench.studies import words
from gpubench.studies.section import Column, Estimate, Table, Value
from gpubench.suite.trial import TRAINED


def behind(cells: Iterable[Cell]) -> frozenset[int]:
    """Return the case numbers of these groups, which identify their rows."""
    return frozenset(number for cell in cells for number in cell.cases)


def value_column(metric: Metric) -> Column:
    """Return the column of the compared metric."""
    better: Literal["higher", "lower"] = "higher" if metric.inverse else "lower"
    return Column(metric.title, metric.unit, better, places=2 if metric.unit == "share" else None)


def estimate(cell: Cell, metric: Metric) -> Value:
    """Return a group's median with its interval, or its status if it has no values."""
    if not cell.values:
        return cell.status.replace("_", " ") if cell.status not in TRAINED else None
    low, high = sorted(map(metric.shown, cell.interval)) if cell.interval else (None, None)
    return Estimate(metric.shown(cell.median), low, high)


def known(value: float) -> float | None:
    """Return the value, or None for NaN."""
    return None if math.isnan(value) else value


def cases_table(cells: Sequence[Cell], metric: Metric) -> Table:
    """Return the table of cases; a case without a figure shows its status."""
    columns = [
        Column("model"),
        Column("card"),
        Column("precision"),
        Column("batch"),
        value_column(metric),
        Column("samples/s", "samples/s", "higher"),
        Column("trials", "count"),
        *(Column(about.title, about.unit or name, about.better, places=2) for name, about in SHOWN_QUALITIES.items()),
        Column("notes", note=True),
    ]
    lines: list[list[Value]] = [
        [
            *(cell.model, label, cell.precision, batch_text(cell), estimate(cell, metric)),
            *(known(cell.samples_per_second), cell.trials or None),
            *(known(cell.number(name)) for name in SHOWN_QUALITIES),
            words.notes_of(cell),
        ]
        for cell, label in zip(cells, words.labels_of(cells), strict=True)
    ]
    double = [at for at, column in enumerate(columns) if at > 4 and column.name == metric.title]  # there already
    kept = [at for at in range(len(columns)) if at not in double]
    return Table("cases", tuple(columns[at] for at in kept), tuple(tuple(line[at] for at in kept) for line in lines))


def batch_text(cell: Cell) -> str:
    """Return the batch and the policy that chose it."""
    size = "" if math.isnan(cell.batch_size) else f"{cell.batch_size:.0f} "
    return f"{size}({cell.batch_policy}{', capped' if cell.row['batch_capped'] else ''})"


def evidence_table(cells: Sequence[Cell], metric: Metric) -> Table:
    """Return the table of the values behind each median, and of the machine and software that measured them."""
    facts = ("suite_version", "session", "device_hash", "torch", "cuda", "cudnn", "driver", "cpu", "source")
    long = any(len(part.values) > 1 for cell in cells for part in cell.parts or (cell,))
    names = ("model", "card", "precision", "figures", "values", *facts)
    columns = [Column(name, note=long and name == "values") for name in names]
    lines: list[tuple[Value, ...]] = [
        (
            *(part.model, label, part.precision, part.measured),
            tuple(map(metric.shown, part.values)),
            *(text_of(part.row[name]) for name in facts),
        )
        for cell, label in zip(cells, words.labels_of(cells), strict=True)
        for part in cell.parts or (cell,)
    ]
    return Table("evidence", tuple(columns), tuple(lines))


def policy_text(policy: str) -> str:
    """Return the batch policy in brackets for twins of a case, else an empty text."""
    return f" ({policy})" if policy in TWIN_POLICIES else ""
