"""A model of published speeds: what a card, a recipe and a source contribute, and how sure that is.

The logarithm of a speed is the recipe's level, plus a slope times that of the card's memory bandwidth, plus random
effects, each with a spread of its own, plus a spread of the source (a linear mixed model, solved as a Gaussian
process). benchmarks/cards_model.py fits the spreads and measures the prediction errors.
"""

import math
import tomllib
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gpubench.studies.cards.boards import architecture, boards
from gpubench.studies.cards.figures import Cell, published

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NORMAL_90 = 1.645
"""Standard deviations to either side that hold 90% of a normal distribution."""
RECIPE_SPREAD = 3.0
"""Of the level of a recipe: so wide that nothing but its own figures says it."""
BANDWIDTH_SPREAD = 1.0
"""Of the slope: nothing is known of it but that speed and bandwidth are near proportional."""
FAMILIES = ("convolution", "matmul")


def _size(card: str) -> float:
    """Logarithm of its bandwidth in TB/s, which is near 0 for the cards in between."""
    return math.log(boards()[card].gb_per_second / 1000)


EFFECTS: dict[str, Callable[[Cell], Hashable]] = {
    "card": lambda cell: cell.card,
    "card_class": lambda cell: (cell.card, cell.kind),
    "card_family": lambda cell: (cell.card, cell.family),
    "card_source": lambda cell: (cell.card, cell.source),
    "card_source_class": lambda cell: (cell.card, cell.source, cell.kind),
    "card_workload": lambda cell: (cell.card, cell.source, cell.workload),
    "architecture_class": lambda cell: (architecture(cell.card), cell.kind),
    "architecture_family": lambda cell: (architecture(cell.card), cell.kind, cell.family),
    "architecture_recipe": lambda cell: (architecture(cell.card), cell.recipe),
    "software": lambda cell: (cell.recipe, cell.software),
}
"""By the name of their spread: cells for which it returns the same share the effect."""
OF_A_CARD = frozenset({"card", "card_class", "card_family", "architecture_class", "architecture_family"})
"""Effects that are the card's own; the others are of who measured it, and on what."""


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of the logarithm of a speed."""

    effects: Mapping[str, float]
    """By the names of EFFECTS."""
    sources: Mapping[str, float]
    """What a figure of a source differs by where nothing else explains it."""
    usual_source: float
    """For a source that is not listed."""
    widening: float = 1.0
    """By what intervals are multiplied, so that nine of ten figures that were not seen lie in theirs."""

    def of_source(self, source: str) -> float:
        """The spread of a source's own figures."""
        return self.sources.get(source, self.usual_source)


@cache
def fitted_spreads() -> Spreads:
    """Those of spreads.toml, which benchmarks/cards_model.py writes."""
    table = _spreads()
    return Spreads(table["effects"], table["sources"], table["usual_source"], table["widening"])


@cache
def checked() -> dict[str, float]:
    """Return the prediction errors that cross-validation found, as spreads.toml has them: 0.07 is 7%."""
    return dict(_spreads()["cross_validated"])


@cache
def _spreads() -> dict[str, Any]:
    return tomllib.loads((files("gpubench.studies.cards") / "spreads.toml").read_text(encoding="utf-8"))


def shared(keys: Sequence[Hashable], others: Sequence[Hashable] | None = None) -> "Floats":
    """1 where two of the keys, or one of them and one of the others, are the same, else 0."""
    import numpy as np

    others = keys if others is None else others
    numbers = {key: at for at, key in enumerate(dict.fromkeys([*keys, *others]))}
    rows, columns = (np.array([numbers[key] for key in own]) for own in (keys, others))
    same: Floats = (rows[:, None] == columns[None, :]).astype(float)
    return same


def covariance(cells: Sequence[Cell], spreads: Spreads) -> "Floats":
    """Of the logarithms of the cells' speeds."""
    import numpy as np

    matrix = fixed_part(cells)
    for name, key in EFFECTS.items():
        matrix += spreads.effects[name] ** 2 * shared([key(cell) for cell in cells])
    matrix[np.diag_indices(len(cells))] += [spreads.of_source(cell.source) ** 2 for cell in cells]
    return matrix


def fixed_part(cells: Sequence[Cell]) -> "Floats":
    """What recipes and bandwidth contribute to the covariance, which no spread changes."""
    import numpy as np

    sizes = np.array([_size(cell.card) for cell in cells])
    matrix: Floats = RECIPE_SPREAD**2 * shared([cell.recipe for cell in cells])
    matrix += BANDWIDTH_SPREAD**2 * np.outer(sizes, sizes)
    return matrix


