"""Hours of a training in phases, from the tables that rows carry: of each phase, and in all."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpubench.analysis.cells import Cell
from gpubench.analysis.compare import Group
from gpubench.rows.table import parsed


def lines(group: Group) -> list[str]:
    """A sentence per case whose table has hours: `resnet50 fp16 on 8 x V100: 0.9 h at 128 px, ..., 2.4 h in all`."""
    return [sentence for cell in group.cells if (sentence := _sentence(cell))]


def _sentence(cell: Cell) -> str:
    table = read(str(cell.row["table"]))
    if table is None:
        return ""
    many = f"{cell.processes:.0f} x " if cell.processes > 1 else ""
    parts = [f"{hours:.3g} h at {size} px" for size, hours in by_size(table)]
    whole = f"{cell.median / 3600:.3g} h in all"
    projected = " (projected)" if cell.row["measured"] == "projected" else ""
    return f"{cell.model} {cell.precision} on {many}{cell.label}: {', '.join([*parts, whole])}{projected}"


def read(text: str) -> list[dict[str, Any]] | None:
    """The lines of a row's table that has hours and image sizes; None where it is another, or broken."""
    columns, table = parsed(text)
    return table if {"hours", "size"} <= set(columns) else None


def by_size(table: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """(pixels, hours) of each phase, in order.

    Lines are phases with their own hours, or epochs with the hours since the beginning; those of epochs begin
    with the first, else nobody could tell what came before.
    """
    if table and "epoch" not in table[0]:
        return [(int(line["size"]), float(line["hours"])) for line in table]
    if not table or table[0]["epoch"] != 1:
        return []
    found: dict[int, float] = {}
    before = 0.0
    for line in table:
        found[int(line["size"])] = found.get(int(line["size"]), 0.0) + float(line["hours"]) - before
        before = float(line["hours"])
    return list(found.items())
