"""Ratios with intervals, tests and verdicts. Floats in, floats out: knows no rows, files or units.

The unit is the trial, one fresh process; laps inside one process are correlated and never come here. Between
specimens of a card the unit is the specimen. docs/method.md has the rules in words and what they are worth.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from statistics import median as median
from typing import Literal

from gpubench.analysis import rank_test as ranks
from gpubench.interval import CONFIDENCE, OPTIONAL_STOPPING, confidence
from gpubench.interval import median_interval as median_interval

MINIMUM_EFFECT = 0.02
"""A difference smaller than this is not called one."""
SMALLEST = math.log(1 + MINIMUM_EFFECT)
EQUIVALENCE = 0.9
"""Level of the interval that must lie inside the minimum effect for `same`: two one-sided tests at 5%."""
WIDEST = 150.0
"""An interval of logarithms ends here: what is farther out says nothing, and its exponential need not be a number."""
DECIDING_TRIALS = 6
"""Trials a side below which Mann-Whitney cannot decide after Holm."""
BETWEEN_SPECIMENS_SD = 0.02
"""Standard deviation of log seconds between identical cards or hosts, where fewer than three were measured.

Published identical hosts differ by 0.07 to 4% (39 single-H100 hosts in Lambda's results, from ResNet-50 to
Tacotron2).
"""
LARGEST_BETWEEN_SD = 0.04
"""The upper end of that range, which a verdict between few specimens has to stand."""
MEASURED_FROM = 3
"""Specimens a side from which their spread is measured, not assumed."""
DECIDING_SPECIMENS = 5
"""Specimens a side from which the measured spread alone decides.

Hosts of two kinds, half and half, all fall out the other way round in 2 of 4**k comparisons of k a side: 0.8% at 4,
and with near misses more than 1%.
"""
ACROSS = 0.99
"""Level of the interval that decides between specimens, of which there are always few."""

Verdict = Literal[
    "faster", "slower", "same", "unsure", "one run", "few trials", "one specimen", "few specimens",
]  # fmt: skip
"""`one specimen`, `few specimens`: these differ, but their cards need not."""


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
    decisive: tuple[float, float] | None = None
    """The interval that decides `faster` and `slower`: the 95% one, or a wider one between specimens."""
    specimens: int = 0
    """Specimens on the smaller side, where the spread between them is in the interval; 0: it is one session."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends; None where there are none."""
        return (self.low, self.high) if self.low and self.high else None

    @property
    def inverse(self) -> "Ratio":
        """The quotient the other way round."""
        low = 1 / self.high if self.high else None
        high = 1 / self.low if self.low else None
        return Ratio(1 / self.value, low, high, self.p, _flip(self.narrow), _flip(self.decisive), self.specimens)


def _flip(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return (1 / interval[1], 1 / interval[0]) if interval else None


def ratio(a: Sequence[float], b: Sequence[float], *, same_session: bool = True, until: bool = False) -> Ratio:
    """Median of `a` over median of `b`, with a 95% interval where each side has two values or more.

    The interval inverts the Mann-Whitney test on log values (Hodges and Lehmann 1963), so it and the p value
    agree; up to 3 values a side no such interval has 95%, and Welch's t on log values gives a wide one. With
    `until` the number of rounds depended on what was seen, and all error rates are divided by
    OPTIONAL_STOPPING. Where the sides are not one specimen in one session, the spread between specimens is
    added, as in `specimens_ratio`.
    """
    if not same_session:
        return specimens_ratio([a], [b])
    value = median(a) / median(b)
    if min(len(a), len(b)) < 2:
        return Ratio(value, None, None, None)
    level = confidence(until)
    differences = ranks.log_differences(a, b)

    def interval(level: float) -> tuple[float, float]:
        by_ranks = ranks.shift_interval(differences, len(a), len(b), level)
        return _around(value, by_ranks or _t_interval(_trials_side(a), _trials_side(b), level))

    wide = interval(level)
    p = min(1.0, ranks.p_value(a, b, differences) * (OPTIONAL_STOPPING if until else 1))
    return Ratio(value, *wide, p, interval(1 - 2 * (1 - level)), wide)


def _around(value: float, shift: tuple[float, float]) -> tuple[float, float]:
    """The interval as quotients; that of the medians is inside it even where few values push it out."""
    low, high = max(shift[0], -WIDEST), min(shift[1], WIDEST)
    return min(value, math.exp(low)), max(value, math.exp(high))


@dataclass(frozen=True)
class _Side:
    """One side of a quotient on the log scale: its middle, the variance of that, and degrees of freedom."""

    middle: float
    variance: float
    freedom: float = math.inf


def _trials_side(values: Sequence[float]) -> _Side:
    logs = [math.log(value) for value in values]
    return _Side(sum(logs) / len(logs), _variance(logs) / len(logs), len(logs) - 1)


def _t_interval(a: _Side, b: _Side, level: float) -> tuple[float, float]:
    """Welch's interval of the difference."""
    between, total, freedom = _welch(a, b)
    half = _t_quantile(freedom, (1 + level) / 2) * total
    return between - half, between + half


def _welch(a: _Side, b: _Side) -> tuple[float, float, float]:
    """(difference, its standard error, degrees of freedom by Welch and Satterthwaite)."""
    total = a.variance + b.variance
    if total == 0:
        return a.middle - b.middle, 0.0, math.inf
    spent = a.variance**2 / a.freedom + b.variance**2 / b.freedom
    return a.middle - b.middle, math.sqrt(total), total**2 / spent if spent else math.inf


def _t_quantile(freedom: float, probability: float) -> float:
    if freedom > 1e4:
        return NormalDist().inv_cdf(probability)
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def _t_tails(freedom: float, t: float) -> float:
    """Two-sided p value."""
    if freedom > 1e4:
        return 2 * NormalDist().cdf(-abs(t))
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -abs(t)))


