"""Estimates the speed ratio of two cards from published figures and data sheets, with the interval of 90% of workloads.

Each card has one speed, which fits all published figures and the data sheets best (`Speeds`): so the ratio
A / C is the product of A / B and B / C.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpubench.studies.cards.figures import FigureGroup, data_sheets, published
from gpubench.studies.section import Estimate

TFLOPS_EXPONENT, BANDWIDTH_EXPONENT = 0.4, 0.5
"""Exponents of peak TFLOP/s and of memory bandwidth in the speed of a card, fitted to the published figures.

With 0.5 for both, the estimated speed of fast cards would be 8% too high.
"""
SHEET_WEIGHT = 2.0
"""A card's data sheet weighs as much as this many sources. Values from 1 to 6 give about the same errors."""
ROUNDS = 30
"""Iterations of the fit; more iterations would not change a printed digit."""
WORKLOADS_90, WORKLOADS_50 = 0.425, 0.117
"""Half-widths, in logarithms, of the intervals that contain 90% and 50% of the workloads if two cards are equally fast.
If the logarithm of their ratio is r, the intervals are 1 + |r| times as wide.

benchmarks/cards_model.py computes both: it leaves out each source and predicts its ratios from the other sources.
"""


@dataclass(frozen=True)
class SpeedRatio(Estimate):
    """How many times as fast one card is as another, with the interval of 90% of workloads."""

    value: float
    low: float
    high: float
    sources: int = 0
    """Number of sources that measured both cards; 0: estimated from data sheets and comparisons with other cards."""

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


class Speeds:
    """The speeds of all cards in a class of precisions, by some published figures and the data sheets.

    Each card has one speed, so ratios of cards agree with each other. The model is log figure = level of the recipe +
    log speed of the card, fitted by alternating means. For each card, all figures of one source together have weight 1;
    the speed by its data sheet has SHEET_WEIGHT.
    """

    def __init__(self, groups: Sequence[FigureGroup], kind: str) -> None:
        self._cards: dict[tuple[str, ...], set[str]] = defaultdict(set)
        """The cards of each recipe."""
        self._listed = {card: listed_speed(card, kind) for card in data_sheets()}
        self._more: dict[str, float] = defaultdict(float)
        """Logarithm of a card's speed over its speed by the data sheet."""
        groups = [group for group in groups if group.kind == kind]
        self.cards = {group.card for group in groups}
        """The cards that have a published figure."""
        counts = Counter((group.source, group.card) for group in groups)
        figures = []
        for group in groups:
            self._cards[group.recipe].add(group.card)
            more = math.log(group.speed) - self._listed[group.card]
            figures.append((group.recipe, group.card, more, 1 / counts[group.source, group.card]))
        for _ in range(ROUNDS):
            levels = _means((recipe, more - self._more[card], weight) for recipe, card, more, weight in figures)
            cards = ((card, more - levels[recipe], weight) for recipe, card, more, weight in figures)
            self._more.update(_means(cards, SHEET_WEIGHT))

    def ratio(self, card: str, other: str) -> SpeedRatio:
        """Return the speed of a card over another."""
        if card == other:
            return SpeedRatio(1.0, 1.0, 1.0)
        log = self._listed[card] + self._more[card] - self._listed[other] - self._more[other]
        sources = {recipe[0] for recipe, cards in self._cards.items() if {card, other} <= cards}
        return SpeedRatio(math.exp(log), *around(log, WORKLOADS_90), len(sources))


def _means(values: Iterable[tuple[Hashable, float, float]], zero_weight: float = 0.0) -> dict[Any, float]:
    """Return by key the weighted mean of its values and of one more value, 0, that has `zero_weight`."""
    sums: dict[Hashable, float] = defaultdict(float)
    weights: dict[Hashable, float] = defaultdict(lambda: zero_weight)
    for key, value, weight in values:
        sums[key] += weight * value
        weights[key] += weight
    return {key: total / weights[key] for key, total in sums.items()}


@cache
def published_speeds(kind: str) -> Speeds:
    """Return the speeds of all cards in a class of precisions by all published figures."""
    return Speeds(published().groups, kind)


def listed_speed(card: str, kind: str) -> float:
    """Return the logarithm of the speed of a card by its data sheet."""
    sheet = data_sheets()[card]
    return TFLOPS_EXPONENT * math.log(sheet.tflops[kind]) + BANDWIDTH_EXPONENT * math.log(sheet.gb_per_second)


def around(log: float, width: float) -> tuple[float, float]:
    """Return the interval around a ratio with this logarithm; `width` is the half-width (log) for equal cards."""
    reach = width * (1 + abs(log))
    return math.exp(log - reach), math.exp(log + reach)
