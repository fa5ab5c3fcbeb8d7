"""Medians, intervals, tests and verdicts. Floats in, floats out: knows no rows, files or units.

The unit is the trial, one fresh process; laps inside one process are correlated and never come here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median
from typing import Literal

CONFIDENCE = 0.95
MINIMUM_EFFECT = 0.02
"""A difference smaller than this is not called one."""
DECIDING_TRIALS = 6
"""Trials a side below which Mann-Whitney cannot decide after Holm."""
BETWEEN_SPECIMENS_SD = 0.02
"""Standard deviation of log seconds between identical cards or hosts, where fewer than three were measured.

Published identical hosts differ by 0.07 to 4% (39 single-H100 hosts in Lambda's results, ResNet-50 to Tacotron2).
"""

Verdict = Literal["faster", "slower", "same", "unsure", "one trial", "card + stack", "few trials"]


@dataclass(frozen=True)
class Ratio:
    """A quotient of two medians with its 95% interval (None where there are too few trials for one)."""

    value: float
    low: float | None
    high: float | None
    p: float | None
    """Two-sided, before any correction for a family."""
    narrow: tuple[float, float] | None = None
    """The 90% interval, which decides `same`."""
    specimens: bool = False
    """Whether the spread between specimens is in the interval."""

    @property
    def inverse(self) -> "Ratio":
        """The quotient the other way round."""
        flip = (1 / self.narrow[1], 1 / self.narrow[0]) if self.narrow else None
        low = 1 / self.high if self.high else None
        high = 1 / self.low if self.low else None
        return Ratio(1 / self.value, low, high, self.p, flip, self.specimens)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Order-statistic interval of the median with at least 95% coverage; None under 6 values.

    Distribution-free (binomial; the method of benchstat).
    """
    n = len(values)
    ordered = sorted(values)
    tail, rank = 0.0, 0
    for k in range(n // 2):
        tail += math.comb(n, k) / 2**n
        if tail > (1 - CONFIDENCE) / 2:
            break
        rank = k + 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else None


def ratio(a: Sequence[float], b: Sequence[float], *, same_session: bool = True) -> Ratio:
    """Median of `a` over median of `b`, with an interval from all pairwise quotients.

    The interval inverts the Mann-Whitney test on log values (Hodges and Lehmann 1963), so it and the p value
    agree. Across sessions each side is one specimen on one day, and the spread between specimens is added.
    """
    value = median(a) / median(b)
    if min(len(a), len(b)) < 2:
        return Ratio(value, None, None, None)
    logs = sorted(math.log(x / y) for x in a for y in b)
    wide, narrow = _shift(logs, len(a), len(b), CONFIDENCE), _shift(logs, len(a), len(b), 0.9)
    if same_session:
        return Ratio(value, *_around(value, wide), _mann_whitney(a, b), _around(value, narrow))
    center = math.log(value)
    between = math.sqrt(2) * BETWEEN_SPECIMENS_SD
    normal = NormalDist()
    z95, z90 = normal.inv_cdf(0.975), normal.inv_cdf(0.95)
    within = (wide[1] - wide[0]) / 2 / z95
    total = math.hypot(within, between)
    p = 2 * (1 - normal.cdf(abs(center) / total))
    spread95 = (math.exp(center - z95 * total), math.exp(center + z95 * total))
    spread90 = (math.exp(center - z90 * total), math.exp(center + z90 * total))
    return Ratio(value, *spread95, p, spread90, specimens=True)


def _shift(logs: Sequence[float], n: int, m: int, confidence: float) -> tuple[float, float]:
    """Interval of the shift between two samples, from their n*m sorted pairwise differences."""
    k = _critical(n, m, (1 - confidence) / 2)
    return logs[k], logs[n * m - 1 - k]


@lru_cache(maxsize=256)
def _critical(n: int, m: int, tail: float) -> int:
    """The largest k with P(U <= k) <= tail under the null hypothesis (0 where even that is too likely).

    Counted from 0, the k-th smallest difference is the interval's end: it passes 0 exactly when U > k.
    """
    if n * m > 2500:  # the normal limit is exact enough, and the counts below grow
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        return max(0, int(n * m / 2 + NormalDist().inv_cdf(tail) * spread - 0.5))
    # counts[u]: orders of the pooled sample with U = u, by adding one value of the first sample at a time.
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        # Gaussian binomial: multiply by (1 - q^(m+i)), divide by (1 - q^i).
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    total, below = math.comb(n + m, n), 0
    for k, count in enumerate(counts):
        below += count
        if below / total > tail:
            return max(0, k - 1)
    return 0


def _around(value: float, shift: tuple[float, float]) -> tuple[float, float]:
    """The interval as quotients; the quotient of the medians is inside it even where ties push it out."""
    return min(value, math.exp(shift[0])), max(value, math.exp(shift[1]))


def _mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p value that both samples come from one distribution."""
    from scipy.stats import mannwhitneyu  # half a second that --help and single trials need not pay

    return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    worst = 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = worst
    return adjusted


def verdict(r: Ratio, adjusted_p: float | None, trials: int) -> Verdict:
    """What may be said of the numerator: `faster` where its seconds are fewer.

    `trials` is the smaller side's number.
    """
    if trials < 2 or r.p is None:
        return "one trial"
    if trials < DECIDING_TRIALS:
        return "few trials"
    if adjusted_p is not None and adjusted_p < 1 - CONFIDENCE and abs(r.value - 1) > MINIMUM_EFFECT:
        return "slower" if r.value > 1 else "faster"
    if r.narrow and 1 / (1 + MINIMUM_EFFECT) < r.narrow[0] and r.narrow[1] < 1 + MINIMUM_EFFECT:
        return "same"
    return "unsure"


def trials_to_decide(a: Sequence[float], b: Sequence[float]) -> int:
    """About how many trials a side would decide `unsure`: from the spread seen, at 80% power."""
    if min(len(a), len(b)) < 2:
        return DECIDING_TRIALS
    variance = (_log_variance(a) + _log_variance(b)) / 2
    effect = abs(math.log(median(a) / median(b)))
    minimum = math.log(1 + MINIMUM_EFFECT)
    distance = max(effect, 1e-4) if effect > minimum else max(minimum - effect, minimum / 10)
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    # 3 / pi: the efficiency of Mann-Whitney against a t test.
    return max(DECIDING_TRIALS, math.ceil(2 * variance * (z / distance) ** 2 / (3 / math.pi)))


def _log_variance(values: Sequence[float]) -> float:
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    return sum((x - mean) ** 2 for x in logs) / (len(logs) - 1)


def geometric_mean(values: Sequence[float]) -> float:
    """The right mean of ratios."""
    return math.exp(sum(math.log(value) for value in values) / len(values))
