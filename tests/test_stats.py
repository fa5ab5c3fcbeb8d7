"""Intervals, tests and verdicts against known values and against simulation."""

import math
import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr, stdtrit
from scipy.stats import mannwhitneyu

from gpubench.analysis import rank_test as ranks
from gpubench.analysis import stats
from gpubench.welch import is_decided_early, log_variance

TIMES = st.lists(st.floats(0.1, 1e4), min_size=2, max_size=12)


def test_small_figures_by_hand():
    assert stats.median_interval([1, 2, 3, 4, 5]) is None
    assert stats.median_interval([6, 1, 5, 2, 4, 3]) == (1, 6)
    assert stats.median_interval(list(range(1, 10))) == (2, 8)
    assert stats.median_interval(list(range(1, 21))) == (6, 15)
    assert log_variance([1.0, math.exp(0.2)]) == pytest.approx(0.02)
    assert log_variance([1.0, math.exp(0.3), math.exp(0.6)]) == pytest.approx(0.09)
    r = stats.Ratio(2.0, 1.6, 2.5, 0.03, (1.25, 4.0), (0.5, 8.0), 3)
    assert r.inverse == stats.Ratio(0.5, 0.4, 0.625, 0.03, (0.25, 0.8), (0.125, 2.0), 3)
    assert stats.Ratio(4.0, None, None, None).inverse == stats.Ratio(0.25, None, None, None)
    ratio = stats.Ratio(1.1, 1.05, 1.2, 0.01, (0.99, 1.01), (1.05, 1.2))
    assert stats.verdict(ratio, None, 6) == "same"


@given(a=TIMES, b=TIMES)
def test_a_ratio_times_its_inverse_is_one(a, b):
    there, back = stats.ratio(a, b), stats.ratio(b, a)
    assert there.value * back.value == pytest.approx(1)
    assert there.low is not None
    assert back.high is not None
    assert there.low * back.high == pytest.approx(1)
    assert there.low <= there.value <= (there.high or 0)


@given(a=TIMES, b=TIMES, unit=st.floats(1e-3, 1e3))
def test_a_ratio_knows_no_unit(a, b, unit):
    scaled = stats.ratio([x * unit for x in a], [x * unit for x in b])
    assert scaled.value == pytest.approx(stats.ratio(a, b).value)


@pytest.mark.parametrize(("n", "m"), [(6, 6), (6, 9), (10, 10), (20, 20)])
def test_interval_and_test_agree(n, m):
    """The 95% interval leaves 1 out exactly where the exact Mann-Whitney test rejects at 5%."""
    dice = random.Random(n * m)
    disagreements = 0
    for _ in range(300):
        shift = dice.choice([0, 0.02, 0.05])
        a = [dice.lognormvariate(shift, 0.03) for _ in range(n)]
        b = [dice.lognormvariate(0, 0.03) for _ in range(m)]
        r = stats.ratio(a, b)
        p = mannwhitneyu(a, b, method="exact").pvalue
        disagreements += (p < 0.05) != (not r.low <= 1 <= r.high)
    assert disagreements <= 6  # the ratio of medians may pull the interval across 1


def test_one_specimen_or_three_trials_a_side_have_a_wide_interval():
    a, b = [1.04, 1.041, 1.042, 1.039, 1.04, 1.038], [1.0, 1.001, 1.002, 0.999, 1.0, 0.998]
    inside, across = stats.ratio(a, b), stats.specimens_ratio([a], [b])
    assert stats.verdict(inside, inside.p, 6) == "slower"
    assert stats.verdict(across, across.p, 6) == "undecided"
    assert across.specimens
    far = stats.specimens_ratio([[x * 1.3 for x in a]], [b])
    assert stats.verdict(far, far.p, 6) == "slower"
    r = stats.ratio([1.30, 1.31, 1.29], [1.0, 1.01, 0.99])
    assert r.low < 1.29 / 1.01 < 1.31 / 0.99 < r.high


# Figures worked out by hand, or taken from tables of t and of the normal distribution.

