"""Statistics of lists of numbers: ratios with intervals, p values, verdicts and their limits (2%, 6 trials per side).

`verdicts` and studies call it. A number is the figure of one trial, such as its seconds. If cards have several
specimens, each specimen counts once. docs/method.md explains the rules and their error rates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from statistics import geometric_mean as geometric_mean
from statistics import median as median
from typing import Literal

from gpubench.analysis import rank_test as ranks
from gpubench.interval import CONFIDENCE, OPTIONAL_STOPPING, confidence
from gpubench.interval import median_interval as median_interval
from gpubench.welch import EARLY_LEVEL, FEWEST_TRIALS, Side, few_sides, log_variance, p_of, side_of, t_interval

MINIMUM_EFFECT = 0.02
"""The smallest difference that counts: 2%.

`faster` and `slower` need an interval of the ratio that is entirely beyond it, `same` one that is entirely within it.
"""
SMALLEST = math.log(1 + MINIMUM_EFFECT)
"""MINIMUM_EFFECT as the logarithm of a ratio."""
EQUIVALENCE = 0.9
"""Level of the interval that must be within the minimum effect for `same`: two one-sided tests at 5%."""
WIDEST = 150.0
"""Limit for the ends of an interval of logarithms, so that their exponentials are finite."""
DECIDING_TRIALS = 6
"""With fewer trials per side, the smallest p of the Mann-Whitney test fails Holm's correction over 7 ratios or more.

With 3 to 5 trials, Welch's test decides large ratios, at a stricter level and with an assumed spread (welch.py).
"""
LARGEST_BETWEEN_SD = 0.06
"""Assumed standard deviation of log values between specimens, or sessions, if too few were measured.

