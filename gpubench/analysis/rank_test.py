"""The Mann-Whitney test and the interval from it, on floats. `stats` calls it."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist

import numpy as np

EXACT_UP_TO = 2500
"""If the product of both sides' numbers of trials is larger, the normal approximation of U's distribution is used."""


def log_differences(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Return log x - log y of all pairs, sorted: the input of the test and its interval."""
    log_a, log_b = [math.log(x) for x in a], [math.log(y) for y in b]
    return sorted(x - y for x in log_a for y in log_b)


def p_value(a: Sequence[float], b: Sequence[float], differences: Sequence[float]) -> float:
    """Return the two-sided p value that both samples have one distribution (Mann and Whitney 1947).

    Exact where the product of the sizes is at most EXACT_UP_TO; with ties, over all ways to split these values.
    """
    n, m = len(a), len(b)
    if n * m > EXACT_UP_TO:
        from scipy.stats import mannwhitneyu

        return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)
    if len({*a, *b}) < n + m:
        return _p_with_ties(a, b)
    # The interval needs the same counts. To import scipy.stats for this number would take a second.
    u = bisect_left(differences, 0.0)
    return min(1.0, 2 * sum(_orders(n, m)[: min(u, n * m - u) + 1]) / math.comb(n + m, n))


def _p_with_ties(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the p value from the rank sums of all choices of len(a) values. Tied values have their mean rank."""
    values = np.array([*a, *b])
    # Twice the mean rank is a whole number.
    doubled = [int((values < value).sum() + (values <= value).sum()) + 1 for value in values]
    n, total = len(a), sum(doubled)
    ways = np.zeros((n + 1, total + 1))
    ways[0, 0] = 1
    for rank in doubled:
        ways[1:, rank:] += ways[:-1, : total + 1 - rank].copy()
    below = np.cumsum(ways[n])
    rank_sum = sum(doubled[:n])
    least, most = below[rank_sum], below[-1] - (below[rank_sum - 1] if rank_sum else 0)
    return min(1.0, 2 * float(min(least, most) / below[-1]))


def shift_interval(differences: Sequence[float], n: int, m: int, confidence: float) -> tuple[float, float] | None:
    """Return the interval of the shift between samples of `n` and `m` logarithms (Hodges and Lehmann 1963).

    None for so few that even complete separation is likelier than 1 - `confidence`: at 95%, fewer than 4 per side.
    """
    rank = _critical(n, m, (1 - confidence) / 2)
    return (differences[rank - 1], differences[-rank]) if rank else None


@lru_cache(maxsize=64)
def _orders(n: int, m: int) -> tuple[int, ...]:
    """Return how many orders of n + m untied values give U = 0, 1, ... n*m (a Gaussian binomial)."""
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        # Multiply by (1 - q^(m+i)), divide by (1 - q^i).
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    return tuple(counts)


@lru_cache(maxsize=256)
def _critical(n: int, m: int, tail: float) -> int:
    """Return the largest rank with P(U < rank) <= tail (tail < 1) by chance; 0 if even U = 0 is likelier."""
    if n * m > EXACT_UP_TO:
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        return max(0, int(n * m / 2 + NormalDist().inv_cdf(tail) * spread + 0.5))
    total = math.comb(n + m, n)
    return next(rank for rank, below in enumerate(accumulate(_orders(n, m))) if below / total > tail)
