"""Medians, intervals, tests and verdicts. Floats in, floats out: knows no rows, files or units.

The unit is the trial, one fresh process; laps inside one process are correlated and never come here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from statistics import median as median
from typing import Literal

CONFIDENCE = 0.95
MINIMUM_EFFECT = 0.02
"""A difference smaller than this is not called one."""
SMALLEST = math.log(1 + MINIMUM_EFFECT)
DECIDING_TRIALS = 6
"""Trials a side below which Mann-Whitney cannot decide after Holm."""
BETWEEN_SPECIMENS_SD = 0.02
"""Standard deviation of log seconds between identical cards or hosts, where fewer than three were measured.

Published identical hosts differ by 0.07 to 4% (39 single-H100 hosts in Lambda's results, from ResNet-50 to
Tacotron2).
"""
EXACT_UP_TO = 2500
"""Product of the sides' trials up to which U's distribution is counted; beyond it the normal limit does."""

Verdict = Literal["faster", "slower", "same", "unsure", "one trial", "few trials"]


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
    """Median of `a` over median of `b`, with a 95% interval where each side has two values or more.

    The interval inverts the Mann-Whitney test on log values (Hodges and Lehmann 1963), so it and the p value
    agree; up to 3 values a side no such interval has 95%, and Welch's t on log values gives a wide one. Where
    the sides are not one specimen in one session, the spread between specimens is added.
    """
    value = median(a) / median(b)
    if min(len(a), len(b)) < 2:
        return Ratio(value, None, None, None)
    center = math.log(value)
    wide, narrow = _shift(a, b, CONFIDENCE), _shift(a, b, 0.9)
    if same_session:
        return Ratio(value, *_around(value, wide), _mann_whitney(a, b), _around(value, narrow))
    normal = NormalDist()
    z95, z90 = normal.inv_cdf(0.975), normal.inv_cdf(0.95)
    total = math.hypot((wide[1] - wide[0]) / 2 / z95, math.sqrt(2) * BETWEEN_SPECIMENS_SD)
    p = 2 * (1 - normal.cdf(abs(center) / total))
    around95 = _around(value, (center - z95 * total, center + z95 * total))
    around90 = _around(value, (center - z90 * total, center + z90 * total))
    return Ratio(value, *around95, p, around90, specimens=True)


def _around(value: float, shift: tuple[float, float]) -> tuple[float, float]:
    """The interval as quotients; that of the medians is inside it even where few values push it out."""
    return min(value, math.exp(shift[0])), max(value, math.exp(shift[1]))


def _shift(a: Sequence[float], b: Sequence[float], confidence: float) -> tuple[float, float]:
    """Interval of the shift from log `b` to log `a`."""
    rank = _critical(len(a), len(b), (1 - confidence) / 2)
    if rank == 0:
        return _welch(a, b, confidence)
    differences = sorted(math.log(x / y) for x in a for y in b)
    return differences[rank - 1], differences[-rank]


def _welch(a: Sequence[float], b: Sequence[float], confidence: float) -> tuple[float, float]:
    """Welch's interval of the difference of mean logs."""
    from scipy.special import stdtrit

    share_a, share_b = _log_variance(a) / len(a), _log_variance(b) / len(b)
    between = math.log(geometric_mean(a) / geometric_mean(b))
    if share_a + share_b == 0:
        return between, between
    freedom = (share_a + share_b) ** 2 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1))
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(share_a + share_b)
    return between - half, between + half


@lru_cache(maxsize=64)
def _orders(n: int, m: int) -> tuple[int, ...]:
    """How many orders of n + m untied values give U = 0, 1, ... n*m (a Gaussian binomial)."""
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        # Multiply by (1 - q^(m+i)), divide by (1 - q^i).
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    return tuple(counts)


def _critical(n: int, m: int, tail: float) -> int:
    """The largest rank with P(U < rank) <= tail under the null hypothesis; 0: even U = 0 is likelier."""
    if n * m > EXACT_UP_TO:
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        return max(0, int(n * m / 2 + NormalDist().inv_cdf(tail) * spread + 0.5))
    below, total = 0, math.comb(n + m, n)
    for rank, count in enumerate(_orders(n, m)):
        below += count
        if below / total > tail:
            return rank
    return 0


def _mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p value that both samples come from one distribution."""
    n, m = len(a), len(b)
    if n * m > EXACT_UP_TO or len({*a, *b}) < n + m:
        from scipy.stats import mannwhitneyu

        return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)
    # The counts are here for the interval; scipy.stats would cost a second to import for the same number.
    u = sum(x < y for x in a for y in b)
    return min(1.0, 2 * sum(_orders(n, m)[: min(u, n * m - u) + 1]) / math.comb(n + m, n))


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

    `trials` is the smaller side's number, `adjusted_p` the p value after Holm.
    """
    if trials < 2 or r.p is None:
        return "one trial"
    if trials < DECIDING_TRIALS:
        return "few trials"
    if adjusted_p is not None and adjusted_p < 1 - CONFIDENCE and abs(math.log(r.value)) > SMALLEST:
        return "slower" if r.value > 1 else "faster"
    if r.narrow and max(abs(math.log(end)) for end in r.narrow) < SMALLEST:
        return "same"
    return "unsure"


def trials_to_decide(a: Sequence[float], b: Sequence[float], family: int = 1) -> int:
    """About how many trials a side would decide `unsure`: from the spread seen, at 80% power.

    At least so many that Mann-Whitney's smallest p survives Holm over `family` ratios.
    """
    least = DECIDING_TRIALS
    while 2 / math.comb(2 * least, least) * family >= 1 - CONFIDENCE:
        least += 1
    if min(len(a), len(b)) < 2:
        return least
    variance = (_log_variance(a) + _log_variance(b)) / 2
    effect = abs(math.log(median(a) / median(b)))
    distance = effect if effect > SMALLEST else max(SMALLEST - effect, SMALLEST / 10)
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    # 3 / pi: the efficiency of Mann-Whitney against a t test.
    return max(least, math.ceil(2 * variance * (z / distance) ** 2 / (3 / math.pi)))


def _log_variance(values: Sequence[float]) -> float:
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    return sum((x - mean) ** 2 for x in logs) / (len(logs) - 1)


def geometric_mean(values: Sequence[float]) -> float:
    """The right mean of ratios."""
    return math.exp(sum(math.log(value) for value in values) / len(values))
