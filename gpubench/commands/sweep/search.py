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

    def fine(self) -> list[float]:
        """From `low` to `high` by factors of the root of two, or as near to it as fits; five values at least."""
        steps = 2 * max(2, round(math.log(self.high / self.low, STEP)))
        return [shortened(self.low * (self.high / self.low) ** (n / steps)) for n in range(steps + 1)]

    def coarse(self) -> list[float]:
        """Every second of them, which are tried first."""
        return self.fine()[::2]

    def neighbours(self, value: float) -> list[float]:
        """The fine values beside one of them; the end of the range has one."""
        values = self.fine()
        at = values.index(value)
        return values[max(0, at - 1) : at] + values[at + 1 : at + 2]


def shortened(value: float) -> float:
    """The value to three digits: the sweep is not finer."""
    return float(f"{value:.3g}")


def parse_search(text: str) -> Search:
    """The search of `lr=0.1:3.2:log`; raises UserError."""
    wrong = UserError(f"--sweep {text}: write it as lr=0.1:3.2:log, two numbers above 0 and the smaller one first")
    name, _, values = text.partition("=")
    try:
        low, high, scale = values.split(":")
        found = Search(name.strip(), float(low), float(high))
    except ValueError:  # more or fewer parts, or what is no number
        raise wrong from None
    if not found.name or scale != "log" or not 0 < found.low < found.high < math.inf:
        raise wrong
    if len(set(found.fine())) < len(found.fine()):
        raise UserError(f"--sweep {text}: the range is too narrow to tell its values apart; widen it")
    return found


def rungs(epochs: int) -> list[int]:
    """Epochs of a try on each rung: a ninth of the whole run, a third, and all of it, but one epoch at least."""
    return sorted({max(1, epochs // KEPT**2), max(1, epochs // KEPT), epochs})


def kept(ranking: Sequence[float], tried: int) -> list[float]:
    """A third of the values that were tried, the best of those that are ranked; one where there is any."""
    return list(ranking[: max(1, tried // KEPT)])
