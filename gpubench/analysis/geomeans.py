"""The interval of a geometric mean of ratios. `studies.pairs` calls it."""

import math
from collections.abc import Sequence

from gpubench.analysis import stats


def interval_of(ratios: Sequence[stats.Ratio]) -> tuple[float, float] | None:
    """Return the 95% interval of the geometric mean of ratios, or None where a ratio has none.

    Cases of one session have independent errors, so the squares of half widths are added. Two specimens may differ
    by the same factor in all cases, so there the half widths are added.
    """
    ends = [(r.value, r.low, r.high) for r in ratios if r.low is not None and r.high is not None]
    if not ends or len(ends) < len(ratios):
        return None
    down = [math.log(value / low) for value, low, _ in ends if low]
    up = [math.log(high / value) for value, _, high in ends if high]
    add = sum if any(r.specimens for r in ratios) else lambda halves: math.hypot(*halves)
    value = stats.geometric_mean([r.value for r in ratios])
    return value * math.exp(-add(down) / len(ends)), value * math.exp(add(up) / len(ends))
