"""`compare --fail-on-slower`: the exit code (0, 1, 3 or 4) and its reasons. Without a comparison it is never 0."""

from collections.abc import Sequence
from typing import get_args

from gpubench.analysis import stats, verdicts
from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import Group
from gpubench.analysis.matching import axis_value, bucket_of
from gpubench.analysis.metrics import SECONDS, Metric
from gpubench.analysis.verdicts import Comparison, ran_together
from gpubench.interval import CONFIDENCE

FASTER_THAN_LIMIT, SLOWER, UNDECIDED, SOME_FAILED = 0, 1, 3, 4
JUDGED = frozenset(get_args(stats.Verdict)) - {"one run", "few trials"}
"""Verdicts, and reasons for no verdict, that come from a test on enough trials of comparable cases."""


def gate(compared: Compared, limit: float) -> tuple[int, list[str]]:
    """Return the exit code and the reasons for it. `limit` is a share: 0.05 for 5%.

    The first of these that applies:

    1: an interval is entirely above 1 + limit, and a test confirms this. The test uses Holm's correction over all
       judged ratios, and the spread between specimens or sessions that decides verdicts.
    4: trials failed, lack the metric or missed the goal, or a file has a problem.
    3: an interval reaches above 1 + limit, a ratio cannot be judged, a case of the baseline has no counterpart, or
       nothing is compared.
    0: every interval is below 1 + limit.
    """
    axis, base = compared.baseline or ("", "")
    comparisons = [c for c in compared.comparisons if c.axis == axis]
    judged = [c for c in comparisons if c.verdict in JUDGED and c.ratio.low]
    sure = surely_above([verdicts.p_above(c, 1 + limit) for c in judged], [c.ratio.low or 0 for c in judged], 1 + limit)
    slower = [c for c, is_sure in zip(judged, sure, strict=True) if is_sure]
    below = [c for c in judged if c.ratio.high and c.ratio.high < 1 + limit]
    undecided = [c for c in comparisons if c not in slower and c not in below]
    used = {bucket_of(c.other, axis) for c in comparisons}
    groups = [group for workload in compared.workloads for group in workload.groups] if comparisons else []
    alone = [group for group in groups if axis_value(group, axis) == base and bucket_of(group, axis) not in used]
    word = f"{100 * limit:.3g}% {compared.metric.words[1]} than {base}"
    lines = [f"{_named(c, compared.metric)}: more than {word}" for c in slower]
    lines += [
        f"{_named(c, compared.metric)}: undecided whether it is {word}{f' ({c.verdict})' * c.is_unlike}"
        for c in undecided
    ]
    if any(not c.is_unlike and not ran_together(axis, c.subject, c.other) for c in undecided):
        lines.append(
            "two sessions or cards may differ by 6% or more by chance: on one card, alternate the runs (--session NAME)"
        )
    lines += [f"{group.suite} {_case(group, axis)}: {base} has no counterpart" for group in alone]
    lacking = f" or have no {compared.metric.name}" * (compared.metric is not SECONDS)
    lines += [f"{compared.failed} trial(s) failed{lacking}"] if compared.failed else []
    lines += [f"{compared.missed} trial(s) missed the goal"] if compared.missed else []
    lines += [f"a file has a problem: {problem}" for problem in compared.loaded.problems]
    if not comparisons:
        lines.append(f"nothing is compared with {base}")
    if slower:
        return SLOWER, lines
    if compared.failed or compared.missed or compared.loaded.problems:
        return SOME_FAILED, lines
    if undecided or alone or not comparisons:
        return UNDECIDED, lines
    return FASTER_THAN_LIMIT, [f"no case is {word}: all {len(comparisons)} intervals end below +{100 * limit:.3g}%"]


def surely_above(p_values: Sequence[float], lows: Sequence[float], limit: float) -> list[bool]:
    """Return for each ratio whether it is surely above the limit, from its p value and the low end of its interval."""
    return [p < 1 - CONFIDENCE and low > limit for p, low in zip(stats.holm(p_values), lows, strict=True)]


def _named(c: Comparison, metric: Metric) -> str:
    """Return the case, and the share by which it is better or worse; for a rate, the share of the time per sample."""
    low, high = c.ratio.low, c.ratio.high
    interval = f" ({low - 1:+.1%} to {high - 1:+.1%})" if low and high else ""
    words = ("less time", "more time") if metric.words[1] == "slower" else metric.words
    change = f"{abs(c.ratio.value - 1):.1%} {words[c.ratio.value > 1]}{interval}"
    return f"{_case(c.subject, c.axis)}, {c.subject_name}, {change}"


def _case(group: Group, axis: str) -> str:
    """Return the model and the precision, with the card unless cards are compared."""
    return f"{group.model} {group.precision}{f' on {group.label}' * (axis != 'card')}"
