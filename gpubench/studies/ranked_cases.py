"""What the pages of `gpubench site` show: cases with their ranks and rows, and published figures, for `show.site`."""

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
from gpubench.printed import shown
from gpubench.rows.alike import KEY
from gpubench.rows.read import Place, load
from gpubench.studies import words
from gpubench.studies.answer import answer_to, count_files
from gpubench.studies.cards.figures import Published, published, short_name
from gpubench.studies.cards.ranking import Ranking, rank
from gpubench.studies.section import Answer

COMPARABLE = [column for column in KEY if column not in {"precision", "batch_policy"}]
"""Columns that the cases of one ranking share. The cases also share the batch policy. Cards and precisions may differ,
and so may the batches that the policy chose."""
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
    """One case with its rank."""

    group: Group
    recipe: str
    """The recipe without the suite, as text."""
    rows: tuple[SiteRow, ...]
    ranked: int
    """The number of comparable cases with a time."""
    rank: int = 0
    """1 is the fastest comparable case; 0 without a comparable case or a time. Several cases may share a rank."""
    share: float = math.nan
    """Speed relative to the fastest comparable case; NaN without a rank."""

    @property
    def card(self) -> str:
        """Return the card's short name: the name of its page."""
        return short_name(self.group.card)


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
    by_case: dict[int, list[SiteRow]] = defaultdict(list)
    for row in rows.values():
        by_case[row.facts["case"]].append(row)
    recipes = {
        id(group): words.title_of(workload.groups or workload.holes).partition(": ")[2]
        for workload in compared.workloads
        for group in workload.cases
    }
    comparable: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in in_order([group for workload in compared.workloads for group in workload.cases]):
        policy = TWIN_POLICIES.get(group.batch_policy, group.batch_policy)
        comparable[*texts_of(group, COMPARABLE), policy].append(group)
    cases = []
    for members in comparable.values():
        timed = sorted((group for group in members if group.values), key=lambda group: group.median)
        ranks = ranks_of([group.median for group in timed])
        for at, group in enumerate([*timed, *(group for group in members if not group.values)]):
            group_rows = tuple(row for number in sorted(group.cases) for row in by_case[number])
            case = RankedCase(group, recipes[id(group)], group_rows, len(timed))
            if len(timed) > 1 and group.values:
                case = replace(case, rank=ranks[at], share=timed[0].median / group.median)
            cases.append(case)
    return cases


def ranks_of(times: Sequence[float]) -> list[int]:
    """Return the ranks of ascending times. Times up to MINIMUM_EFFECT above the first of a rank share that rank."""
    ranks: list[int] = []
    for number, seconds in enumerate(times, start=1):
        is_shared = ranks and seconds <= times[ranks[-1] - 1] * (1 + MINIMUM_EFFECT)
        ranks.append(ranks[-1] if is_shared else number)
    return ranks


@dataclass(frozen=True)
class Contents:
    """Everything on a site. Rows and published figures are separate."""

    answer: Answer
    cases: Sequence[RankedCase]
    rows: Sequence[SiteRow]
    """All rows that can be used, one per trial."""
    ranking: Ranking
    published: Published
    licensed: bool = False
    """Whether there is a license for the rows."""


def contents_of(paths: Sequence[Path], *, licensed: bool = False) -> Contents:
    """Return the contents of a site for the files in `paths`; without rows, only published figures and problems."""
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
