"""Counts the submissions of a case that agree. Submissions share no device, session or file.

`ranked_cases` calls it for the site.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpubench.analysis.groups import Group, texts_of
from gpubench.analysis.matching import other_stack
from gpubench.analysis.stats import DECIDING_TRIALS, median, ratio, verdict
from gpubench.rows.alike import KEY

SAME = [*KEY, "batch_size", "card", "suite_digest"]
"""Columns that are equal in comparable groups; the software may differ as much as in a verdict."""
FilesOf = Callable[[Group], Collection[Hashable]]


@dataclass(frozen=True)
class Agreement:
    """How many submissions of a case agree."""

    submissions: int
    """Submissions with at least DECIDING_TRIALS trials."""
    agreeing: int
    """The largest number that agrees with one submission of the group, which is counted too."""
    spread: float
    """Their largest median over the smallest, minus 1."""

    def __str__(self) -> str:
        """Return `2 agree, within 1.0%`, `2 of 3 agree, within 1.0%`, `one` or `too few trials`."""
        if self.submissions < 2 or not self.agreeing:
            return "one" if self.submissions == 1 and self.agreeing else "too few trials"
        total = "" if self.agreeing == self.submissions else f" of {self.submissions}"
        spread = f", within {self.spread:.1%}" if self.agreeing > 1 else ""
        return f"{self.agreeing}{total} agree{'s' * (self.agreeing == 1)}{spread}"


def agreements(groups: Sequence[Group], files_of: FilesOf) -> list[Agreement | None]:
    """Return the agreement on the case of each group; None for imported rows and groups without a time.

    Two submissions agree if the verdict on their trials is `same`: the 90% interval of the ratio of their medians is
    within the minimum effect. `files_of` returns the files of a group's rows.
    """
    pools: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in groups:
        for part in _parts(group):
            pools[texts_of(part, SAME)].append(part)
    submission = {at: number for pool in pools.values() for at, number in _submissions(pool, files_of).items()}
    return [_agreement(group, pools, submission) for group in groups]


def _parts(group: Group) -> Sequence[Group]:
    """Return the parts of a group (one specimen, one session each) that were measured with gpubench."""
    return [part for part in group.parts or (group,) if part.values and not part.source]


def _submissions(groups: Sequence[Group], files_of: FilesOf) -> dict[int, int]:
    """Return the number of the submission by id of the group, for the groups of one case.

    Groups that share a device, a session or a file are one submission: cards of one host share a session, and a file
    has one author. Rows of other cases do not connect submissions.
    """
    first: dict[Hashable, int] = {}
    joined = list(range(len(groups)))

    def root(at: int) -> int:
        while joined[at] != at:
            at = joined[at]
        return at

    for at, group in enumerate(groups):
        for mark in _marks(group, files_of):
            joined[root(at)] = root(first.setdefault(mark, at))
    return {id(group): root(at) for at, group in enumerate(groups)}


def _marks(group: Group, files_of: FilesOf) -> Iterator[Hashable]:
    """Yield the files, the device and the session of a group; no two submissions share one."""
    yield from (("file", file) for file in files_of(group))
    yield from ((name, value) for name in ("device_hash", "session") if (value := str(group.row[name])))


def _agreement(
    group: Group, pools: Mapping[tuple[str, ...], Sequence[Group]], submission: Mapping[int, int]
) -> Agreement | None:
    parts = _parts(group)
    if not parts:
        return None
    by_submission: dict[int, list[Group]] = defaultdict(list)
    for other in pools[texts_of(parts[0], SAME)]:
        if not other_stack("device_hash", parts[0], other):
            by_submission[submission[id(other)]].append(other)
    values = {
        number: _values(members)
        for number, members in by_submission.items()
        if sum(member.trials for member in members) >= DECIDING_TRIALS
    }
    groups = [
        [other for other in values.values() if other is values[number] or _agree(values[number], other)]
        for number in dict.fromkeys(submission[id(part)] for part in parts)
        if number in values
    ]
    if not groups:
        return Agreement(len(values), 0, math.nan)
    medians = [median(times) for times in max(groups, key=len)]
    return Agreement(len(values), len(medians), max(medians) / min(medians) - 1)


def _values(groups: Sequence[Group]) -> list[float]:
    """Return the trials of a submission, or the medians of its groups if it has several."""
    return list(groups[0].values) if len(groups) == 1 else [group.median for group in groups]


def _agree(one: Sequence[float], other: Sequence[float]) -> bool:
    return verdict(ratio(one, other), adjusted_p=None, trials=DECIDING_TRIALS) == "same"
