"""Geometric means of ratios over the cases that all compared sides have."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpubench.analysis import stats
from gpubench.analysis.cells import Cell
from gpubench.analysis.matching import axis_value, bucket_of
from gpubench.analysis.verdicts import Comparison


@dataclass(frozen=True)
class Mean:
    """Geometric mean of a subject's ratios over the cases that both sides have."""

    axis: str
    subject_name: str
    other_name: str
    precision: str
    batch_policy: str
    value: float | None
    """None under half of the cases."""
    common: int
    all_cases: int
    interval: tuple[float, float] | None = None
    """95%; None where a ratio has none."""

    @property
    def inverse(self) -> "Mean":
        """The baseline over the subject."""
        interval = (1 / self.interval[1], 1 / self.interval[0]) if self.interval else None
        return replace(self, value=1 / self.value if self.value else None, interval=interval)


def means_of(comparisons: Sequence[Comparison], cells: Sequence[Cell]) -> list[Mean]:
    """One per card, precision and batch policy against the baseline, over the cases that every compared card has.

    A card that is slower in fp32 and faster in fp16 would look like its equal in a mean over both.
    """
    cards = [c for c in comparisons if c.axis == "card"]
    kinds = dict.fromkeys(map(_kind, (c.subject for c in cards)))
    return [
        mean
        for kind in kinds
        for mean in _means([c for c in cards if _kind(c.subject) == kind], [c for c in cells if _kind(c) == kind])
    ]


def _kind(cell: Cell) -> tuple[str, str]:
    return str(cell.precision), str(cell.batch_policy)


def _means(cards: Sequence[Comparison], cells: Sequence[Cell]) -> list[Mean]:
    """Of comparisons of cards in one precision."""
    sides = {c.other_name for c in cards} | {c.subject_name for c in cards}
    cases = {bucket_of(cell, "card") for cell in cells if axis_value(cell, "card") in sides}
    if len(cases) < 2:
        return []
    ratios: dict[tuple[str, str], dict[tuple[str, ...], stats.Ratio]] = defaultdict(dict)
    for c in cards:
        ratios[c.subject_name, c.other_name][bucket_of(c.subject, "card")] = c.ratio
    kind = _kind(cards[0].subject)
    common = set.intersection(*map(set, ratios.values()))
    means = []
    for (subject, other), by_case in ratios.items():
        used = [by_case[case] for case in common] if len(common) * 2 >= len(cases) else []
        value = stats.geometric_mean([r.value for r in used]) if used else None
        means.append(Mean("card", subject, other, *kind, value, len(common), len(cases), interval_of(used)))
    return means


def interval_of(ratios: Sequence[stats.Ratio]) -> tuple[float, float] | None:
    """Of the geometric mean, from the ratios' own intervals.

    Cases of one session err independently, so half widths add as squares. Two specimens may differ in all cases
    alike, so there they add as they are.
    """
    ends = [(r.value, r.low, r.high) for r in ratios if r.low is not None and r.high is not None]
    if not ends or len(ends) < len(ratios):
        return None
    down = [math.log(value / low) for value, low, _ in ends if low]
    up = [math.log(high / value) for value, _, high in ends if high]
    add = sum if any(r.specimens for r in ratios) else lambda halves: math.hypot(*halves)
    value = stats.geometric_mean([r.value for r in ratios])
    return value * math.exp(-add(down) / len(ends)), value * math.exp(add(up) / len(ends))
