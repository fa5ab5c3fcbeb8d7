"""What a site shows: every case with its rank among comparable ones, its rows, and the published figures.

`show.site` makes pages of it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpubench.analysis.compare import Compared, Question, compare_rows, load_rows
from gpubench.analysis.groups import Group, dicts_of, in_order, texts_of
from gpubench.analysis.matching import TWIN_POLICIES
from gpubench.analysis.stats import MINIMUM_EFFECT
from gpubench.errors import UserError
from gpubench.rows.alike import GROUP, KEY
from gpubench.rows.read import Place, load, shown
from gpubench.studies import words
from gpubench.studies.agreement import agreements
from gpubench.studies.answer import answer_to, count_files
from gpubench.studies.cards.figures import Published, published, short_name
from gpubench.studies.cards.ranking import Ranking, rank
from gpubench.studies.cases import batch_text, estimate, known
from gpubench.studies.section import Answer, Value

COMPARABLE = [column for column in KEY if column not in {"precision", "batch_policy"}]
"""Columns that cases of one ranking share, with the batch policy. Cards, precisions and policy batches may differ."""
NO_ROWS = "No rows of gpubench yet. Below: the ranking by published figures."


@dataclass(frozen=True)
class SiteRow:
    """One row on the page of a card."""

    file: str
    """The name of the file, or its path if two files have the same name."""
    line: int
    card: str
    facts: Mapping[str, Any]
    """Its columns."""


@dataclass(frozen=True)
class RankedCase:
    """One case with its result and its rank."""

    suite: str
    recipe: str
    """The recipe without the suite, as text."""
    model: str
    card: str
    """The card's short name: the name of its page."""
    label: str
    """The card, with a suffix if several have its name."""
    precision: str
    batch: str
    seconds: Value
    """With its interval, or a text if it has no time."""
    rate: float | None
    """In samples/s."""
    trials: int
    source: str
    """The publisher; empty for rows of gpubench."""
    rank: int
    """1 is the fastest comparable case; 0 without a comparable case or a time. Several cases may share a rank."""
    ranked: int
    """The number of comparable cases with a time."""
    share: float
    """Speed relative to the fastest comparable case; NaN without a rank."""
    submissions: str
    """The number of submissions and how many agree, as text."""
    notes: str
    rows: tuple[SiteRow, ...]


def rows_of(compared: Compared, places: Sequence[Place]) -> dict[int, SiteRow]:
    """Return the compared rows by their index in the frame; `places` are those of `Loaded`."""
    paths = {place.path for place in places}
    names = Counter(path.name for path in paths)
    labels = {path: shown(path.name if names[path.name] == 1 else str(path)) for path in paths}
    return {
        int(at): SiteRow(labels[places[at].path], places[at].line, short_name(facts["card"]), facts)
        for at, facts in zip(compared.frame.index, dicts_of(compared.frame), strict=True)
    }


def ranked_cases(compared: Compared, rows: Mapping[int, SiteRow]) -> list[RankedCase]:
    """Return all cases, comparable ones together and the fastest of them first."""
    rows_of_group = _RowsOfCell(rows)
    recipe = {
        id(group): words.title_of(workload.groups or workload.holes).partition(": ")[2]
        for workload in compared.workloads
        for group in workload.cases
    }
    groups = in_order([group for workload in compared.workloads for group in workload.cases])
    comparable: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in groups:
        policy = TWIN_POLICIES.get(group.batch_policy, group.batch_policy)
        comparable[*texts_of(group, COMPARABLE), policy].append(group)
    agreed = agreements(groups, lambda group: {row.file for row in rows_of_group.find(group)})
    submissions = {id(group): str(agreement or "") for group, agreement in zip(groups, agreed, strict=True)}
    cases = []
    for members in comparable.values():
        timed = sorted((group for group in members if group.values), key=lambda group: group.median)
        ranks = ranks_of([group.median for group in timed])
        for at, group in enumerate([*timed, *(group for group in members if not group.values)]):
            has_rank = len(timed) > 1 and bool(group.values)
            cases.append(
                RankedCase(
                    suite=group.suite,
                    recipe=recipe[id(group)],
                    model=group.model,
                    card=short_name(group.card),
                    label=words.without_author(group.label, group.source),
                    precision=group.precision,
                    batch=batch_text(group),
                    seconds=estimate(group, compared.metric),
                    rate=known(group.samples_per_second),
                    trials=group.trials,
                    source=group.source,
                    rank=ranks[at] if has_rank else 0,
                    ranked=len(timed),
                    share=timed[0].median / group.median if has_rank else math.nan,
                    submissions=submissions[id(group)],
                    notes=words.notes_of(group),
                    rows=tuple(rows_of_group.find(group)),
                )
            )
    return cases


def ranks_of(times: Sequence[float]) -> list[int]:
    """Return the ranks of ascending times. Times within the minimum effect of the first of a rank share it."""
    ranks: list[int] = []
    for number, seconds in enumerate(times, start=1):
        is_shared = ranks and seconds <= times[ranks[-1] - 1] * (1 + MINIMUM_EFFECT)
        ranks.append(ranks[-1] if is_shared else number)
    return ranks


class _RowsOfCell:
    """Finds the rows of a group."""

    def __init__(self, rows: Mapping[int, SiteRow]) -> None:
        self._by_group: dict[tuple[str, ...], list[SiteRow]] = defaultdict(list)
        self._by_case: dict[int, list[SiteRow]] = defaultdict(list)
        for row in rows.values():
            self._by_group[texts_of(row.facts, GROUP)].append(row)
            self._by_case[row.facts["case"]].append(row)

    def find(self, group: Group) -> list[SiteRow]:
        """Return its rows in the order of the files; for a case without a time all rows of the case."""
        if not group.values:
            return self._by_case[group.case]
        return [row for part in group.parts or (group,) for row in self._by_group[texts_of(part, GROUP)]]


@dataclass(frozen=True)
class Contents:
    """Everything on a site. Rows and published figures are separate."""

    answer: Answer
    cases: Sequence[RankedCase]
    rows: Sequence[SiteRow]
    """All rows that were read."""
    ranking: Ranking
    published: Published
    licensed: bool = False
    """Whether there is a license for the rows."""


def contents_of(paths: Sequence[Path], *, licensed: bool = False) -> Contents:
    """Return the contents of a site for the files in `paths`; files without a row become problems of the answer."""
    ranking = rank()
    ranking = replace(ranking, lines=tuple(line for line in ranking.lines if line.figures))
    files = count_files(paths)
    try:
        loaded = load_rows(paths, keep=True)
    except UserError:  # no row
        empty = load(paths, keep=True)
        nothing = Answer(NO_ROWS, (), (), files=files, problems=tuple(empty.problems), table=lambda _: empty.table([]))
        return Contents(nothing, (), (), ranking, published(), licensed)
    compared = compare_rows(loaded, Question())
    rows = rows_of(compared, loaded.places)
    answer = answer_to(compared, loaded, files=files)
    return Contents(answer, ranked_cases(compared, rows), tuple(rows.values()), ranking, published(), licensed)
