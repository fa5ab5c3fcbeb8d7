"""When a run of `--until` has seen enough: every case's interval is tight, or the budget is spent."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from gpubench.interval import median_interval


def half_width(seconds: Sequence[float]) -> float:
    """Half of the interval of the median, as a share of it; infinite where there are too few trials for one.

    The interval is corrected for the optional stopping that it serves.
    """
    interval = median_interval(seconds, until=True)
    return (interval[1] - interval[0]) / 2 / median(seconds) if interval else math.inf


def widest(seconds_by_case: Mapping[str, Sequence[float]]) -> tuple[str, float]:
    """The case known least and its half width. Cases without a single time do not count.

    Raises ValueError where no case has one.
    """
    widths = {case: half_width(seconds) for case, seconds in seconds_by_case.items() if seconds}
    return max(widths.items(), key=lambda pair: pair[1])


def why_stop(
    seconds_by_case: Mapping[str, Sequence[float]],
    target: float,
    budget_seconds: float | None = None,
    needed_seconds: float = 0.0,
) -> str | None:
    """Why no further round is needed, or None where one is.

    `target` is the half width asked for, `needed_seconds` what the run would have taken at the end of that round.
    """
    if not any(seconds_by_case.values()):
        return "no case gave a single time"
    case, width = widest(seconds_by_case)
    known = f"{case} is known to {width:.2%}" if width < math.inf else f"{case} has too few trials for an interval"
    if width <= target:
        return f"every interval is tight enough; {known}"
    if budget_seconds is not None and needed_seconds > budget_seconds:
        return f"the budget is spent; {known}, and the same command goes on from here"
    return None
