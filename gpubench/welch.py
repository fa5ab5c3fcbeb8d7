"""Welch's test and interval for two means, and rules for 3 to 5 trials per side. `analysis` and `runner` call it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist, fmean

LOOKS = (3, 4)
"""Numbers of rounds after which a run leaves out the cases whose ratios are decided."""
FEWEST_TRIALS = 3
"""With fewer trials per side there is no verdict."""
ASSUMED_SD = 0.06
"""Standard deviation of log seconds. Its square is added to the variance of 3 to 5 trials: these may agree by chance.

With it, at most 0.5% of comparisons get a false verdict if there are two kinds of processes, up to 15% apart in time
(benchmarks/simulation.py).
"""
EARLY_LEVEL = 0.998
"""Level of the interval that decides with three to five trials per side."""
STOP_P = 4e-5
"""A run leaves out a model's cases if the p values of all ratios between its precisions are below this.

Holm's correction over 50 ratios multiplies it by 50. That is 0.2%, the error rate of EARLY_LEVEL.
"""


@dataclass(frozen=True)
class Side:
    """One side of a difference: its mean (of logs, for a ratio), the variance of the mean, degrees of freedom."""

    middle: float
    variance: float
    freedom: float = math.inf


def side_of(values: Sequence[float], *, assumed_sd: float = 0.0) -> Side:
    """Return the side of two or more values, such as logarithms of times; `assumed_sd` is added to their spread."""
    within = _variance(values) / len(values)
    if not assumed_sd:
        return Side(fmean(values), within, len(values) - 1)
    total = assumed_sd**2 / len(values) + within
    return Side(fmean(values), total, total**2 / (within**2 / (len(values) - 1)) if within else math.inf)


def few_sides(a: Sequence[float], b: Sequence[float]) -> tuple[Side, Side]:
    """Return both sides, from logarithms and with ASSUMED_SD; `a` and `b` have two or more values each."""
    first, second = (side_of([math.log(value) for value in side], assumed_sd=ASSUMED_SD) for side in (a, b))
    return first, second


def is_decided_early(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether the ratio of two cases is so far from 1 that a run needs no more trials of them."""
    return min(len(a), len(b)) >= FEWEST_TRIALS and p_of(*few_sides(a, b)) < STOP_P


def all_decided_early(cases: Sequence[tuple[str, Sequence[float]]]) -> bool:
    """Return whether all ratios between precisions are decided early; cases are (precision, seconds). False if none."""
    pairs = [(a, b) for (one, a), (other, b) in combinations(cases, 2) if one != other]
    return bool(pairs) and all(is_decided_early(a, b) for a, b in pairs)


def difference(a: Side, b: Side) -> tuple[float, float, float]:
    """Return the difference, its standard error, and the degrees of freedom by Welch and Satterthwaite."""
    total = a.variance + b.variance
    if total == 0:
        return a.middle - b.middle, 0.0, math.inf
    spent = a.variance**2 / a.freedom + b.variance**2 / b.freedom
    return a.middle - b.middle, math.sqrt(total), total**2 / spent if spent else math.inf


def t_interval(a: Side, b: Side, level: float) -> tuple[float, float]:
    """Return Welch's interval for the difference of two sides."""
    between, error, freedom = difference(a, b)
    half = t_quantile(freedom, (1 + level) / 2) * error
    return between - half, between + half


def p_of(a: Side, b: Side, limit: float = 0.0) -> float:
    """Return the two-sided p value of the hypothesis that the difference of two sides is `limit`."""
    between, error, freedom = difference(a, b)
    beyond = between - limit
    return t_tails(freedom, beyond / error) if error else 0.0 if beyond else 1.0


def t_quantile(freedom: float, probability: float) -> float:
    """Return a quantile of Student's t distribution."""
    if freedom > 1e4:
        return NormalDist().inv_cdf(probability)
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def t_tails(freedom: float, t: float) -> float:
    """Return the two-sided p value of Student's t."""
    if freedom > 1e4:
        return 2 * NormalDist().cdf(-abs(t))
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -abs(t)))


def log_variance(values: Sequence[float]) -> float:
    """Return the variance of the logarithms of two values or more: the square of their relative spread."""
    return _variance([math.log(value) for value in values])


def _variance(values: Sequence[float]) -> float:
    """Return the sample variance. statistics.variance computes with fractions, which takes longer."""
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)
