"""Every case of some rows: its place among like ones, the submissions that agree on it, and the rows behind it."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.analysis.cells import Cell, dicts_of, in_order, texts_of
from gpubench.analysis.compare import Result
from gpubench.analysis.matching import TWIN_POLICIES
from gpubench.analysis.stats import MINIMUM_EFFECT
from gpubench.rows.alike import CELL, KEY
from gpubench.rows.read import Place, shown
from gpubench.studies import words
from gpubench.studies.cards.figures import short_name
from gpubench.studies.cases import batch_text, estimate, known
from gpubench.studies.section import Value
from gpubench.studies.standings.agreement import Agreement, agreements

ALIKE = [column for column in KEY if column not in {"precision", "batch_policy"}]
"""What cases share that are put in one order, beside the rule that chose the batch: cards and precisions compete.

Where that rule is not a fixed size, each case has the batch that the rule gave it.
"""


@dataclass(frozen=True)
class Row:
    """One row, as a page about a card shows it."""

    file: str
    """Its name; its path where another one has the same name."""
    line: int
    card: str
    facts: Mapping[str, Any]
    """Its columns, texts as they may be shown."""


@dataclass(frozen=True)
class Standing:
    """One case: what was asked, what came out, and where that puts it."""

    suite: str
    recipe: str
    """What it shares with those it is compared with, in words, without the suite."""
    model: str
    card: str
    """Without its maker's boilerplate: the name of its page."""
    label: str
    """The card with what tells it from others of its name."""
    precision: str
    batch: str
    seconds: Value
    """With its interval; a text where it has no time."""
    rate: float | None
    """Samples per second."""
    trials: int
    source: str
    """Who published it; empty for rows of our own."""
    place: int
    """1 is the fastest of like cases; 0 where there is no other, or no time. Several may share one."""
    of: int
    """How many like cases have a time."""
    share: float
    """Of the speed of the fastest one; NaN where it has no place."""
    submissions: str
    """How many there are of it, and how many agree, in words."""
    notes: str
    rows: tuple[Row, ...]


def rows_of(result: Result, places: Sequence[Place]) -> dict[int, Row]:
    """By their place in the index of the frame all rows that were compared; `places` are those of `Loaded`."""
    paths = {place.path for place in places}
    names = Counter(path.name for path in paths)
    called = {path: shown(path.name if names[path.name] == 1 else str(path)) for path in paths}
    return {
        int(at): Row(called[places[at].path], places[at].line, short_name(each["card"]), each)
        for at, each in zip(result.frame.index, dicts_of(result.frame), strict=True)
    }


def standings(result: Result, rows: Mapping[int, Row]) -> list[Standing]:
    """All cases, like ones together and the fastest of them first; suites and models as they came."""
    behind = _Behind(rows)
    recipe = {
        id(cell): words.title_of(group.cells or group.holes).partition(": ")[2]
        for group in result.groups
        for cell in group.cases
    }
    cells = in_order([cell for group in result.groups for cell in group.cases])
    alike: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        policy = TWIN_POLICIES.get(cell.batch_policy, cell.batch_policy)
        alike[*texts_of(cell, ALIKE), policy].append(cell)
    agreed = agreements(cells, lambda cell: {row.file for row in behind.of(cell)})
    submissions = {id(cell): agreement_text(found) for cell, found in zip(cells, agreed, strict=True)}
    found = []
    for members in alike.values():
        timed = sorted((cell for cell in members if cell.values), key=lambda cell: cell.median)
        places = places_of([cell.median for cell in timed])
        for at, cell in enumerate([*timed, *(cell for cell in members if not cell.values)]):
            has_place = len(timed) > 1 and bool(cell.values)
            found.append(
                Standing(
                    suite=cell.suite,
                    recipe=recipe[id(cell)],
                    model=cell.model,
                    card=short_name(cell.card),
                    label=words.without_author(cell.label, cell.source),
                    precision=cell.precision,
                    batch=batch_text(cell),
                    seconds=estimate(cell, result.metric),
                    rate=known(cell.samples_per_second),
                    trials=cell.trials,
                    source=cell.source,
                    place=places[at] if has_place else 0,
                    of=len(timed),
                    share=timed[0].median / cell.median if has_place else math.nan,
                    submissions=submissions[id(cell)],
                    notes=words.notes_of(cell),
                    rows=tuple(behind.of(cell)),
                )
            )
    return found


def places_of(seconds: Sequence[float]) -> list[int]:
    """Of times in ascending order; those less than the minimum effect above the first of a place share it."""
    found: list[int] = []
    for place, second in enumerate(seconds, start=1):
        shared = found and second <= seconds[found[-1] - 1] * (1 + MINIMUM_EFFECT)
        found.append(found[-1] if shared else place)
    return found


class _Behind:
    """Finds the rows that a cell is made of."""

    def __init__(self, rows: Mapping[int, Row]) -> None:
        self._by_cell: dict[tuple[str, ...], list[Row]] = defaultdict(list)
        self._by_case: dict[int, list[Row]] = defaultdict(list)
        for row in rows.values():
            self._by_cell[texts_of(row.facts, CELL)].append(row)
            self._by_case[row.facts["case"]].append(row)

    def of(self, cell: Cell) -> list[Row]:
        """In the order of the files; of a case without a time all its rows."""
        if not cell.values:
            return self._by_case[cell.case]
        return [row for part in cell.parts or (cell,) for row in self._by_cell[texts_of(part, CELL)]]


def agreement_text(found: Agreement | None) -> str:
    """`2 agree`, `2 of 3 agree`, and by how much they differ; empty where no submission is asked."""
    if found is None:
        return ""
    if found.submissions < 2 or not found.agreeing:
        return "one" if found.submissions == 1 and found.agreeing else "too few trials"
    of = "" if found.agreeing == found.submissions else f" of {found.submissions}"
    spread = f", within {found.spread:.1%}" if found.agreeing > 1 else ""
    return f"{found.agreeing}{of} agree{'s' * (found.agreeing == 1)}{spread}"
