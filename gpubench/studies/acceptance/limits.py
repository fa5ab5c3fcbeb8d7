"""How slow a card may be before its kind can no longer explain it. Floats in, floats out: knows no rows or units.

The limit is a prediction limit for one more host (Hahn and Meeker 1991, chapter 4), of logarithms of figures, at the
level that all checks of a card share by Bonferroni. The spread is robust, since reference hosts may be slow themselves:
a low quantile of the distances between them. Few hosts say little of how much their kind scatters. Where they seem to
scatter little, their spread is moderated by one that is known from elsewhere (Smyth 2004). Where they scatter more than
that, the known one is of another kind and counts for nothing: not as a spread, and not as degrees of freedom.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from gpubench.analysis.stats import BETWEEN_SPECIMENS_SD

FALSE_ALARMS = 0.01
"""Of good cards, about the share that is called slow, by all checks of a card together."""
SLOW = 0.10
"""What must be found: a card that is so much slower."""
FOUND = 0.90
"""In so many cases of such a card, or nothing is said."""
LEAST = 0.05
"""A card that is less slow is never returned: published hosts of one kind differ by up to 4% for no fault of theirs."""
KNOWN_WORTH = 4.0
"""The spread that is known from elsewhere (BETWEEN_SPECIMENS_SD) counts as much as so many degrees of freedom."""
LEAST_HOSTS = 6
"""With fewer nothing is said. Five call up to 3% of good cards slow, where hosts scatter by 4% or more."""
SMALL = {2: 0.399, 3: 0.994, 4: 0.512, 5: 0.844, 6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}
"""What `robust_spread` of so few normal values is multiplied by (Croux and Rousseeuw 1992)."""
OF_NORMAL = 2.2219
"""A normal standard deviation over a quarter quantile of all distances (Rousseeuw and Croux 1993)."""
EFFICIENCY = 0.4
"""Of that spread: so much of the degrees of freedom are left with 5 values (by simulation; 0.6 with 8 to 20)."""
MEDIAN_VARIANCE = math.pi / 2
"""Of a median, over that of a mean."""


@dataclass(frozen=True)
class Limit:
    """What one figure of a new card is held against."""

    typical: float
    """The median of the reference hosts."""
    spread: float
    """The standard deviation of one host's logarithm."""
    least: float
    """Below it no more than FALSE_ALARMS / checks of good cards lie."""
    found: float
    """The share of cards that are SLOW by this figure that lie below it."""


def found_by(limits: Sequence[Limit]) -> float:
    """The share of cards SLOW by all of these figures that are found, at least: by the figure that finds most.

    More is not known, since figures of one card may go together.
    """
    return max((limit.found for limit in limits), default=0.0)


def limit_of(references: Sequence[float], checks: int) -> Limit:
    """The limit by the figures of one host or more, above 0 and more is better, of a card that has so many checks."""
    from scipy.special import stdtr, stdtrit

    logs = [math.log(value) for value in references]
    many, middle = len(logs), median(logs)
    own = robust_spread(logs)
    freedom = EFFICIENCY * (many - 1)
    moderated = math.sqrt((KNOWN_WORTH * BETWEEN_SPECIMENS_SD**2 + freedom * own**2) / (KNOWN_WORTH + freedom))
    spread, freedom = (moderated, freedom + KNOWN_WORTH) if own <= moderated else (own, freedom)
    # Of one or two values the median is the mean.
    of_median = (MEDIAN_VARIANCE if many > 2 else 1.0) / many
    deviation = spread * math.sqrt(1 + of_median)
    reach = max(-math.log1p(-LEAST), -deviation * float(stdtrit(freedom, FALSE_ALARMS / checks)))
    found = float(stdtr(freedom, (-math.log1p(-SLOW) - reach) / deviation))
    return Limit(math.exp(middle), spread, math.exp(middle - reach), found)


def robust_spread(values: Sequence[float]) -> float:
    """The standard deviation by the distances of all pairs (Qn), which half of the values cannot spoil."""
    many = len(values)
    if many < 2:
        return 0.0
    half = many // 2 + 1
    distances = sorted(abs(one - other) for one, other in combinations(values, 2))
    small = SMALL.get(many, many / (many + (1.4 if many % 2 else 3.8)))
    return OF_NORMAL * small * distances[half * (half - 1) // 2 - 1]
