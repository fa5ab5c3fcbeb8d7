"""Which values a sweep tries, for how long, and which of them go on. Trains nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpubench.errors import UserError

KEPT = 3
"""Of so many values one goes on, and trains so many times as long (Jamieson and Talwalkar 2016, arXiv 1502.07943)."""
STEP = 2
"""About the factor between two values that are tried first."""


@dataclass(frozen=True)
class Search:
    """The values of a parameter that are searched, evenly on a scale of logarithms."""

    name: str
    low: float
    high: float

    def coarse(self) -> list[float]:
        """From `low` to `high` by factors of two, or as near to two as fits: three values at least."""
        steps = max(2, round(math.log(self.high / self.low, STEP)))
        return [shortened(self.low * (self.high / self.low) ** (n / steps)) for n in range(steps + 1)]

    def finer(self, best: float) -> list[float]:
        """Halfway between the best of the coarse values and each of its neighbours."""
        values = self.coarse()
        at = values.index(best)
        return [
            shortened(math.sqrt(best * other)) for other in [*values[max(0, at - 1) : at], *values[at + 1 : at + 2]]
        ]


def shortened(value: float) -> float:
    """The value to three digits: the sweep is not finer."""
    return float(f"{value:.3g}")


def parse_search(text: str) -> Search:
    """The search of `lr=0.1:3.2:log`; raises UserError."""
    name, _, values = text.partition("=")
    low, _, rest = values.partition(":")
    high, _, scale = rest.partition(":")
    try:
        found = Search(name.strip(), float(low), float(high))
    except ValueError:
        found = Search("", 0, 0)
    if not found.name or scale != "log" or not 0 < found.low < found.high < math.inf:
        raise UserError(f"--sweep {text}: write it as lr=0.1:3.2:log, two numbers above 0 and the smaller one first")
    return found


def rungs(epochs: int) -> list[int]:
    """Epochs of a try on each rung: a ninth of the whole run, a third, and all of it, but one epoch at least."""
    return sorted({max(1, epochs // KEPT**2), max(1, epochs // KEPT), epochs})


def kept(ranking: Sequence[float]) -> list[float]:
    """The best third of values that are ranked, and one where there is any."""
    return list(ranking[: max(1, len(ranking) // KEPT)])
