"""The Mann-Whitney test and the interval from it. `stats` calls it."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

EXACT_UP_TO = 2500
"""If the product of both sides' numbers of trials is larger, the normal approximation of U's distribution is used."""


def log_differences(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Return log x - log y of all pairs, sorted: the input of the interval."""
    return list(np.sort(np.subtract.outer(np.log(a), np.log(b)), axis=None))


def p_value(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p value of "both samples have one distribution" (Mann and Whitney 1947).

    It is exact, over all ways to split these values, if the product of the sizes is at most EXACT_UP_TO.
    """
    if len(a) * len(b) > EXACT_UP_TO:
        from scipy.stats import mannwhitneyu  # takes a second to import, and is not exact with ties

        return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)
    smaller, larger = sorted((a, b), key=len)
    values = np.array([*smaller, *larger])
    # Twice the mean rank is a whole number.
    doubled = [int((values < value).sum() + (values <= value).sum()) + 1 for value in values]
    below = _choices(tuple(sorted(doubled)), len(smaller))
    rank_sum = sum(doubled[: len(smaller)])
    least, most = below[rank_sum], below[-1] - below[rank_sum - 1]
    return min(1.0, 2 * float(min(least, most) / below[-1]))


def shift_interval(differences: Sequence[float], n: int, m: int, confidence: float) -> tuple[float, float] | None:
    """Return the interval of the shift between samples of `n` and `m` logarithms (Hodges and Lehmann 1963).

    None if even complete separation of so few values is likelier than 1 - `confidence`: at 95%, for up to 3 per side.
    """
    rank = _critical(n, m, (1 - confidence) / 2)
    return (differences[rank - 1], differences[-rank]) if rank else None


@lru_cache(maxsize=64)
def _choices(ranks: tuple[int, ...], count: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Return how many choices of `count` of these ascending ranks have a sum of at most 0, 1, 2 ..."""
    width = sum(ranks[-count:]) + 1
    ways = np.zeros((count + 1, width))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : width - rank].copy()
    return np.cumsum(ways[count])


@lru_cache(maxsize=256)
def _critical(n: int, m: int, tail: float) -> int:
    """Return the largest rank with P(U < rank) <= tail (tail < 1) by chance; 0 if even U = 0 is likelier."""
    if n * m > EXACT_UP_TO:
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        return max(0, int(n * m / 2 + NormalDist().inv_cdf(tail) * spread + 0.5))
    fewer = min(n, m)
    # U is the sum of the ranks of one side, less the smallest possible sum.
    below = _choices(tuple(range(1, n + m + 1)), fewer)[fewer * (fewer + 1) // 2 :]
    return int(np.searchsorted(below / below[-1], tail, side="right"))