def centred(cells: Sequence[Cell]) -> "Floats":
    """Logarithms of speeds less the mean of their recipe, so that no unit matters."""
    import numpy as np

    members: dict[Hashable, list[int]] = defaultdict(list)
    for at, cell in enumerate(cells):
        members[cell.recipe].append(at)
    values = np.array([cell.log_speed for cell in cells])
    for own in members.values():
        values[own] -= values[own].mean()
    return values


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one card is as another, with the ends of the 90% interval."""

    value: float
    low: float
    high: float

    @property
    def told_apart(self) -> bool:
        """Whether the interval leaves out 1."""
        return not self.low <= 1 <= self.high


def ratio_of(mean: float, deviation: float) -> Ratio:
    """From a difference of logarithms and its standard deviation."""
    reach = NORMAL_90 * deviation
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def over(means: "Floats", spread: "Floats", one: int, other: int, own: float = 0.0) -> Ratio:
    """Of two of the speeds that `Model.speeds` returned, by their places; `own`: a variance to be added."""
    variance = float(spread[one, one] + spread[other, other] - 2 * spread[one, other]) + own
    return ratio_of(float(means[one] - means[other]), math.sqrt(max(variance, 0.0)))


class Model:
    """The cells' covariance solved once; every question after that is a product."""

    def __init__(self, cells: Sequence[Cell], spreads: Spreads) -> None:
        import numpy as np

        self.cells = tuple(cells)
        self.spreads = spreads
        self._precision = np.linalg.inv(covariance(self.cells, spreads))
        self._weights = self._precision @ centred(self.cells)
        self._known = frozenset((cell.card, cell.kind, cell.family) for cell in self.cells)

    def missing(self, card: str, kind: str, families: Sequence[str] = FAMILIES) -> list[str]:
        """Those of the families of which nobody published a figure of the card in the class."""
        return [family for family in families if (card, kind, family) not in self._known]

    def knows(self, card: str, kind: str, families: Sequence[str] = FAMILIES) -> bool:
        """Whether there is a figure of the card in the class, of any of the families."""
        return len(self.missing(card, kind, families)) < len(families)

    def speeds(self, cards: Sequence[str], kind: str, families: Sequence[str] = FAMILIES) -> "tuple[Floats, Floats]":
        """Logarithms of the cards' typical speeds in a class, and their covariance; only differences mean something.

        Typical is a new source's workload, of any of the families alike.
        """
        import numpy as np

        probes = [_probe(card, kind, family) for card in cards for family in families]
        shape = (len(cards), len(families))
        sizes = np.array([_size(card) for card in cards])
        between = BANDWIDTH_SPREAD**2 * np.outer(sizes, sizes)
        to_cells = BANDWIDTH_SPREAD**2 * np.outer(sizes, [_size(cell.card) for cell in self.cells])
        for name in sorted(OF_A_CARD):
            key, variance = EFFECTS[name], self.spreads.effects[name] ** 2
            keys = [key(probe) for probe in probes]
            mean = variance / len(families)
            to_cells += mean * shared(keys, [key(cell) for cell in self.cells]).reshape(*shape, -1).sum(axis=1)
            between += mean / len(families) * shared(keys).reshape(*shape, *shape).sum(axis=(1, 3))
        spread = between - to_cells @ self._precision @ to_cells.T
        return to_cells @ self._weights, self.spreads.widening**2 * spread

    def ratio(self, card: str, other: str, kind: str, families: Sequence[str] = FAMILIES) -> Ratio:
        """How many times as fast the card typically is as the other."""
        means, spread = self.speeds([card, other], kind, families)
        return over(means, spread, 0, 1)

    def one_workload(self, card: str, other: str, kind: str, families: Sequence[str] = FAMILIES) -> Ratio:
        """The same on one workload that somebody else measures: that differs from the typical one."""
        means, spread = self.speeds([card, other], kind, families)
        own = self.elsewhere(architecture(card) == architecture(other))
        return over(means, spread, 0, 1, own)

    def elsewhere(self, alike: bool) -> float:
        """The variance of a log ratio of two cards on one workload of one new source, beside that of the typical one.

        `alike`: they share their architecture.
        """
        effects = self.spreads.effects
        names = ["card_source", "card_source_class", "card_workload", *([] if alike else ["architecture_recipe"])]
        own = sum(effects[name] ** 2 for name in names) + self.spreads.usual_source**2
        return 2 * self.spreads.widening**2 * own


def _probe(card: str, kind: str, family: str) -> Cell:
    """A workload of a source that nobody knows yet."""
    return Cell(card, "", kind, "", "", "", family, ())


@cache
def fitted_model() -> Model:
    """Of all published figures that are used."""
    return Model(published().cells, fitted_spreads())
