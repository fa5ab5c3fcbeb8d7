"""Specimens: their names, and cells of several of one card, or of several sessions of one, as one cell."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gpubench.analysis.cells import LABELLED, Cell, circumstanced, dicts_of, in_order, text_of, texts_of
from gpubench.analysis.stats import MEASURED_FROM, median
from gpubench.rows.alike import GROUP, KEY, OUTCOMES, SPECIMEN, STACK
from gpubench.rows.read import shown


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


def labels_of(frame: pd.DataFrame) -> dict[tuple[str, ...], str]:
    """A name per specimen, session and source: the card, and what sets it apart where that is not enough.

    The session is named only where one specimen ran the same case in several.
    """
    frame = frame.drop_duplicates("identity")
    frame = frame.assign(**{name: frame[name].map(shown) for name in (*SPECIMEN, "source")})
    case = [*KEY, "card", "device_hash", "unknown_device", "power_cap", "memory_limit_bytes"]
    sessions = frame.drop_duplicates([*case, "session"])
    again = sessions[sessions.duplicated(case, keep=False)]
    repeated = {_texts_without_session(row) for row in dicts_of(again[LABELLED])}
    who = frame[LABELLED].drop_duplicates()
    own = who[who["source"] == ""]
    specimens = own.groupby("card")["device_hash"].nunique()
    unknown = own.groupby("card")["unknown_device"].nunique()
    sources = who.groupby("card")["source"].nunique()
    labels = {}
    for row in dicts_of(who):
        card, device, specimen, session, source, power, memory = key = texts_of(row, LABELLED)
        label = circumstanced(card, power, memory)
        if source and sources[card] > 1:
            label += f" ({source.removeprefix('github.com/').partition('/')[0].partition(',')[0]})"
        elif not source and max(specimens[card], unknown[card]) > 1:
            label += f" #{specimen[:4]}" if specimen else f" ({device})" if device else ""
        if _texts_without_session(row) in repeated:
            label += f" [session {session[:6]}]"
        labels[key] = label
    return labels


def _texts_without_session(row: Mapping[str, Any]) -> tuple[str, ...]:
    return texts_of(row, [column for column in LABELLED if column != "session"])
