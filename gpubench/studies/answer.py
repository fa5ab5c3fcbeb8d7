"""All findings of some rows, the one that is asked most first."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpubench.analysis.compare import Result
from gpubench.analysis.metrics import SECONDS
from gpubench.studies import ladder, pairs, scaling
from gpubench.studies.finding import Finding, in_order
from gpubench.studies.scaling import Views


@dataclass(frozen=True)
class Answer:
    """What was found, of how many rows, and what was not."""

    findings: tuple[Finding, ...]
    files: int
    rows: int
    failed: int
    """Rows without a result."""
    left_out: int = 0
    """Kinds of rows that were not compared."""
    gain: str = "speedup"
    """What the value of a finding is called."""
    in_full: bool = False
    """Whether everything follows."""


def findings_of(result: Result, views: Views | None = None) -> list[Finding]:
    """Every study's findings, in order; those that would read alike say in what they differ.

    Ladders and scaling answer questions of their own: they are there where nothing else was asked for.
    """
    found = list(pairs.findings(result))
    if result.metric is SECONDS and result.axes == ("card", "precision"):
        found += ladder.findings(result)
        found += scaling.findings(views) if views else ()
    return in_order(told_apart(found))


def told_apart(findings: Sequence[Finding]) -> list[Finding]:
    """Each with those of its facts, the shortest first, that findings of the same words do not all have."""
    alike: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for each in findings:
        alike[_words(each)].append(each)
    found = []
    for each in findings:
        others = [set(other.facts.values()) for other in alike[_words(each)]]
        own = [fact for fact in each.facts.values() if fact and not all(fact in other for other in others)]
        found.append(replace(each, settings=tuple(sorted(own, key=len))))
    return found


def _words(each: Finding) -> tuple[str, ...]:
    return each.kind, each.suite, each.what, each.where
