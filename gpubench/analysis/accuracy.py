"""Is an accuracy at most half a point worse than another? By Welch's interval of the difference of means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from gpubench.analysis import stats
from gpubench.analysis.verdicts import Comparison
from gpubench.interval import CONFIDENCE

NON_INFERIOR = 0.005
"""Half a point of accuracy: what a precision may lose and still count as good as the other."""


@dataclass(frozen=True)
class Difference:
    """Accuracy of one side less that of the other."""

    value: float
    low: float
    high: float
    p: float
    """Two-sided, of the difference from a loss of half a point."""

    @property
    def text(self) -> str:
        """In points, with its 95% interval."""
        return f"{self.value * 100:+.2f} points ({self.low * 100:+.2f} to {self.high * 100:+.2f})"


def accuracies_judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Verdicts, with p values adjusted over all of these; what may not be judged in seconds may not here.

    Cells hold the inverse of accuracies; the ratios that come back are of the accuracies themselves.
    """
    differences = [_difference(c) for c in comparisons]
    family = [
        (n, d.p)
        for n, (c, d) in enumerate(zip(comparisons, differences, strict=True))
        if d is not None and not c.verdict
    ]
    adjusted = dict(zip([n for n, _ in family], stats.holm([p for _, p in family]), strict=True))
    return [_judge(c, d, adjusted.get(n, 1.0)) for n, (c, d) in enumerate(zip(comparisons, differences, strict=True))]


def _difference(c: Comparison) -> Difference | None:
    """None where a side has one value."""
    from scipy.special import stdtr, stdtrit

    sides = [[1 / value for value in cell.values] for cell in (c.subject, c.other)]
    if min(map(len, sides)) < 2:
        return None
    difference = fmean(sides[0]) - fmean(sides[1])
    beyond = difference + NON_INFERIOR
    shares = [variance(side) / len(side) for side in sides]
    spread = math.sqrt(sum(shares))
    if not spread:
        return Difference(difference, difference, difference, 0.0 if beyond else 1.0)
    freedom = sum(shares) ** 2 / sum(s**2 / (len(side) - 1) for s, side in zip(shares, sides, strict=True))
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * spread
    p = 2 * float(stdtr(freedom, -abs(beyond) / spread))
    return Difference(difference, difference - half, difference + half, p)


def _judge(c: Comparison, difference: Difference | None, adjusted_p: float) -> Comparison:
    ratio = replace(c.ratio.inverse, p=difference.p if difference else None)
    note = difference.text if difference else f"{(1 / c.subject.median - 1 / c.other.median) * 100:+.2f} points"
    verdict = c.verdict or _verdict(c, difference, adjusted_p)
    return replace(c, ratio=ratio, verdict=verdict, notes=(*c.notes, note))


def _verdict(c: Comparison, difference: Difference | None, adjusted_p: float) -> str:
    specimens = c.ratio.specimens
    if difference is None:
        return "one run"
    if min(c.subject.trials, c.other.trials) < stats.DECIDING_TRIALS and specimens < stats.DECIDING_SPECIMENS:
        return "few trials"
    if adjusted_p >= 1 - CONFIDENCE:
        return "unsure"
    if difference.value > -NON_INFERIOR:
        return "non-inferior"
    if 0 < specimens < stats.DECIDING_SPECIMENS:  # these are worse, their cards need not be
        return "one specimen" if specimens == 1 else "few specimens"
    return "inferior"
