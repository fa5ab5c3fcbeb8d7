"""The interval of a geometric mean of ratios."""

import math

import pytest

from gpubench.analysis.geomeans import interval_of
from gpubench.analysis.stats import Ratio

ONE, TWO = (
    Ratio(2.0, 2 / math.exp(0.3), 2 * math.exp(0.5), 0.01),
    Ratio(8.0, 8 / math.exp(0.4), 8 * math.exp(1.2), 0.01),
)
ALIKE = Ratio(2.0, 2 / math.exp(0.3), 2 * math.exp(0.5), 0.01, specimens=3)


@pytest.mark.parametrize(("one", "down", "up"), [(ONE, 0.25, 0.65), (ALIKE, 0.35, 0.85)])
def test_half_widths_of_one_session_add_in_quadrature_and_those_of_specimens_add_up(one, down, up):
    """Half widths of 0.3 and 0.4 make 0.5, of 0.5 and 1.2 make 1.3; the mean has half of each."""
    assert interval_of([one, TWO]) == pytest.approx((4 * math.exp(-down), 4 * math.exp(up)))


@pytest.mark.parametrize("lacking", [Ratio(8.0, None, 9.0, 0.01), Ratio(8.0, 7.0, None, 0.01)])
def test_without_the_interval_of_one_ratio_there_is_none(lacking):
    assert interval_of([ONE, lacking]) is None