A = [1.10, 1.21, 1.32, 1.43, 1.54, 1.65]
B = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]
T_2, T_4 = 4.30265, 2.77645
"""Two-sided 95% of t with 2 and 4 degrees of freedom."""


def test_ratios_by_hand():
    """Of 924 orders 19 have a U of 5 or less and 30 of 6; 2.5% a side is 23: the sixth of 36 quotients."""
    r = stats.ratio(A, B)
    quotients = sorted(x / y for x in A for y in B)
    assert r.value == pytest.approx(1.375 / 1.025)
    assert (r.low, r.high) == pytest.approx((quotients[5], quotients[-6]))
    assert r.p == pytest.approx(2 / 924)
    assert r.decisive[0] < r.low < r.high < r.decisive[1]  # of 99%, for one side scatters ten times as much
    # 5% a side is 46; 43 have a U of 7 or less.
    assert r.narrow == pytest.approx((quotients[7], quotients[-8]))
    assert r.specimens == 0
    # 1.7% and 3.3% a side, which is 15 and 30 of the 924; half as much again in p, which is never above 1.
    r = stats.ratio(A, B, until=True)
    quotients = sorted(x / y for x in A for y in B)
    assert r.p == pytest.approx(3 / 924)
    assert (r.low, r.high) == pytest.approx((quotients[4], quotients[-5]), rel=0.003)  # Welch's is a bit wider
    assert r.narrow == pytest.approx((quotients[6], quotients[-7]), rel=0.003)
    assert stats.p_above(A, B, 0.2, until=True) == pytest.approx(1.5 * stats.p_above(A, B, 0.2))
    assert stats.ratio(B, B, until=True).p == 1.0
    # Logs of 0, 0.02 and of 0.1, 0.16: variances 0.0002 and 0.0018 over two each, so 1.22 degrees of freedom.
    a, b = [math.exp(0.1), math.exp(0.16)], [1.0, math.exp(0.02)]
    r = stats.ratio(a, b)
    error, freedom = math.sqrt(0.001), 0.001**2 / (0.0001**2 + 0.0009**2)
    half = stdtrit(freedom, 0.975) * error
    assert (r.low, r.high) == pytest.approx((math.exp(0.12 - half), math.exp(0.12 + half)))
    half = stdtrit(freedom, 0.95) * error
    assert r.narrow == pytest.approx((math.exp(0.12 - half), math.exp(0.12 + half)))
    assert r.p == pytest.approx(1 / 3)


def test_three_trials_decide_large_ratios_by_an_assumed_spread():
    """Logs of variance 0.0001, and 0.0036 assumed: errors of sqrt(2 x 0.0037 / 3), 0.05; 3.09 of them for 99.8%."""
    ones = [math.exp(0.01 * z) for z in (-1.0, 0.0, 1.0)]
    freedom = 4 * (0.0037 / 0.0001) ** 2
    half = stdtrit(freedom, 0.999) * math.sqrt(2 * 0.0037 / 3)
    for log_ratio, verdict in ((half + 0.0199, "slower"), (half + 0.0197, "few trials"), (-half - 0.0199, "faster")):
        r = stats.ratio([value * math.exp(log_ratio) for value in ones], ones)
        assert r.decisive == pytest.approx((math.exp(log_ratio - half), math.exp(log_ratio + half)))
        assert stats.verdict(r, r.p, 3) == verdict
    # A run stops later than that: its p has to survive Holm's correction over many ratios.
    assert not is_decided_early([1.22 * value for value in ones], ones)
    assert is_decided_early([1.24 * value for value in ones], ones)
    assert not is_decided_early([2 * value for value in ones[:2]], ones)
    assert stats.p_above([1.3 * value for value in ones], ones, 1.05) < 0.002


@pytest.mark.parametrize(("a", "b"), [([1.5], B), (A, [1.5]), ([2.0], [1.5])])
def test_one_value_a_side_has_no_interval(a, b):
    r = stats.ratio(a, b)
    assert (r.low, r.high, r.p, r.narrow, r.decisive, r.specimens) == (None, None, None, None, None, 0)


