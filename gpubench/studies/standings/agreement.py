"""How many submissions say the same of a case: rows that share no device, session or file."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpubench.analysis.cells import Cell, texts_of
from gpubench.analysis.matching import other_stack
from gpubench.analysis.stats import DECIDING_TRIALS, median, ratio, verdict
from gpubench.rows.alike import KEY

SAME = [*KEY, "batch_size", "card", "suite_digest"]
"""What cells agree in that answer one question; their software may differ as much as a verdict allows."""
FilesOf = Callable[[Cell], Collection[Hashable]]


@dataclass(frozen=True)
class Agreement:
    """What the submissions of a case say of it."""

    submissions: int
    """Those with DECIDING_TRIALS trials or more."""
    agreeing: int
    """How many of them agree with one of them, itself included; the one is the cell's own, if it has one."""
    spread: float
    """Of those: the largest median over the smallest, less 1."""


def agreements(cells: Sequence[Cell], files_of: FilesOf) -> list[Agreement | None]:
    """By cell what the submissions of its case say; None for imported rows and cells without a time.

    Two agree where a verdict would call their trials `same`: the 90% interval of the ratio of their medians lies within
    the minimum effect. `files_of` names the files that a cell's rows stand in.
    """
    pools: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        for part in _parts(cell):
            pools[texts_of(part, SAME)].append(part)
    submission = {at: number for pool in pools.values() for at, number in _submissions(pool, files_of).items()}
    return [_agreement(cell, pools, submission) for cell in cells]


def _parts(cell: Cell) -> Sequence[Cell]:
    """Its cells of one specimen and session, if it is of our own rows."""
    return [part for part in cell.parts or (cell,) if part.values and not part.source]


def _submissions(cells: Sequence[Cell], files_of: FilesOf) -> dict[int, int]:
    """By a cell's id the number of its submission, of the cells of one case.

    Those that share a device, a session or a file are one: cards of one host share a session, and a file has one
    author. Rows of other cases join none, so that nobody joins two strangers by a row of their own suite.
    """
    first: dict[Hashable, int] = {}
    joined = list(range(len(cells)))

    def root(at: int) -> int:
        while joined[at] != at:
            at = joined[at]
        return at

    for at, cell in enumerate(cells):
        for mark in _marks(cell, files_of):
            joined[root(at)] = root(first.setdefault(mark, at))
    return {id(cell): root(at) for at, cell in enumerate(cells)}


def _marks(cell: Cell, files_of: FilesOf) -> Iterator[Hashable]:
    """What no other submission has; an empty cell says nothing."""
    yield from (("file", file) for file in files_of(cell))
    yield from ((name, value) for name in ("device_hash", "session") if (value := str(cell.row[name])))


def _agreement(
    cell: Cell, pools: Mapping[tuple[str, ...], Sequence[Cell]], submission: Mapping[int, int]
) -> Agreement | None:
    parts = _parts(cell)
    if not parts:
        return None
    known: dict[int, list[Cell]] = defaultdict(list)
    for other in pools[texts_of(parts[0], SAME)]:
        if not other_stack("device_hash", parts[0], other):
            known[submission[id(other)]].append(other)
    values = {number: _values(own) for number, own in known.items() if _trials(own) >= DECIDING_TRIALS}
    groups = [
        [other for other in values.values() if other is values[number] or _agree(values[number], other)]
        for number in dict.fromkeys(submission[id(part)] for part in parts)
        if number in values
    ]
    if not groups:
        return Agreement(len(values), 0, math.nan)
    medians = [median(each) for each in max(groups, key=len)]
    return Agreement(len(values), len(medians), max(medians) / min(medians) - 1)


def _trials(cells: Sequence[Cell]) -> int:
    return sum(cell.trials for cell in cells)


def _values(cells: Sequence[Cell]) -> list[float]:
    """A submission's trials, or the medians of its sessions and devices where it has several."""
    return list(cells[0].values) if len(cells) == 1 else [cell.median for cell in cells]


def _agree(one: Sequence[float], other: Sequence[float]) -> bool:
    return verdict(ratio(one, other), adjusted_p=None, trials=DECIDING_TRIALS) == "same"
