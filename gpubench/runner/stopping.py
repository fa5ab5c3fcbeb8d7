"""When a run with `--until` ends: every case's interval is narrow enough, or the budget is spent."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from gpubench.interval import drifts, median_interval


def half_width(seconds: Sequence[float]) -> float:
    """Half of the interval of the median, as a share of it; infinite where there are too few trials, or they drift.

    The interval is corrected for the optional stopping that it serves.
    """
    interval = None if drifts(seconds) else median_interval(seconds, until=True)
    return (interval[1] - interval[0]) / 2 / median(seconds) if interval else math.inf


def why_stop(
    seconds_by_case: Mapping[str, Sequence[float]],
    target: float,
    budget_seconds: float | None = None,
    needed_seconds: float = 0.0,
) -> str | None:
    """Why no further round is needed and which cases got there, or None where one more round is needed.

    `target` is the half width asked for, `needed_seconds` what the run would have taken at the end of that round.
    Cases without a single time do not count.
    """
    widths = widths_of(seconds_by_case)
    if not widths:
        return "no case gave a single time"
    if max(widths.values()) <= target:
        return f"{standing(widths, target)}"
    if budget_seconds is not None and needed_seconds > budget_seconds:
        return f"the budget of {budget_seconds:.0f} s has no room for another; {standing(widths, target)}"
    return None


def widths_of(seconds_by_case: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Half widths of the cases that have a time."""
    return {case: half_width(seconds) for case, seconds in seconds_by_case.items() if seconds}


def standing(widths: Mapping[str, float], target: float) -> str:
    """How many intervals are tight enough, and which are not."""
    wide = {case: width for case, width in widths.items() if width > target}
    text = f"{len(widths) - len(wide)} of {len(widths)} intervals are within {100 * target:.3g}%"
    if not wide:
        return text
    listed = sorted(wide.items(), key=lambda pair: -pair[1])
    return f"{text}, not yet " + ", ".join(f"{case} ({_share(width)})" for case, width in listed)


def _share(width: float) -> str:
    return f"{100 * width:.2g}%" if width < math.inf else "too few trials, or they drift"
