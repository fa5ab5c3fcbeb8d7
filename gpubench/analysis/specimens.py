"""Cells of several specimens of one card, or of several sessions of one, become one cell whose unit they are."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from gpubench.analysis.cells import GROUP, KEY, OUTCOMES, STACK, Cell, circumstanced, in_order, text_of, texts_of
from gpubench.analysis.stats import MEASURED_FROM, median


def combined(cells: Sequence[Cell], axis: str) -> list[Cell]:
    """The cells, with MEASURED_FROM specimens or more of a card made one cell per case.

    Along `card` and `precision` the unit is the specimen. Along any other axis it is the session: days of one
    device are compared with days of the same device. What ran on another stack, or with other code, stays apart.
    """
    unit = "device_hash" if axis in {"card", "precision"} else "session"
    same = [*GROUP, *STACK, "suite_digest", "card", *([] if unit == "device_hash" else ["device_hash", axis])]
    pools: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    found: list[Cell] = []
    for cell in cells:
        if cell.device_hash and cell.row[unit]:
            pools[texts_of(cell, same)].append(cell)
        else:
            found.append(cell)
    labels: dict[str, int] = defaultdict(int)
    for pool in pools.values():
        if len({cell.row[unit] for cell in pool}) < MEASURED_FROM:
            found += pool
            continue
        label = _label(pool[0], unit)
        labels[label] += 1
        # Another stack of the same card: its notes say which.
        label += f" ({labels[label]})" if labels[label] > 1 else ""
        cases: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
        for cell in pool:
            cases[texts_of(cell, KEY)].append(cell)
        found += [_combination(case, unit, label) for case in cases.values()]
    return in_order(found)


def units_of(cell: Cell) -> dict[str, list[float]]:
    """Seconds by specimen, or by session where that is a combined cell's unit.

    A unit's trials, or the medians of its sessions where it has several.
    """
    parts: dict[str, list[Cell]] = defaultdict(list)
    for part in cell.parts or (cell,):
        parts[str(part.row[unit_of(cell)])].append(part)
    return {
        unit: list(own[0].values) if len(own) == 1 else [part.median for part in own] for unit, own in parts.items()
    }


def unit_of(cell: Cell) -> str:
    """The column whose values a cell's units are: `device_hash`, or `session` where several of one device are."""
    return "session" if cell.parts and cell.device_hash else "device_hash"


def _label(cell: Cell, unit: str) -> str:
    label = circumstanced(cell.card, cell.row["power_cap"], text_of(cell.row["memory_limit_bytes"]))
    return f"{label} #{cell.device_hash[:4]}" if unit == "session" and cell.device_hash else label


def _combination(parts: Sequence[Cell], unit: str, label: str) -> Cell:
    medians: dict[str, list[float]] = defaultdict(list)
    for part in parts:
        medians[part.row[unit]].append(part.median)
    row: dict[str, Any] = {**parts[0].row, unit: "", "session": ""}
    row["reason"] = "; ".join(dict.fromkeys(part.reason for part in parts if part.reason))
    if any(part.measured == "projected" for part in parts):
        row["measured"] = "projected"
    for outcome in OUTCOMES:
        known = [part.row[outcome] for part in parts if part.row[outcome] == part.row[outcome]]
        row[outcome] = median(known) if known else float("nan")
    if len({text_of(part.batch_size) for part in parts}) > 1:
        row["batch_size"] = float("nan")
    seconds = tuple(float(median(values)) for values in medians.values())
    marks = sum((Counter(part.marks) for part in parts), Counter[str]())
    lost = sum((Counter(part.lost) for part in parts), Counter[str]())
    return Cell(row, seconds, label, marks, lost, tuple(parts))