With it, 95% intervals contain the true ratio in at least 95% of comparisons if the true deviation is not larger.
Published hosts differ by 0.07 to 4% (39 single-H100 hosts in Lambda's results, from ResNet-50 to Tacotron2).
"""
MEASURED_FROM = 3
"""With this many specimens or more on a side, the shown interval uses their measured spread, not the assumed one."""
DECIDING_SPECIMENS = 5
"""With this many specimens or more on a side, verdicts use their measured spread, too.

If half of all hosts are of kind A and half of kind B, one side has only A and the other only B in 2 of 4**k
comparisons with k hosts per side. That is 0.8% for k = 4, and over 1% if nearly separate sides count, too.
"""
UNLIKE_SPREADS, UNLIKE_COUNTS = 3.0, 1.2
"""If the spreads or the numbers of trials of two sides differ by more than these factors, Mann-Whitney's interval is
too narrow, so that Welch's is added. Welch's is not always used: a single trial that is far off makes it too wide."""
ACROSS = 0.99
"""Level of the interval that decides verdicts on specimens, as these are always few, and on unlike sides."""
Values = Sequence[Sequence[float]]
"""The values of the trials of each specimen of one side."""
Rounds = Mapping[float, float]
"""The value of each trial of a case, by its round."""
Verdict = Literal[
    "faster", "slower", "same", "undecided", "one run", "few trials", "one specimen", "few specimens",
]  # fmt: skip
"""The first four are verdicts. The others are reasons for no verdict: too few trials, or too few
specimens to judge their cards."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of two medians, or a mean of ratios. Its 95% interval is `low` to `high`; None with too few trials."""

    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """Two-sided p value before Holm's correction."""
    narrow: tuple[float, float] | None = None
    """The 90% interval, which decides `same`."""
    decisive: tuple[float, float] | None = None
    """The interval that decides `faster` and `slower`: 95%, or wider for specimens, unlike sides or few trials."""
    specimens: int = 0
    """Specimens (or sessions) of the smaller side if the interval includes their spread; 0 inside one session."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval; None if there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def inverse(self) -> "Ratio":
        """The inverse ratio."""
        intervals = (self.interval, self.narrow, self.decisive)
        wide, narrow, decisive = ((1 / ends[1], 1 / ends[0]) if ends else None for ends in intervals)
        low, high = wide or (None, None)
        return Ratio(1 / self.value, low, high, self.p, narrow, decisive, self.specimens)


def ratio(a: Sequence[float], b: Sequence[float], *, until: bool = False) -> Ratio:
    """Return the median of `a` over the median of `b`, with a 95% interval if each side has two values or more.

    Both sides are trials of one specimen in one session; for other trials see `specimens_ratio`.

    The interval inverts the Mann-Whitney test on log values (Hodges and Lehmann 1963). With few values, such as 3 per
    side, no such interval reaches 95%, so Welch's t on log values gives a wide one. The test assumes that both sides
    scatter alike. If they do not, the interval includes Welch's. With 3 to 5 values on the smaller side, p and the
    deciding interval are Welch's with an assumed spread (`few_sides`). `until`: the number of rounds depended on the
    results, so error rates are divided by OPTIONAL_STOPPING.
    """
    value = median(a) / median(b)
    if min(len(a), len(b)) < 2:
        return Ratio(value)
    level = confidence(until)
    differences = ranks.log_differences(a, b)
    alike = _are_alike(a, b)
    sides = side_of([math.log(value) for value in a]), side_of([math.log(value) for value in b])

    def interval(level: float) -> tuple[float, float]:
        by_ranks = ranks.shift_interval(differences, len(a), len(b), level)
        if by_ranks and alike:
            return _ratio_interval(value, by_ranks)
        low, high = t_interval(*sides, level)
        by_ranks = by_ranks or (low, high)
        return _ratio_interval(value, (min(low, by_ranks[0]), max(high, by_ranks[1])))

    wide = interval(level)
    p = min(1.0, ranks.p_value(a, b) * (OPTIONAL_STOPPING if until else 1))
    decisive = wide if alike else interval(max(level, ACROSS))
    if FEWEST_TRIALS <= min(len(a), len(b)) < DECIDING_TRIALS:
        few = few_sides(a, b)
        p, decisive = p_of(*few), _ratio_interval(value, t_interval(*few, EARLY_LEVEL))
    return Ratio(value, *wide, p, interval(1 - 2 * (1 - level)), decisive)


def _are_alike(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether two sides have similar median absolute deviations and similar numbers of trials."""
    counts, spreads = (len(a), len(b)), [median([abs(x / median(side) - 1) for x in side]) for side in (a, b)]
    return max(spreads) <= UNLIKE_SPREADS * min(spreads) and max(counts) <= UNLIKE_COUNTS * min(counts)


def _ratio_interval(value: float, shift: tuple[float, float]) -> tuple[float, float]:
    """Return an interval of log ratios as ratios, widened to include the ratio of the medians."""
    low, high = max(shift[0], -WIDEST), min(shift[1], WIDEST)
    return min(value, math.exp(low)), max(value, math.exp(high))


def specimens_ratio(a: Values, b: Values, *, paired: bool = False) -> Ratio:
    """Return the ratio of two sides, each with the values of the trials of one or more specimens.

    The shown interval uses the measured spread of a side with MEASURED_FROM specimens or more, else LARGEST_BETWEEN_SD.
    The deciding interval has level ACROSS, and uses the measured spread from DECIDING_SPECIMENS on. With fewer, the
    assumed variance is not divided by their number, as all may be of one kind. There is no interval if a side has 1 or
    2 specimens with 1 trial each. `paired`: the same specimens ran both sides, so the spread of their ratios is used.
    """
    value = median(map(median, a)) / median(map(median, b))
    if _lone_trial(a, b):
        return Ratio(value)
    shown, strict = (_sides(a, b, paired, deciding=deciding) for deciding in (False, True))
    wide = _ratio_interval(value, t_interval(*shown, CONFIDENCE))
    narrow, decisive = (_ratio_interval(value, t_interval(*strict, level)) for level in (EQUIVALENCE, ACROSS))
    return Ratio(value, *wide, p_of(*shown), narrow, decisive, min(len(a), len(b)))


def specimens_p_above(a: Values, b: Values, limit: float, *, paired: bool = False) -> float:
    """Return the one-sided p value of "the ratio between specimens is at most `limit`", with the deciding spread."""
    return 1.0 if _lone_trial(a, b) else _p_above(*_sides(a, b, paired, deciding=True), limit)


def _p_above(a: Side, b: Side, limit: float) -> float:
    """Return half of the two-sided p value if the difference is above log `limit`, else 1."""
    return p_of(a, b, math.log(limit)) / 2 if a.middle - b.middle > math.log(limit) else 1.0


def p_above(a: Sequence[float], b: Sequence[float], limit: float, *, until: bool = False) -> float:
    """Return the one-sided p value of "the ratio in one session is at most `limit`"; 1 if a side has one trial."""
    if min(len(a), len(b)) < 2:
        return 1.0
    if min(len(a), len(b)) < DECIDING_TRIALS:
        return _p_above(*few_sides(a, b), limit)
    scaled = [value / limit for value in a]
    differences = ranks.log_differences(scaled, b)
    p = ranks.p_value(scaled, b) / 2
    p = p if median(differences) > 0 else 1 - p
    return min(1.0, p * (OPTIONAL_STOPPING if until else 1))


def _lone_trial(a: Values, b: Values) -> bool:
    """Return whether a side has too few specimens to measure their spread, and no specimen with two trials."""
    return any(len(side) < MEASURED_FROM and max(map(len, side)) < 2 for side in (a, b))


def _sides(a: Values, b: Values, paired: bool, *, deciding: bool) -> tuple[Side, Side]:
    """Return both sides, with the spread for the shown interval, or for the `deciding` interval of verdicts."""
    if paired:
        quotients = [[median(x) / median(y)] for x, y in zip(a, b, strict=True)]
        return _specimens_side(quotients, deciding), Side(0.0, 0.0)
    return _specimens_side(a, deciding), _specimens_side(b, deciding)


def _specimens_side(side: Values, deciding: bool) -> Side:
    """Return the mean log over specimens, with the measured variance if there are enough, else the assumed one."""
    logs = [math.log(median(trials)) for trials in side]
    count = len(logs)
    if count >= (DECIDING_SPECIMENS if deciding else MEASURED_FROM):
        return side_of(logs)
    # pi / 2: variance of a median, relative to the variance of a mean.
    within = sum(math.pi / 2 * log_variance(t) / len(t) for t in side if len(t) > 1) / count**2
    freedom = sum(len(trials) - 1 for trials in side)
    total = LARGEST_BETWEEN_SD**2 / (1 if deciding else count) + within
    return Side(fmean(logs), total, total**2 / (within**2 / freedom) if within else math.inf)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p values, in the order given (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    worst = 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = worst
    return adjusted


def verdict(r: Ratio, adjusted_p: float | None, trials: int) -> Verdict:
    """Return the verdict on the numerator: `faster` if its seconds are fewer.

    `trials` is the number of trials of the smaller side, `adjusted_p` the p value after Holm's correction. `faster` and
    `slower` need an adjusted p below 5% (below 0.2% with few trials) and a deciding interval that is entirely beyond
    the minimum effect (docs/research/decisions/8-beyond-the-minimum.md).
    """
    if trials < 2 or r.p is None or r.low is None or r.high is None:
        return "one run"
    few = trials < DECIDING_TRIALS and r.specimens < DECIDING_SPECIMENS
    if adjusted_p is not None and adjusted_p < 1 - (EARLY_LEVEL if few else CONFIDENCE):
        if r.decisive and _beyond(*r.decisive) and trials >= FEWEST_TRIALS:
            return "slower" if r.value > 1 else "faster"
        if r.specimens and _beyond(r.low, r.high) and not few:
            return "one specimen" if r.specimens == 1 else "few specimens"
    if few:
        return "few trials"
    if r.narrow and max(abs(math.log(end)) for end in r.narrow) < SMALLEST:
        return "same"
    return "undecided"


def _beyond(low: float, high: float) -> bool:
    """Return whether an interval is entirely beyond the minimum effect, on either side of 1."""
    return math.log(low) > SMALLEST or math.log(high) < -SMALLEST


def trials_to_decide(a: Sequence[float], b: Sequence[float], family: int = 1) -> int:
    """Return about how many trials per side would decide an undecided ratio of this spread, with a chance of 80%.

    The number is large enough for Mann-Whitney's smallest p to survive Holm's correction over `family` ratios.
    """
    least = DECIDING_TRIALS
    while 2 / math.comb(2 * least, least) * family >= 1 - CONFIDENCE:
        least += 1
    if min(len(a), len(b)) < 2:
        return least
    # 3 / pi: the efficiency of Mann-Whitney against a t test.
    variance = (log_variance(a) + log_variance(b)) / 2 / (3 / math.pi)
    effect = abs(math.log(median(a) / median(b)))
    distance = max(abs(effect - SMALLEST), SMALLEST / 10)
    normal = NormalDist()
    z = normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(0.8)
    # `same` needs both ends of its interval within the minimum: a chance of 90% for each is 80% for both.
    if effect < SMALLEST:
        z = normal.inv_cdf((1 + EQUIVALENCE) / 2) + normal.inv_cdf(0.9)
    return max(least, math.ceil(2 * variance * (z / distance) ** 2))


def pooled_ratio(a: Sequence[Rounds], b: Sequence[Rounds], *, until: bool = False) -> Ratio:
    """Return the geometric mean of the ratios of several models, all of one session, with a 95% interval.

    The models of a side share the noise of their round. So the unit is the round: its value is the geometric mean over
    the models of a side. There is no interval if the models have fewer than two rounds in common.
    """
    value = geometric_mean([median(x.values()) / median(y.values()) for x, y in zip(a, b, strict=True)])
    sides = []
    for side in (a, b):
        common = set.intersection(*map(set, side))
        sides.append([geometric_mean([rounds[number] for rounds in side]) for number in sorted(common)])
    if min(map(len, sides)) < 2:
        return Ratio(value)
    low, high = ratio(*sides, until=until).interval or (value, value)
    return Ratio(value, min(value, low), max(value, high))


def mean_of_alike(ratios: Sequence[Ratio]) -> Ratio:
    """Return the geometric mean of ratios whose errors may be equal, as for several cases of the same two specimens.

    The ends of its interval are the geometric means of the intervals' ends. It has no interval if a ratio has none.
    """
    value = geometric_mean([r.value for r in ratios])
    intervals = [r.interval for r in ratios if r.interval]
    if len(intervals) < len(ratios):
        return Ratio(value)
    low, high = (geometric_mean(ends) for ends in zip(*intervals, strict=True))
    return Ratio(value, low, high)
