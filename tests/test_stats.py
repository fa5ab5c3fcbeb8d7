"""Intervals, tests and verdicts against known values and against simulation."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from gpubench.comparing import stats

TIMES = st.lists(st.floats(0.1, 1e4), min_size=2, max_size=12)


def test_the_interval_of_a_median_needs_six_values():
    assert stats.median_interval([1, 2, 3, 4, 5]) is None
    assert stats.median_interval([6, 1, 5, 2, 4, 3]) == (1, 6)
    assert stats.median_interval(list(range(1, 10))) == (2, 8)
    assert stats.median_interval(list(range(1, 21))) == (6, 15)


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


def test_coverage_and_false_verdicts_in_a_small_simulation():
    dice = random.Random(3)
    covered = verdicts = 0
    for _ in range(400):
        a, b = ([dice.lognormvariate(0, 0.02) for _ in range(6)] for _ in "ab")
        r = stats.ratio(a, b)
        covered += r.low <= 1 <= r.high
        verdicts += stats.verdict(r, r.p, 6) in {"faster", "slower"}
    assert covered >= 0.93 * 400
    assert verdicts <= 0.05 * 400


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([]) == []


def test_six_a_side_survive_a_family_of_twenty_three():
    a, b = [1 + i / 1000 for i in range(6)], [2 + i / 1000 for i in range(6)]
    r = stats.ratio(a, b)
    assert r.p is not None
    assert stats.verdict(r, stats.holm([r.p] + [1.0] * 22)[0], 6) == "faster"
    assert stats.verdict(r, stats.holm([r.p] + [1.0] * 23)[0], 6) == "unsure"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([10.0] * 3 + [10.1] * 3, [5.0] * 3 + [5.1] * 3, "slower"),
        ([5.0] * 3 + [5.1] * 3, [10.0] * 3 + [10.1] * 3, "faster"),
        ([10.0, 10.01, 10.02, 10.0, 10.03, 10.01], [10.01, 10.02, 10.0, 10.02, 10.01, 10.0], "same"),
        ([10.0, 11, 9, 12, 8, 10], [10.1, 9, 12, 11, 8, 9.5], "unsure"),
        ([10.1, 10.11, 10.12, 10.1, 10.11, 10.12], [10.0, 10.01, 10.02, 10.0, 10.01, 10.02], "same"),
        ([10.0], [20.0], "one trial"),
        ([10.0, 10.1], [20.0, 20.1], "few trials"),
    ],
)
def test_verdicts(a, b, expected):
    r = stats.ratio(a, b)
    assert stats.verdict(r, r.p, min(len(a), len(b))) == expected


def test_one_specimen_each_needs_more_than_a_few_percent():
    a, b = [1.04, 1.041, 1.042, 1.039, 1.04, 1.038], [1.0, 1.001, 1.002, 0.999, 1.0, 0.998]
    inside, across = stats.ratio(a, b), stats.ratio(a, b, same_session=False)
    assert stats.verdict(inside, inside.p, 6) == "slower"
    assert stats.verdict(across, across.p, 6) == "unsure"
    assert across.specimens
    far = stats.ratio([x * 1.3 for x in a], b, same_session=False)
    assert stats.verdict(far, far.p, 6) == "slower"


def test_trials_to_decide_grows_with_noise_and_shrinks_with_effect():
    quiet = stats.trials_to_decide([1, 1.01, 0.99] * 3, [1.05, 1.06, 1.04] * 3)
    noisy = stats.trials_to_decide([1, 1.1, 0.9] * 3, [1.05, 1.15, 0.95] * 3)
    assert 6 <= quiet < noisy


def test_geometric_mean():
    assert stats.geometric_mean([2, 8]) == pytest.approx(4)


def test_three_a_side_are_too_few_for_ranks_and_get_a_wide_interval():
    r = stats.ratio([1.30, 1.31, 1.29], [1.0, 1.01, 0.99])
    assert r.low < 1.29 / 1.01 < 1.31 / 0.99 < r.high


def test_coverage_at_two_and_four_a_side():
    dice = random.Random(5)
    for n in (2, 4):
        covered = 0
        for _ in range(400):
            a, b = ([dice.lognormvariate(0, 0.02) for _ in range(n)] for _ in "ab")
            r = stats.ratio(a, b)
            covered += r.low <= 1 <= r.high
        assert covered >= 0.93 * 400


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 5), (6, 6), (8, 11)])
def test_p_is_scipys_exact_one(n, m):
    dice = random.Random(n)
    for shift in (0, 0.5, 5):
        a = [1 + dice.random() + shift for _ in range(n)]
        b = [1 + dice.random() for _ in range(m)]
        assert stats.ratio(a, b).p == pytest.approx(mannwhitneyu(a, b, method="exact").pvalue)


def test_a_large_family_needs_more_trials():
    a, b = [1 + i / 1000 for i in range(6)], [2 + i / 1000 for i in range(6)]
    assert stats.trials_to_decide(a, b) == 6
    assert stats.trials_to_decide(a, b, family=24) == 7
