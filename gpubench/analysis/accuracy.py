"""Judge accuracies: is one at most half a point worse than another, by Welch's interval? `compare` calls it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpubench.analysis import stats
from gpubench.analysis.verdicts import Comparison
from gpubench.interval import CONFIDENCE

NON_INFERIOR = 0.005
"""Share of accuracy that a side may lose and still count as good as the other: half a point."""


@dataclass(frozen=True)
class Difference:
    """The accuracy of one side minus that of the other."""

    value: float
    low: float
    high: float
    p: float
    """Two-sided p value against a loss of half a point."""

    @property
    def text(self) -> str:
        """The difference in points, with its 95% interval."""
        return f"{self.value * 100:+.2f} points ({self.low * 100:+.2f} to {self.high * 100:+.2f})"


def accuracies_judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with verdicts, from p values adjusted over all of them. Earlier verdicts stay.

    The values of the groups are inverse accuracies. The ratios that are returned are of the accuracies themselves.
    """
    differences = [_difference(c) for c in comparisons]
    pairs = list(zip(comparisons, differences, strict=True))
    family = {at: d.p for at, (c, d) in enumerate(pairs) if d is not None and not c.verdict}
    adjusted = dict(zip(family, stats.holm(list(family.values())), strict=True))
    return [_judge(c, d, adjusted.get(at, 1.0)) for at, (c, d) in enumerate(pairs)]


def _difference(c: Comparison) -> Difference | None:
    """Return the difference of the mean accuracies, or None where a side has one value."""
    accuracies = [[1 / value for value in group.values] for group in (c.subject, c.other)]
    if min(map(len, accuracies)) < 2:
        return None
    difference, error, freedom = stats.welch(*map(stats.side_of, accuracies))
    beyond = difference + NON_INFERIOR
    if not error:
        return Difference(difference, difference, difference, 0.0 if beyond else 1.0)
    half = stats.t_quantile(freedom, (1 + CONFIDENCE) / 2) * error
    return Difference(difference, difference - half, difference + half, stats.t_tails(freedom, beyond / error))


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
        return "undecided"
    if difference.value > -NON_INFERIOR:
        return "non-inferior"
    if 0 < specimens < stats.DECIDING_SPECIMENS:  # other specimens of these cards may differ
        return "one specimen" if specimens == 1 else "few specimens"
    return "inferior"
