"""Geometric means of ratios over the cases that all compared sides have. `compare` and `studies.pairs` call it."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpubench.analysis import stats
from gpubench.analysis.groups import Group
from gpubench.analysis.matching import axis_value, bucket_of
from gpubench.analysis.verdicts import Comparison


@dataclass(frozen=True)
class Mean:
    """Geometric mean of a subject's ratios over the cases that both sides have."""

    subject_name: str
    other_name: str
    precision: str
    batch_policy: str
    value: float | None
    """None where fewer than half of the cases are common."""
    common: int
    all_cases: int
    interval: tuple[float, float] | None = None
    """95% interval; None where a ratio has none."""

    @property
    def inverse(self) -> "Mean":
        """The mean of the inverse ratios: baseline over subject."""
        interval = (1 / self.interval[1], 1 / self.interval[0]) if self.interval else None
        return replace(self, value=1 / self.value if self.value else None, interval=interval)


def means_of(comparisons: Sequence[Comparison], groups: Sequence[Group]) -> list[Mean]:
    """Return a mean per card, precision and batch policy, over the cases that all compared cards have.

    In one mean over all precisions, a card that is slower in fp32 and faster in fp16 would seem equal.
    """
    cards = [c for c in comparisons if c.axis == "card"]
    settings = dict.fromkeys(map(_setting, (c.subject for c in cards)))
    return [
        mean
        for setting in settings
        for mean in _means(
            [c for c in cards if _setting(c.subject) == setting], [c for c in groups if _setting(c) == setting]
        )
    ]


def _setting(group: Group) -> tuple[str, str]:
    return str(group.precision), str(group.batch_policy)


def _means(cards: Sequence[Comparison], groups: Sequence[Group]) -> list[Mean]:
    """Return the means of comparisons of cards that have one precision and batch policy."""
    sides = {c.other_name for c in cards} | {c.subject_name for c in cards}
    cases = {bucket_of(group, "card") for group in groups if axis_value(group, "card") in sides}
    if len(cases) < 2:
        return []
    ratios: dict[tuple[str, str], dict[tuple[str, ...], stats.Ratio]] = defaultdict(dict)
    for c in cards:
        ratios[c.subject_name, c.other_name][bucket_of(c.subject, "card")] = c.ratio
    setting = _setting(cards[0].subject)
    common = set.intersection(*map(set, ratios.values()))
    means = []
    for (subject, other), by_case in ratios.items():
        used = [by_case[case] for case in common] if len(common) * 2 >= len(cases) else []
        value = stats.geometric_mean([r.value for r in used]) if used else None
        means.append(Mean(subject, other, *setting, value, len(common), len(cases), interval_of(used)))
    return means


def interval_of(ratios: Sequence[stats.Ratio]) -> tuple[float, float] | None:
    """Return the 95% interval of the geometric mean of ratios, or None where a ratio has none.

    Cases of one session have independent errors, so the squares of half widths are added. Two specimens may differ
    by the same factor in all cases, so there the half widths are added.
    """
    ends = [(r.value, r.low, r.high) for r in ratios if r.low is not None and r.high is not None]
    if not ends or len(ends) < len(ratios):
        return None
    down = [math.log(value / low) for value, low, _ in ends if low]
    up = [math.log(high / value) for value, _, high in ends if high]
    add = sum if any(r.specimens for r in ratios) else lambda halves: math.hypot(*halves)
    value = stats.geometric_mean([r.value for r in ratios])
    return value * math.exp(-add(down) / len(ends)), value * math.exp(add(up) / len(ends))