def test_two_specimens_of_two_trials_each_by_hand():
    """Each side's variance: 0.06**2 / 1 assumed, and pi / 2 of 0.0002 (of logs 0.02 apart) / 2 inside."""
    a, b = [math.exp(0.2), math.exp(0.22)], [1.0, math.exp(0.02)]
    r = stats.specimens_ratio([a], [b])
    within = math.pi / 2 * 0.0002 / 2
    total = 0.06**2 + within
    error = math.sqrt(2 * total)
    freedom = 4 * total**2 / (2 * within**2)  # of a side: total**2 / (within**2 / 1)
    value = (math.exp(0.2) + math.exp(0.22)) / (1 + math.exp(0.02))
    middle = math.log(value)
    half = stdtrit(freedom, 0.975) * error
    assert r.value == pytest.approx(value)
    assert (math.log(r.low), math.log(r.high)) == pytest.approx((middle - half, middle + half))
    assert r.p == pytest.approx(2 * stdtr(freedom, -middle / error))
    half = stdtrit(freedom, 0.95) * error
    assert [math.log(end) for end in r.narrow] == pytest.approx([middle - half, middle + half])
    total = 0.06**2 + within
    half = stdtrit(4 * total**2 / (2 * within**2), 0.995) * math.sqrt(2 * total)
    assert [math.log(end) for end in r.decisive] == pytest.approx([middle - half, middle + half])
    assert r.specimens == 1


def side(*logs):
    """A specimen per number, with two equal trials."""
    return [[math.exp(log)] * 2 for log in logs]


def test_three_specimens_pairs_and_equal_ones_by_hand():
    """Logs of 0.3, 0.31, 0.32 and of 0, 0.01, 0.02: 0.0001 / 3 a side, four degrees of freedom."""
    r = stats.specimens_ratio(side(0.30, 0.31, 0.32), side(0.0, 0.01, 0.02))
    error = math.sqrt(0.0002 / 3)
    assert math.log(r.value) == pytest.approx(0.3)
    assert [math.log(r.low), math.log(r.high)] == pytest.approx([0.3 - T_4 * error, 0.3 + T_4 * error], abs=1e-5)
    assert r.p == pytest.approx(2 * stdtr(4, -0.3 / error))
    # Three are too few to decide by themselves: an assumed 6%, which they do not average away, at 99% of a normal one.
    half = 2.575829 * math.sqrt(2 * 0.06**2)
    assert [math.log(end) for end in r.decisive] == pytest.approx([0.3 - half, 0.3 + half], abs=1e-5)
    assert r.specimens == 3
    # Quotients whose logs are 0.1, 0.12 and 0.14, however far apart the specimens are: 0.0004 / 3, two of freedom.
    theirs = [[1.0], [2.0], [4.0]]
    ours = [[y * math.exp(log)] for (y,), log in zip(theirs, (0.10, 0.12, 0.14), strict=True)]
    r = stats.specimens_ratio(ours, theirs, paired=True)
    half = T_2 * math.sqrt(0.0004 / 3)
    assert math.log(r.value) == pytest.approx(0.12)
    assert [math.log(r.low), math.log(r.high)] == pytest.approx([0.12 - half, 0.12 + half], abs=1e-5)
    assert r.specimens == 3
    half = 2.575829 * 0.06
    assert [math.log(end) for end in r.decisive] == pytest.approx([0.12 - half, 0.12 + half], abs=1e-5)
    same, other = (
        stats.specimens_ratio(side(0, 0, 0), side(0, 0, 0)),
        stats.specimens_ratio(side(1, 1, 1), side(0, 0, 0)),
    )
    assert (same.value, same.low, same.high, same.p) == (1, 1, 1, 1.0)
    assert (other.low, other.high, other.p) == (pytest.approx(math.e), pytest.approx(math.e), 0.0)
    assert stats.verdict(same, 1.0, 6) == "undecided"  # three of a kind may be equal by chance
    assert stats.verdict(stats.specimens_ratio(side(*[0] * 5), side(*[0] * 5)), 1.0, 6) == "same"


