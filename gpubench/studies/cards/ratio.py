"""The speed ratio of two cards, from published figures and data sheets, with the interval of 90% of workloads.

Each source that measured both cards gives one ratio: the geometric mean over its workloads and software. The data
sheets give one more, from peak TFLOP/s and memory bandwidth. The estimate is the geometric mean of all of them.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gpubench.studies.cards.figures import CLASSES, FigureGroup, data_sheets
from gpubench.studies.section import Estimate

TFLOPS_EXPONENT, BANDWIDTH_EXPONENT = 0.4, 0.5
"""Exponents of peak TFLOP/s and of memory bandwidth in the speed of a card: without bias in the published figures.

Their square roots make fast cards 8% too fast.
"""
WORKLOADS_90, WORKLOADS_50 = 0.41, 0.11
"""Half-widths, in logarithms, of the intervals that contain 90% and half of the workloads, of cards that are equally
fast. Intervals of cards with a log ratio r are 1 + |r| times as wide.

benchmarks/cards_model.py found both: it leaves out each source and predicts its ratios from the others.
"""


@dataclass(frozen=True)
class SpeedRatio(Estimate):
    """How many times as fast one card is as another, with the interval of 90% of workloads."""

    value: float
    low: float
    high: float
    sources: int = 0
    """Number of sources that measured both cards; 0: from data sheets alone."""

    @property
    def interval_text(self) -> str:
        """Return `90% of workloads: 1.36 to 1.85`."""
        from gpubench.studies.words import gain  # it imports pandas, which takes long

        return f"90% of workloads: {gain(self.low)} to {gain(self.high)}"

    def scaled(self, factor: float) -> "SpeedRatio":
        """Return the ratio and its interval times a factor."""
        return SpeedRatio(self.value * factor, self.low * factor, self.high * factor, self.sources)


@dataclass(frozen=True)
class Pair:
    """The figures of two cards with one recipe, from one source."""

    one: FigureGroup
    other: FigureGroup

    @property
    def ratio(self) -> float:
        """Return the speed of the first card over the second."""
        return self.one.speed / self.other.speed


def pairs_of(groups: Sequence[FigureGroup], card: str, other: str) -> list[Pair]:
    """Return the pairs of all sources that measured both cards."""
    by_recipe: dict[tuple[str, ...], list[FigureGroup]] = defaultdict(list)
    for group in groups:
        if group.card == other:
            by_recipe[group.recipe].append(group)
    return [Pair(one, two) for one in groups if one.card == card for two in by_recipe[one.recipe]]


def listed_ratio(card: str, other: str, kind: str) -> float:
    """Return the speed of a card over another by their data sheets."""
    one, two = data_sheets()[card], data_sheets()[other]
    tflops, bandwidth = one.tflops[kind] / two.tflops[kind], one.gb_per_second / two.gb_per_second
    return float(tflops**TFLOPS_EXPONENT * bandwidth**BANDWIDTH_EXPONENT)


def ratio_of(groups: Sequence[FigureGroup], card: str, other: str, kind: str) -> SpeedRatio:
    """Return the speed of a card over another in a class of precisions, by these figures and the data sheets."""
    if card == other:
        return SpeedRatio(1.0, 1.0, 1.0)
    by_source: dict[str, list[float]] = defaultdict(list)
    for pair in pairs_of(groups, card, other):
        if pair.one.kind == kind:
            by_source[pair.one.source].append(math.log(pair.ratio))
    logs = [*map(statistics.fmean, by_source.values()), math.log(listed_ratio(card, other, kind))]
    log = statistics.fmean(logs)
    return SpeedRatio(math.exp(log), *around(log, WORKLOADS_90), len(by_source))


def around(log: float, width: float) -> tuple[float, float]:
    """Return the ends of an interval around a ratio with this logarithm; `width` is that of equally fast cards."""
    reach = width * (1 + abs(log))
    return math.exp(log - reach), math.exp(log + reach)


def measured_cards(groups: Sequence[FigureGroup]) -> dict[str, set[str]]:
    """Return the cards that have a figure, by class of precisions."""
    return {kind: {group.card for group in groups if group.kind == kind} for kind in CLASSES}
