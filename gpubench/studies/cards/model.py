"""A statistical model of published speeds, which predicts the speed ratio of two cards with an interval.

The logarithm of a speed is the sum of: a level of the recipe, a slope times the logarithm of the card's memory
bandwidth, random effects (EFFECTS), and noise of the source. It is a linear mixed model, solved as a Gaussian process.
benchmarks/cards_model.py fits the spreads and measures the prediction errors.
"""

import math
import tomllib
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gpubench.studies.cards.figures import FigureGroup, architecture, data_sheets, published
from gpubench.studies.section import Estimate
from gpubench.studies.words import gain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NORMAL_90 = 1.645
"""Half-width of the 90% interval of a normal distribution, in standard deviations."""
RECIPE_SPREAD = 3.0
"""Standard deviation of the level of a recipe: so wide that only its figures determine it."""
BANDWIDTH_SPREAD = 1.0
"""Standard deviation of the slope: wide, because speed is only roughly proportional to bandwidth."""
FAMILIES = ("convolution", "matmul")


def _size(card: str) -> float:
    """Return the logarithm of the memory bandwidth in TB/s."""
    return math.log(data_sheets()[card].gb_per_second / 1000)


EFFECTS: dict[str, Callable[[FigureGroup], Hashable]] = {
    "card": lambda group: group.card,
    "card_class": lambda group: (group.card, group.kind),
    "card_family": lambda group: (group.card, group.family),
    "card_source": lambda group: (group.card, group.source),
    "card_source_class": lambda group: (group.card, group.source, group.kind),
    "card_workload": lambda group: (group.card, group.source, group.workload),
    "architecture_class": lambda group: (architecture(group.card), group.kind),
    "architecture_family": lambda group: (architecture(group.card), group.kind, group.family),
    "architecture_recipe": lambda group: (architecture(group.card), group.recipe),
    "software": lambda group: (group.recipe, group.software),
}
"""Random effects by name: groups with the same key share the effect."""
CARD_EFFECTS = frozenset({"card", "card_class", "card_family", "architecture_class", "architecture_family"})
"""Effects of the card. The others are effects of the source and the workload."""


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of the logarithm of a speed."""

    effects: Mapping[str, float]
    """By name of the effect."""
    sources: Mapping[str, float]
    """Residual standard deviation by source."""
    usual_source: float
    """The value for other sources."""
    widening: float = 1.0
    """Factor on the intervals, so that they contain 90% of left-out figures."""

    def of_source(self, source: str) -> float:
        """Return the residual standard deviation of a source."""
        return self.sources.get(source, self.usual_source)


@cache
def fitted_spreads() -> Spreads:
    """Return the spreads of spreads.toml, which benchmarks/cards_model.py writes."""
    table = _spreads()
    return Spreads(table["effects"], table["sources"], table["usual_source"], table["widening"])


@cache
def prediction_errors() -> dict[str, float]:
    """Return the cross-validated prediction errors of spreads.toml; 0.07 is 7%."""
    return dict(_spreads()["cross_validated"])


@cache
def _spreads() -> dict[str, Any]:
    return tomllib.loads((files("gpubench.studies.cards") / "spreads.toml").read_text(encoding="utf-8"))


def shared(keys: Sequence[Hashable], others: Sequence[Hashable] | None = None) -> "Floats":
    """Return a matrix with 1 where a key equals one of `others` (default: of `keys`), else 0."""
    import numpy as np

    others = keys if others is None else others
    numbers = {key: at for at, key in enumerate(dict.fromkeys([*keys, *others]))}
    rows, columns = (np.array([numbers[key] for key in side]) for side in (keys, others))
    same: Floats = (rows[:, None] == columns[None, :]).astype(float)
    return same


def covariance(groups: Sequence[FigureGroup], spreads: Spreads) -> "Floats":
    """Return the covariance matrix of the groups' log speeds."""
    import numpy as np

    matrix = fixed_part(groups)
    for name, key in EFFECTS.items():
        matrix += spreads.effects[name] ** 2 * shared([key(group) for group in groups])
    matrix[np.diag_indices(len(groups))] += [spreads.of_source(group.source) ** 2 for group in groups]
    return matrix


def fixed_part(groups: Sequence[FigureGroup]) -> "Floats":
    """Return the part of the covariance that comes from recipes and bandwidth; the spreads do not change it."""
    import numpy as np

    sizes = np.array([_size(group.card) for group in groups])
    matrix: Floats = RECIPE_SPREAD**2 * shared([group.recipe for group in groups])
    matrix += BANDWIDTH_SPREAD**2 * np.outer(sizes, sizes)
    return matrix


def centred(groups: Sequence[FigureGroup]) -> "Floats":
    """Return the log speeds minus the mean of their recipe, so that units do not matter."""
    import numpy as np

    members: dict[Hashable, list[int]] = defaultdict(list)
    for at, group in enumerate(groups):
        members[group.recipe].append(at)
    values = np.array([group.log_speed for group in groups])
    for indices in members.values():
        values[indices] -= values[indices].mean()
    return values