def test_specimens_by_hand():
    """Half of 0.06**2 a side, whatever they show, and no trial of theirs differs from another."""
    r = stats.specimens_ratio(side(0.3, 0.36), side(0.0, 0.0))
    half = 1.959964 * math.sqrt(0.06**2 / 2 + 0.06**2 / 2)
    middle = math.log((math.exp(0.3) + math.exp(0.36)) / 2)
    assert math.log(r.value) == pytest.approx(middle)
    assert math.log(r.low) == pytest.approx(0.33 - half, abs=1e-5)
    assert math.log(r.high) == pytest.approx(0.33 + half, abs=1e-5)
    assert r.specimens == 2
    # Logs 0.01 apart: a variance of 0.00025 / 5 a side, eight degrees of freedom, 99% of t.
    r = stats.specimens_ratio(side(*(0.3 + n / 100 for n in range(5))), side(*(n / 100 for n in range(5))))
    half = 3.355387 * math.sqrt(0.0001)
    assert [math.log(end) for end in r.decisive] == pytest.approx([0.3 - half, 0.3 + half], abs=1e-5)
    # Two specimens; one has logs of 0 and 0.02, a variance of 0.0002, the other a single trial.
    r = stats.specimens_ratio([[1.0, math.exp(0.02)], [1.0]], side(0.0, 0.0))
    within = math.pi / 2 * 0.0002 / 2 / 4
    assumed = 0.06**2 / 2
    ours, theirs = assumed + within, assumed
    freedom = (ours + theirs) ** 2 / (ours**2 / (ours**2 / within**2))
    middle = math.log((1 + math.exp(0.02)) / 2) / 2
    half = stdtrit(freedom, 0.975) * math.sqrt(ours + theirs)
    assert math.log(r.low) == pytest.approx(middle - half, rel=1e-6)


@pytest.mark.parametrize("sides", [([[2.0]], [[1.0, 1.1]]), ([[2.0, 2.1]], [[1.0]]), ([[2.0]], [[1.0]])])
def test_a_lone_specimen_with_a_single_trial_gives_a_ratio_alone(sides):
    r = stats.specimens_ratio(*sides)
    assert (r.low, r.high, r.p, r.specimens) == (None, None, None, 0)


def test_means_of_several_models():
    """Two models whose rounds are equal but for a factor: the interval is that of one, and a lone round is left out."""
    rounds, other = dict(enumerate(A)), dict(enumerate(B))
    doubled = [{number: 2 * value for number, value in side.items()} for side in (rounds, other)]
    one, two = stats.ratio(A, B), stats.pooled_ratio([rounds, {**doubled[0], 9: 50.0}], [other, doubled[1]])
    assert two.interval == pytest.approx(one.interval)
    assert stats.pooled_ratio([{0: 1.0}, {1: 2.0}], [{0: 1.0}, {1: 1.0}]).interval is None
    two, eight = (stats.Ratio(value, value / math.exp(half), value * 3, 0.01) for value, half in ((2, 0.3), (8, 0.4)))
    assert stats.mean_of_alike([two, eight]).interval == pytest.approx((4 * math.exp(-0.35), 12))
    assert stats.mean_of_alike([two, stats.Ratio(8.0, None, 9.0, 0.01)]).interval is None


def test_holm_keeps_the_order_stops_at_1_and_leaves_six_a_side_for_a_family_of_twenty_three():
    assert stats.holm([0.5, 0.001, 0.3, 0.02]) == pytest.approx([0.6, 0.004, 0.6, 0.06])
    assert stats.holm([0.9, 0.8]) == [1.0, 1.0]
    assert stats.holm([0.02]) == [0.02]
    a, b = [1 + i / 1000 for i in range(6)], [2 + i / 1000 for i in range(6)]
    r = stats.ratio(a, b)
    assert r.p is not None
    assert stats.verdict(r, stats.holm([r.p] + [1.0] * 22)[0], 6) == "faster"
    assert stats.verdict(r, stats.holm([r.p] + [1.0] * 23)[0], 6) == "undecided"


def judged(value, low, high, p=0.01, trials=6, *, narrow=None, decisive=True, specimens=0):
    ends = (low, high) if low and high else None
    ratio = stats.Ratio(value, low, high, p, narrow, ends if decisive is True else decisive, specimens)
    return stats.verdict(ratio, p, trials)