def specimens_ratio(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> Ratio:
    """Quotient of two cards, each known by one or more specimens with some trials each.

    A side of MEASURED_FROM specimens or more carries the spread it shows; a smaller one is given
    BETWEEN_SPECIMENS_SD. `faster` and `slower` have to stand a level of ACROSS, and from a side of fewer than
    DECIDING_SPECIMENS a LARGEST_BETWEEN_SD that such a number does not average away: they may all be of one kind.
    A lone specimen with one trial gives a ratio without interval.
    """
    value = _center(a) / _center(b)
    if any(len(side) == 1 and len(side[0]) < 2 for side in (a, b)):
        return Ratio(value, None, None, None)
    return _across(value, (_shown_side(a), _shown_side(b)), (_strict_side(a), _strict_side(b)), min(len(a), len(b)))


def paired_specimens_ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Quotient of two cases that the same specimens ran, from each specimen's own quotient (one value a side each).

    As `specimens_ratio`, with one spread in place of two.
    """
    quotients = [[x / y] for x, y in zip(a, b, strict=True)]
    value = median(a) / median(b)
    if len(quotients) < 2:
        return Ratio(value, None, None, None)
    exact = _Side(0.0, 0.0)
    return _across(value, (_shown_side(quotients), exact), (_strict_side(quotients), exact), len(quotients))


def p_above(a: Sequence[float], b: Sequence[float], limit: float, *, until: bool = False) -> float:
    """One-sided p value that the quotient of one session is at most `limit`; 1 where no trials can tell."""
    if min(len(a), len(b)) < 2:
        return 1.0
    scaled = [value / limit for value in a]
    differences = ranks.log_differences(scaled, b)
    p = ranks.p_value(scaled, b, differences) / 2
    p = p if median(differences) > 0 else 1 - p
    return min(1.0, p * (OPTIONAL_STOPPING if until else 1))


def specimens_p_above(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], limit: float) -> float:
    """The same of `specimens_ratio`, by the spread that decides."""
    if any(len(side) == 1 and len(side[0]) < 2 for side in (a, b)):
        return 1.0
    return _p_above(_strict_side(a), _strict_side(b), limit)


def paired_p_above(a: Sequence[float], b: Sequence[float], limit: float) -> float:
    """The same of `paired_specimens_ratio`."""
    if len(a) < 2:
        return 1.0
    return _p_above(_strict_side([[x / y] for x, y in zip(a, b, strict=True)]), _Side(0.0, 0.0), limit)


def _p_above(a: "_Side", b: "_Side", limit: float) -> float:
    between, error, freedom = _welch(a, b)
    above = between - math.log(limit)
    if above <= 0:
        return 1.0
    return _t_tails(freedom, above / error) / 2 if error else 0.0


def _center(side: Sequence[Sequence[float]]) -> float:
    return float(median([median(trials) for trials in side]))


def _across(value: float, shown: tuple[_Side, _Side], strict: tuple[_Side, _Side], specimens: int) -> Ratio:
    between, error, freedom = _welch(*shown)
    p = _t_tails(freedom, between / error) if error else 0.0 if between else 1.0
    wide = _around(value, _t_interval(*shown, CONFIDENCE))
    narrow = _around(value, _t_interval(*shown, EQUIVALENCE))
    return Ratio(value, *wide, p, narrow, _around(value, _t_interval(*strict, ACROSS)), specimens)


def _shown_side(side: Sequence[Sequence[float]]) -> _Side:
    return _specimens_side(side, MEASURED_FROM, BETWEEN_SPECIMENS_SD**2 / len(side))


def _strict_side(side: Sequence[Sequence[float]]) -> _Side:
    return _specimens_side(side, DECIDING_SPECIMENS, LARGEST_BETWEEN_SD**2)


def _specimens_side(side: Sequence[Sequence[float]], enough: int, assumed_variance: float) -> _Side:
    """The mean log over specimens; its variance from their spread where they are `enough`, else the assumed one."""
    logs = [math.log(median(trials)) for trials in side]
    count = len(logs)
    middle = sum(logs) / count
    if count >= enough:
        return _Side(middle, _variance(logs) / count, count - 1)
    # pi / 2: variance of a median against that of a mean.
    within = sum(math.pi / 2 * log_variance(t) / len(t) for t in side if len(t) > 1) / count**2
    freedom = sum(len(trials) - 1 for trials in side)
    total = assumed_variance + within
    return _Side(middle, total, total**2 / (within**2 / freedom) if within else math.inf)


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

    `trials` is the smaller side's number, `adjusted_p` the p value after Holm. A difference is one where p is
    under 5% and the whole deciding interval lies beyond the minimum effect
    (docs/research/decisions/8-beyond-the-minimum.md).
    """
    if trials < 2 or r.p is None or r.low is None or r.high is None:
        return "one run"
    if trials < DECIDING_TRIALS and r.specimens < DECIDING_SPECIMENS:
        return "few trials"
    if adjusted_p is not None and adjusted_p < 1 - CONFIDENCE:
        if r.decisive and _beyond(*r.decisive):
            return "slower" if r.value > 1 else "faster"
        if r.specimens and _beyond(r.low, r.high):
            return "one specimen" if r.specimens == 1 else "few specimens"
    if r.narrow and max(abs(math.log(end)) for end in r.narrow) < SMALLEST:
        return "same"
    return "unsure"


def _beyond(low: float, high: float) -> bool:
    """Whether an interval lies wholly beyond the minimum effect, on either side of 1."""
    return math.log(low) > SMALLEST or math.log(high) < -SMALLEST


def trials_to_decide(a: Sequence[float], b: Sequence[float], family: int = 1) -> int:
    """About how many trials a side would decide `unsure`: from the spread seen, at 80% power.

    At least so many that Mann-Whitney's smallest p survives Holm over `family` ratios.
    """
    least = DECIDING_TRIALS
    while 2 / math.comb(2 * least, least) * family >= 1 - CONFIDENCE:
        least += 1
    if min(len(a), len(b)) < 2:
        return least
    variance = (log_variance(a) + log_variance(b)) / 2
    # 3 / pi: the efficiency of Mann-Whitney against a t test.
    return max(least, _to_decide(variance / (3 / math.pi), median(a) / median(b), CONFIDENCE))


def specimens_to_decide(value: float) -> int:
    """About how many specimens a side would decide a quotient of `value`, at the default spread and 80% power."""
    return max(DECIDING_SPECIMENS, _to_decide(BETWEEN_SPECIMENS_SD**2, value, ACROSS))


def _to_decide(variance: float, value: float, level: float) -> int:
    """Units a side until an interval around `value` lies beyond the minimum effect, or inside it."""
    effect = abs(math.log(value))
    distance = max(abs(effect - SMALLEST), SMALLEST / 10)
    normal = NormalDist()
    # Near 1 both ends of the interval of `same` count: 90% for each is 80% for both.
    z = normal.inv_cdf((1 + level) / 2) + normal.inv_cdf(0.8)
    if effect < SMALLEST:
        z = normal.inv_cdf((1 + EQUIVALENCE) / 2) + normal.inv_cdf(0.9)
    return math.ceil(2 * variance * (z / distance) ** 2)


def log_variance(values: Sequence[float]) -> float:
    """Variance of the logarithms of two values or more: a relative spread, squared."""
    return _variance([math.log(value) for value in values])


def _variance(logs: Sequence[float]) -> float:
    mean = sum(logs) / len(logs)
    return sum((x - mean) ** 2 for x in logs) / (len(logs) - 1)


def geometric_mean(values: Sequence[float]) -> float:
    """The right mean of ratios."""
    return math.exp(sum(math.log(value) for value in values) / len(values))
