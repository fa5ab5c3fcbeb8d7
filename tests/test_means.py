"""Geometric means of ratios: over which cases, with which interval, and when there is none."""

import math

import pytest
from rows import group

from gpubench.analysis.geomeans import Mean, means_of
from gpubench.analysis.stats import Ratio
from gpubench.analysis.verdicts import Comparison

OURS, THEIRS, THIRD = "RTX 3090", "GTX 1080", "H 100"


def case(model, ratio, subject=OURS, axis="card", **changes):
    """A comparison of `subject` with THEIRS on a model, and its groups."""
    groups = [group(model=model, card=card, **changes) for card in (subject, THEIRS)]
    return Comparison(axis, *groups, *(each.label for each in groups), ratio)


def means(*comparisons, more=()):
    groups = [each for c in comparisons for each in (c.subject, c.other)]
    return means_of(comparisons, [*groups, *more])


def test_two_cases_of_two_and_eight():
    one = case("a", Ratio(2.0, 2 / math.exp(0.3), 2 * math.exp(0.5), 0.01))
    two = case("b", Ratio(8.0, 8 / math.exp(0.4), 8 * math.exp(1.2), 0.01))
    (mean,) = means(one, two)
    assert (mean.subject_name, mean.other_name) == ("3090", "1080")
    assert (mean.precision, mean.batch_policy, mean.common, mean.all_cases) == ("fp32", "fixed", 2, 2)
    assert mean.value == pytest.approx(4)
    # Of one session: half widths 0.3 and 0.4 are 0.5 together, 0.5 and 1.2 are 1.3; the mean has half of each.
    assert mean.interval == pytest.approx((4 * math.exp(-0.25), 4 * math.exp(0.65)))


def test_specimens_err_alike_so_their_half_widths_add_up():
    one = case("a", Ratio(2.0, 2 / math.exp(0.3), 2 * math.exp(0.5), 0.01, specimens=3))
    two = case("b", Ratio(8.0, 8 / math.exp(0.4), 8 * math.exp(1.2), 0.01))
    (mean,) = means(one, two)
    assert mean.interval == pytest.approx((4 * math.exp(-0.35), 4 * math.exp(0.85)))


@pytest.mark.parametrize("lacking", [Ratio(8.0, None, 9.0, 0.01), Ratio(8.0, 7.0, None, 0.01)])
def test_without_the_interval_of_one_ratio_there_is_none(lacking):
    (mean,) = means(case("a", Ratio(2.0, 1.5, 2.5, 0.01)), case("b", lacking))
    assert (mean.value, mean.interval) == (pytest.approx(4), None)


def test_one_case_alone_needs_no_mean():
    assert means(case("a", Ratio(2.0, 1.5, 2.5, 0.01))) == []


def test_a_case_that_only_one_side_has_counts_among_all_but_not_in_the_mean():
    pair = case("a", Ratio(2.0, 1.5, 3.0, 0.01)), case("b", Ratio(8.0, 6.0, 12.0, 0.01))
    (half,) = means(*pair, more=[group(model=model, card=THEIRS) for model in "cd"])
    assert (half.value, half.common, half.all_cases) == (pytest.approx(4), 2, 4)
    (less,) = means(*pair, more=[group(model=model, card=OURS) for model in "cde"])
    assert (less.value, less.interval, less.common, less.all_cases) == (None, None, 2, 5)


def test_a_card_that_nothing_is_compared_with_adds_no_case():
    pair = case("a", Ratio(2.0, 1.5, 3.0, 0.01)), case("b", Ratio(8.0, 6.0, 12.0, 0.01))
    (mean,) = means(*pair, more=[group(model=model, card=THIRD) for model in "cdefg"])
    assert (mean.common, mean.all_cases) == (2, 2)


def test_the_cases_are_those_that_every_card_has():
    ours = [case(model, Ratio(value, None, None, None)) for model, value in (("a", 2.0), ("b", 8.0), ("c", 99.0))]
    third = [case(model, Ratio(value, None, None, None), THIRD) for model, value in (("a", 3.0), ("b", 27.0))]
    assert [(mean.subject_name, mean.value, mean.common, mean.all_cases) for mean in means(*ours, *third)] == [
        ("3090", pytest.approx(4), 2, 3),
        ("100", pytest.approx(9), 2, 3),
    ]


def test_another_precision_or_batch_policy_has_a_mean_of_its_own_and_another_axis_none():
    found = means(
        *(case(model, Ratio(2.0, None, None, None)) for model in "ab"),
        *(case(model, Ratio(3.0, None, None, None), precision="fp16") for model in "ab"),
        *(case(model, Ratio(5.0, None, None, None), batch_policy="max") for model in "ab"),
        *(case(model, Ratio(7.0, None, None, None), axis="precision") for model in "ab"),
    )
    assert [(mean.precision, mean.batch_policy, mean.value, mean.all_cases) for mean in found] == [
        ("fp32", "fixed", pytest.approx(2), 2),
        ("fp16", "fixed", pytest.approx(3), 2),
        ("fp32", "max", pytest.approx(5), 2),
    ]


def test_the_mean_the_other_way_round():
    mean = Mean("a", "b", "fp32", "fixed", 4.0, 2, 3, (2.0, 8.0))
    assert (mean.inverse.value, mean.inverse.interval) == (0.25, (0.125, 0.5))
    none = Mean("a", "b", "fp32", "fixed", None, 1, 3)
    assert (none.inverse.value, none.inverse.interval) == (None, None)