@pytest.mark.parametrize(("arguments", "options", "expected"), [
    ((1.1, 1.05, 1.2), {}, "slower"), ((0.9, 0.8, 0.95), {}, "faster"),
    ((1.1, 1.0201, 1.2), {}, "slower"), ((1.1, 1.0199, 1.2), {}, "undecided"),
    ((0.9, 0.8, 0.9803), {}, "faster"), ((0.9, 0.8, 0.9805), {}, "undecided"),
    ((1.1, 1.05, 1.2), {"p": 0.0499}, "slower"), ((1.1, 1.05, 1.2), {"p": 0.0501}, "undecided"),
    ((1.1, 1.05, 1.2), {"trials": 5}, "few trials"), ((1.1, 1.05, 1.2), {"trials": 3, "p": 0.0021}, "few trials"),
    ((1.1, 1.05, 1.2), {"trials": 3, "p": 0.0019}, "slower"),
    ((1.1, 1.05, 1.2), {"trials": 3, "p": 0.0019, "decisive": (1.01, 1.3)}, "few trials"),
    ((0.9, 0.8, 0.95), {"trials": 2, "p": 0.0019}, "few trials"), ((1.1, 1.05, 1.2), {"trials": 2}, "few trials"),
    ((1.1, 1.05, 1.2), {"trials": 1}, "one run"), ((1.1, None, 1.2), {}, "one run"),
    ((1.1, 1.05, None), {}, "one run"), ((1.1, 1.05, 1.2), {"p": None}, "one run"),
    ((1.1, 1.05, 1.2), {"trials": 5, "specimens": 5}, "slower"),
    ((1.1, 1.05, 1.2), {"trials": 5, "specimens": 4}, "few trials"),
    ((1.1, 1.05, 1.2), {"specimens": 1, "decisive": (0.9, 1.3)}, "one specimen"),
    ((1.1, 1.05, 1.2), {"specimens": 2, "decisive": (0.9, 1.3)}, "few specimens"),
    ((1.1, 1.01, 1.2), {"specimens": 1, "decisive": (0.9, 1.3)}, "undecided"), ((1.1, 1.02, 1.2), {}, "undecided"),
    ((1.1, 1.05, 1.2), {"specimens": 3, "decisive": (1.03, 1.3)}, "slower"),
    ((1.1, 1.05, 1.2), {"decisive": None}, "undecided"),
    ((1.0, 0.99, 1.01), {"p": 0.9, "narrow": (0.981, 1.019)}, "same"),
    ((1.0, 0.99, 1.01), {"p": 0.9, "narrow": (0.980, 1.019)}, "undecided"),
    ((1.0, 0.99, 1.01), {"p": 0.9, "narrow": (0.981, 1.021)}, "undecided"),
    ((1.0, 0.99, 1.01), {"p": 0.9}, "undecided"),
    ((1.01, 1.005, 1.015), {"p": 0.01, "narrow": (1.006, 1.014)}, "same"),
])  # fmt: skip
def test_where_each_verdict_begins_and_ends(arguments, options, expected):
    assert judged(*arguments, **options) == expected


def test_the_least_number_of_trials():
    """2 / C(2n, n) x family under 5%: 6 up to 23 (924), 7 up to 85 (3432), 8 up to 321 (12870)."""
    a, b = [2 + i / 1000 for i in range(6)], [1 + i / 1000 for i in range(6)]
    families = (1, 23, 24, 85, 86, 321, 322)
    assert [stats.trials_to_decide(a, b, family) for family in families] == [6, 6, 7, 7, 8, 8, 9]
    assert stats.trials_to_decide([2.0], b) == stats.trials_to_decide(a, [2.0]) == 6


