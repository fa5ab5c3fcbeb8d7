"""Decides when a run with `--until` ends: every case's interval is narrow enough, or the budget is spent."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from gpubench.interval import drifts, median_interval


def half_width(seconds: Sequence[float]) -> float:
    """Return half of the median's interval, as a share of the median; infinite if trials are too few or drift.

    The interval is corrected for optional stopping.
    """
    interval = None if drifts(seconds) else median_interval(seconds, until=True)
    return (interval[1] - interval[0]) / 2 / median(seconds) if interval else math.inf


def why_stop(
    seconds_by_case: Mapping[str, Sequence[float]],
    target: float,
    budget_seconds: float | None = None,
    needed_seconds: float = 0.0,
) -> str | None:
    """Return why to stop, with the cases that reached the target, or None if one more round is needed.

    `target` is the half width of `--until`, `needed_seconds` the time of the run after one more round. Cases without
    any time do not count.
    """
    widths = widths_of(seconds_by_case)
    if not widths:
        return "no case has a time"
    if max(widths.values()) <= target:
        return count_narrow(widths, target)
    if budget_seconds is not None and needed_seconds > budget_seconds:
        return f"another round would exceed the budget of {budget_seconds:.0f} s; {count_narrow(widths, target)}"
    return None


def widths_of(seconds_by_case: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the half widths of the cases that have a time."""
    return {case: half_width(seconds) for case, seconds in seconds_by_case.items() if seconds}


def count_narrow(widths: Mapping[str, float], target: float) -> str:
    """Return in words how many intervals are narrow enough, and which are not."""
    wide = {case: width for case, width in widths.items() if width > target}
    text = f"{len(widths) - len(wide)} of {len(widths)} intervals are within {100 * target:.3g}%"
    if not wide:
        return text
    listed = sorted(wide.items(), key=lambda pair: -pair[1])
    return f"{text}, not yet " + ", ".join(f"{case} ({_share(width)})" for case, width in listed)


def _share(width: float) -> str:
    return f"{100 * width:.2g}%" if width < math.inf else "too few trials, or they drift"
