"""The confidence interval of a median over trials, and a test for drift. `--until`, tables and charts use them."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

CONFIDENCE = 0.95
OPTIONAL_STOPPING = 1.5
"""Divisor of the error rate if rounds were added until the intervals were narrow.

Such a run stops more often at samples that scatter less than the population (Chow and Robbins 1965; for rank tests
Geertsema 1970). In simulation the error rate grows by up to a third (benchmarks/simulation.py, "until").
"""


def confidence(until: bool) -> float:
    """Return the nominal level that gives 95% coverage: higher if the number of rounds depended on the results."""
    return 1 - (1 - CONFIDENCE) / (OPTIONAL_STOPPING if until else 1)


def drifts(values: Sequence[float]) -> bool:
    """Return whether successive values are more alike than chance allows, at the 5% level.

    Such values are not independent, so their number overstates the evidence. The test is the rank version of von
    Neumann's ratio (Bartels 1982): squared differences of successive ranks over squared distances of ranks from their
    mean. The ratio is taken as normally distributed.
    """
    n = len(values)
    if n < 6:  # too few to detect a drift
        return False
    ordered = sorted(values)
    ranks = [bisect_left(ordered, value) + bisect_right(ordered, value) for value in values]  # 2 x mean rank - 1
    spread = sum((rank - n) ** 2 for rank in ranks)
    steps = sum((after - before) ** 2 for before, after in pairwise(ranks))
    sd = math.sqrt(20 / (5 * n + 7))
    return spread > 0 and (steps / spread - 2) / sd < NormalDist().inv_cdf(0.05)


def median_interval(values: Sequence[float], until: bool = False) -> tuple[float, float] | None:
    """Return the order-statistic interval of the median with at least 95% coverage, or None under 6 values.

    It assumes no distribution: its ends are two of the values, chosen by binomial chances (as in benchstat).
    """
    n = len(values)
    ordered = sorted(values)
    ways, below, rank = 1, 0, 0  # ways: the binomial coefficient of n over k
    for k in range(n // 2):
        below += ways
        if below / 2**n > (1 - confidence(until)) / 2:
            break
        ways, rank = ways * (n - k) // (k + 1), k + 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else None