def test_how_many_trials_by_hand():
    """Logs of sd 0.05, an effect that is 0.05 beyond 2%: 2 x 0.0025 x pi/3 x (1.96 + 0.8416)**2 / 0.0025."""
    spread = [math.exp(0.05 * z) for z in (-1.0, 0.0, 1.0)]
    far = [value * math.exp(0.0198026 + 0.05) for value in spread]
    assert 2 * math.pi / 3 * (1.959964 + 0.841621) ** 2 == pytest.approx(16.44, abs=0.01)
    assert stats.trials_to_decide(far, spread) == stats.trials_to_decide(spread, far) == 17
    two = [spread[0], spread[2]]  # twice the variance
    assert stats.trials_to_decide([value * math.exp(0.0198026 + 0.05) for value in two], two) == 33
    # With the doubled spread on one side the mean of the variances is 2.5 times as large.
    wide = [math.exp(0.1 * z) * math.exp(0.0198026 + 0.05) for z in (-1.0, 0.0, 1.0)]
    assert stats.trials_to_decide(wide, spread) == 42  # 41.1
    # At 1 itself both ends of an interval of 90% have to stay inside 2%: (1.6449 + 1.2816)**2 / 0.0198**2.
    assert (
        stats.trials_to_decide(spread, spread)
        == math.ceil(2 * 0.0025 * math.pi / 3 * 2.926405**2 / 0.0198026**2)
        == 115
    )
    # At the very edge a tenth of the 2% is what is asked to be told.
    edge = [value * math.exp(0.0198026) for value in spread]
    assert stats.trials_to_decide(edge, spread) == pytest.approx(
        2 * 0.0025 * math.pi / 3 * 2.801585**2 / 0.00198026**2, rel=0.1
    )


def by_hand(a, b):
    """The same from every way to choose the first side, with mean ranks."""
    values = [*a, *b]
    rank = [sum(x < y for x in values) + (sum(x == y for x in values) + 1) / 2 for y in values]
    own = sum(rank[: len(a)])
    sums = [sum(rank[at] for at in chosen) for chosen in combinations(range(len(values)), len(a))]
    return min(1.0, 2 * min(sum(s <= own for s in sums), sum(s >= own for s in sums)) / len(sums))


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6).map(lambda a: [float(x) for x in a]),
    st.lists(st.integers(1, 5), min_size=1, max_size=6).map(lambda b: [float(x) for x in b]),
)
def test_tied_values_have_an_exact_p_too(a, b):
    assert ranks.p_value(a, b) == pytest.approx(by_hand(a, b))


def test_very_many_values_have_the_ranks_of_scipy_and_of_the_normal_limit():
    dice = random.Random(8)
    a, b = ([dice.lognormvariate(0, 1) for _ in range(size)] for size in (50, 50))
    exact = mannwhitneyu(a, b, method="exact").pvalue
    assert ranks.p_value(a, b) == pytest.approx(exact, rel=1e-9)
    b.append(0.123)
    normal = mannwhitneyu(a, b, method="asymptotic").pvalue
    assert ranks.p_value(a, b) == pytest.approx(normal, rel=1e-9)
    # 60 and 60: 1800 less 1.96 times the root of 3600 x 121 / 12, which is 190.5, and a half: 1427.1.
    differences = [float(number) for number in range(3600)]
    assert ranks.shift_interval(differences, 60, 60, 0.95) == (1426.0, 3600.0 - 1427)
    # 2600 and 1: an interval cannot have 95% there either.
    assert ranks.shift_interval(differences[:2600], 2600, 1, 0.9999) is None
    assert ranks.EXACT_UP_TO == 2500


@pytest.mark.parametrize(
    ("n", "m", "confidence", "rank"),
    [
        (3, 3, 0.95, 0), (4, 4, 0.95, 1), (3, 5, 0.95, 1), (6, 6, 0.95, 6), (6, 6, 0.9, 8), (10, 10, 0.95, 24),
        (8, 8, 0.95, 14), (5, 5, 0.99, 1), (4, 4, 0.99, 0),
    ],
)  # fmt: skip
def test_critical_values_of_published_tables(n, m, confidence, rank):
    """Tables of Mann and Whitney's test give the largest U that is significant: one less than the rank."""
    differences = [float(number) for number in range(n * m)]
    found = ranks.shift_interval(differences, n, m, confidence)
    assert found == ((rank - 1.0, n * m - rank) if rank else None)
