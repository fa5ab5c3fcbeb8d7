"""Finds step times that changed during the timed laps: a drift between their halves, or a trend. Used by runs.py."""

import math
from collections.abc import Sequence
from statistics import correlation, fmean, linear_regression

from gpubench.suite.trial import Lap

DRIFT = 0.2
"""Timed laps are unsteady if their halves differ by more than this share, even after a flat warm-up."""
HEATING_SECONDS, TREND = 300.0, 0.03
"""Seconds that a trend is assumed to last (a cooler heats up), and the smallest change of step times to report."""
TREND_LAPS, TREND_Z = 8, 3.29
"""Fewest laps for a trend, and its least z value (higher for few laps). False alarms: 0.1% of steady samples with
independent laps, 2 to 8% if neighbouring laps correlate by 0.6."""


def _pace(laps: Sequence[Lap]) -> float:
    """Return the seconds per sample."""
    return sum(lap.seconds for lap in laps) / max(1, sum(lap.samples for lap in laps))


def without_slow_start(laps: Sequence[Lap]) -> Sequence[Lap]:
    """Return the timed laps of a stage without its first epoch if the later ones are faster.

    Files that are not cached yet make the first epoch slow. This happens once in a run, so it is no drift.
    """
    later = [lap for lap in laps if lap.epoch > laps[0].epoch]
    return later if later and _pace(later) < _pace([lap for lap in laps if lap.epoch == laps[0].epoch]) else laps


def drift(laps: Sequence[Lap]) -> str:
    """Return why these timed laps are not a steady state, or an empty string."""
    half = len(laps) // 2
    if half < 2:
        return ""
    early, late = _pace(laps[:half]), _pace(laps[-half:])
    if early <= 0 or abs(late / early - 1) <= DRIFT:
        return ""
    return f"unsteady: step times changed by {late / early - 1:+.0%} in the second half of the timed laps"


def trend(laps: Sequence[Lap], most_seconds: float) -> float:
    """Return the relative change of step times over `most_seconds`, at most HEATING_SECONDS; 0 without a trend."""
    times = [lap.started + lap.seconds / 2 for lap in laps]
    paces = [_pace([lap]) for lap in laps]
    if len(laps) < TREND_LAPS or min(paces) == max(paces) or any(lap.earlier for lap in laps):
        return 0.0
    # Fisher's transformation of a correlation: infinite for a perfect one, and scattered more widely with few laps.
    z = math.atanh(min(abs(correlation(times, paces)), 1 - 1e-9)) * math.sqrt(len(laps) - 3)
    if z < TREND_Z * (1 + 2 / len(laps)):
        return 0.0
    slope: float = linear_regression(times, paces).slope / fmean(paces)
    return slope * min(most_seconds, HEATING_SECONDS)