@dataclass(frozen=True)
class SpeedRatio(Estimate):
    """How many times as fast one card is as another, with a 90% interval."""

    value: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        """Return whether the interval excludes 1."""
        return not self.low <= 1 <= self.high

    @property
    def interval_text(self) -> str:
        """Return `90%: 1.36 to 1.85`."""
        return f"90%: {gain(self.low)} to {gain(self.high)}"

    def scaled(self, factor: float) -> "SpeedRatio":
        """Return the ratio and its interval times a factor."""
        return SpeedRatio(self.value * factor, self.low * factor, self.high * factor)


def ratio_of(mean: float, deviation: float) -> SpeedRatio:
    """Return the ratio for a difference of log speeds and its standard deviation."""
    reach = NORMAL_90 * deviation
    return SpeedRatio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def ratio_between(means: "Floats", spread: "Floats", one: int, other: int, variance: float = 0.0) -> SpeedRatio:
    """Return the ratio of two cards, by their indices in what `Model.speeds` returned; `variance` is added."""
    variance += float(spread[one, one] + spread[other, other] - 2 * spread[one, other])
    return ratio_of(float(means[one] - means[other]), math.sqrt(max(variance, 0.0)))


class Model:
    """Predicts speed ratios from groups of figures. Inverts the covariance matrix once."""

    def __init__(self, groups: Sequence[FigureGroup], spreads: Spreads) -> None:
        import numpy as np

        self.groups = tuple(groups)
        self.spreads = spreads
        self._precision = np.linalg.inv(covariance(self.groups, spreads))
        self._weights = self._precision @ centred(self.groups)
        self._measured = frozenset((group.card, group.kind, group.family) for group in self.groups)

    def missing(self, card: str, kind: str, families: Sequence[str] = FAMILIES) -> list[str]:
        """Return the families in which the card has no figure of the class."""
        return [family for family in families if (card, kind, family) not in self._measured]

    def has_figures(self, card: str, kind: str, families: Sequence[str] = FAMILIES) -> bool:
        """Return whether the card has a figure of the class, in any of the families."""
        return len(self.missing(card, kind, families)) < len(families)

    def speeds(self, cards: Sequence[str], kind: str, families: Sequence[str] = FAMILIES) -> "tuple[Floats, Floats]":
        """Return the cards' mean log speeds over the families, and their covariance; only differences matter."""
        import numpy as np

        probes = [_probe(card, kind, family) for card in cards for family in families]
        shape = (len(cards), len(families))
        sizes = np.array([_size(card) for card in cards])
        between = BANDWIDTH_SPREAD**2 * np.outer(sizes, sizes)
        to_groups = BANDWIDTH_SPREAD**2 * np.outer(sizes, [_size(group.card) for group in self.groups])
        for name in sorted(CARD_EFFECTS):
            key, variance = EFFECTS[name], self.spreads.effects[name] ** 2
            keys = [key(probe) for probe in probes]
            mean = variance / len(families)
            to_groups += mean * shared(keys, [key(group) for group in self.groups]).reshape(*shape, -1).sum(axis=1)
            between += mean / len(families) * shared(keys).reshape(*shape, *shape).sum(axis=(1, 3))
        spread = between - to_groups @ self._precision @ to_groups.T
        return to_groups @ self._weights, self.spreads.widening**2 * spread

    def ratio(self, card: str, other: str, kind: str, families: Sequence[str] = FAMILIES) -> SpeedRatio:
        """Return the typical speed of the card over the other."""
        means, spread = self.speeds([card, other], kind, families)
        return ratio_between(means, spread, 0, 1)

    def one_workload(self, card: str, other: str, kind: str, families: Sequence[str] = FAMILIES) -> SpeedRatio:
        """Return the ratio on one new workload; its interval is wider than that of the typical ratio."""
        means, spread = self.speeds([card, other], kind, families)
        variance = self.workload_variance(architecture(card) == architecture(other))
        return ratio_between(means, spread, 0, 1, variance)

    def workload_variance(self, same_architecture: bool) -> float:
        """Return the variance that one workload of a new source adds to the log ratio of two cards."""
        effects = self.spreads.effects
        names = ["card_source", "card_source_class", "card_workload"]
        names += [] if same_architecture else ["architecture_recipe"]
        variance = sum(effects[name] ** 2 for name in names) + self.spreads.usual_source**2
        return 2 * self.spreads.widening**2 * variance


def _probe(card: str, kind: str, family: str) -> FigureGroup:
    """Return an empty group: a workload of a new source."""
    return FigureGroup(card, "", kind, "", "", "", family, ())


@cache
def fitted_model() -> Model:
    """Return the model of all used figures."""
    return Model(published().groups, fitted_spreads())
