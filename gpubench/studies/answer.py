"""All findings of some rows, the one that is asked most first."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpubench.comparing.compare import Result
from gpubench.comparing.scaling import Curve, Held
from gpubench.studies import ladder, pairs, scaling
from gpubench.studies.finding import Finding, in_order

MOST_SETTINGS = 2


@dataclass(frozen=True)
class Answer:
    """What was found, of how many rows, and what was not."""

    findings: tuple[Finding, ...]
    files: int
    rows: int
    failed: int
    """Rows without a result."""
    gain: str = "speedup"
    """What the value of a finding is called."""


def findings_of(result: Result, curves: Sequence[Curve] = (), held: Sequence[Held] = ()) -> list[Finding]:
    """Every study's findings, in order; those that would read alike say in what they differ."""
    found = [*pairs.findings(result), *ladder.findings(result), *scaling.findings(curves, held)]
    return in_order(told_apart(found))


def told_apart(findings: Sequence[Finding]) -> list[Finding]:
    """Each with the settings that set it apart from those of the same words, and with none where there are none."""
    alike: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for each in findings:
        alike[each.kind, each.suite, each.what, each.where].append(each)
    found = []
    for each in findings:
        group = [set(other.settings.split()) for other in alike[each.kind, each.suite, each.what, each.where]]
        own = [word for word in each.settings.split() if not all(word in other for other in group)]
        found.append(replace(each, settings=" ".join(own[:MOST_SETTINGS])))
    return found
