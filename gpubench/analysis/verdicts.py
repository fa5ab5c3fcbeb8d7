"""Compares two groups: the ratio, caveats and the verdict, on times or on accuracies. `compare` calls it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from statistics import fmean

from gpubench import welch
from gpubench.analysis import stats
from gpubench.analysis.groups import CONFLICT, Group, texts_of
from gpubench.analysis.matching import FOLLOWS, axis_value, other_stack
from gpubench.analysis.specimens import unit_of, units_of
from gpubench.interval import CONFIDENCE
from gpubench.rows.alike import AS_COMPARED

COLUMN_OF = {form: column for column, form in AS_COMPARED.items()}
"""The row's column, by the name of the form in which it is compared."""
CODE_AXES = {"gpubench", "commit", "suite_version", "suite_digest"}
"""Axes that compare versions of the code that is timed."""
OUT_OF_TURN = "trials did not take turns: judged as two sessions"
NON_INFERIOR = 0.5
"""A side whose accuracy is lower by less than this, in percentage points, counts as equally good."""
MOST_TRIALS = 50
"""Largest number of trials that is advised. If more are needed, the advice is `over 50`."""


@dataclass(frozen=True)
class Comparison:
    """One group compared with another: the ratio of their values, notes and a verdict."""

    axis: str
    subject: Group
    other: Group
    subject_name: str
    other_name: str
    ratio: stats.Ratio
    """Subject over other."""
    verdict: str = ""
    notes: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    """Columns of the stack that differ although they are not compared."""
    is_unlike: bool = False
    """Whether there is no verdict because the stack or the timed code differs."""
    choices: int = 2
    """Number of values from which the baseline was chosen by its result. More than 2 make p larger (`_adjusted`)."""


def comparison(axis: str, subject: Group, other: Group) -> Comparison:
    """Return the comparison of a pair, not yet judged. If no verdict is possible, its `verdict` is the reason."""
    ratio = _ratio(axis, subject, other)
    notes = [_specimens_note(axis, subject, other)] if ratio.specimens else []
    notes += [OUT_OF_TURN] if out_of_turn(subject, other) else []
    stack = other_stack(axis, subject, other)
    differing = [column for form in stack if (column := COLUMN_OF.get(form, form)) != axis]
    if differing:
        notes.append(f"differs in {', '.join(differing)}")
    notes += [f"another {c}" for c in ("cpu", "driver") if str(subject.row[c]) != str(other.row[c]) and c != axis]
    layouts = [str(side.row["memory_format"]) for side in (subject, other)]
    if all(layouts) and len(set(layouts)) > 1 and axis != "memory_format":
        notes.append(f"layout {' / '.join(layouts)}")
    edited = subject.row["suite_digest"] != other.row["suite_digest"] and axis not in CODE_AXES
    if edited:
        notes.append("the timed code differs")
    times = subject.batch_size / other.batch_size if other.batch_size else math.nan
    if axis == "precision" and subject.batch_policy != "fixed" and times > 0:
        notes.append("same batch" if times == 1 else f"batch {times:.2g} x")
    verdict = ""
    another_stack = bool(set(stack) - FOLLOWS.get(axis, set()))
    if another_stack:
        verdict = f"{axis} + stack"
    elif edited:
        verdict = f"{axis} + code"
    elif subject.contradicting or other.contradicting:
        verdict = CONFLICT
    elif subject.mode != other.mode and subject.measured != other.measured:
        verdict, notes = "not judged", [*notes, f"{subject.measured} / {other.measured}"]
    names = axis_value(subject, axis), axis_value(other, axis)
    is_unlike = another_stack or edited
    return Comparison(axis, subject, other, *names, ratio, verdict, tuple(notes), tuple(differing), is_unlike)


def plain_comparison(subject: Group, plain: Group) -> Comparison:
    """Return the comparison of a change with `plain` of the same session, whatever else differs."""
    ratio = _ratio("model", subject, plain)
    verdict = CONFLICT if subject.contradicting or plain.contradicting else ""
    notes = (OUT_OF_TURN,) if out_of_turn(subject, plain) else ()
    return Comparison("model", subject, plain, subject.model, plain.model, ratio, verdict, notes)


def groups_in(comparisons: Sequence[Comparison]) -> list[Group]:
    """Return both sides of each comparison."""
    return [group for c in comparisons for group in (c.subject, c.other)]


def pooled(comparisons: Sequence[Comparison], *, by_loss: bool) -> stats.Ratio:
    """Return the geometric mean of the ratios of several models, subject over other, with its 95% interval.

    With `by_loss` the comparisons have differences in points, whose errors are independent: their arithmetic mean.
    """
    if by_loss:
        middle, ends = fmean(c.ratio.value for c in comparisons), [c.ratio.interval for c in comparisons]
        half = math.hypot(*(high - low for low, high in filter(None, ends))) / 2 / len(comparisons)
        return stats.Ratio(middle, middle - half, middle + half) if all(ends) else stats.Ratio(middle)
    together = all(_in_one_session(c.axis, c.subject, c.other) for c in comparisons)
    if len(comparisons) > 1 and together and len({c.subject.session for c in comparisons}) == 1:
        sides = [c.subject.rounds for c in comparisons], [c.other.rounds for c in comparisons]
        return stats.pooled_ratio(*sides, until=any(group.adaptive for group in groups_in(comparisons)))
    return stats.mean_of_alike([c.ratio for c in comparisons])


def p_above(c: Comparison, limit: float) -> float:
    """Return the one-sided p value of "the ratio of this comparison is at most `limit`"."""
    if _in_one_session(c.axis, c.subject, c.other):
        return stats.p_above(c.subject.values, c.other.values, limit, until=c.subject.adaptive or c.other.adaptive)
    subject_values, other_values, paired = _specimens(c.axis, c.subject, c.other)
    return stats.specimens_p_above(subject_values, other_values, limit, paired=paired)


def ran_together(axis: str, subject: Group, other: Group) -> bool:
    """Return whether both groups took turns on one device in one session. Only then `stats.ratio` compares them."""
    # With the device as axis, two devices of a host are compared as themselves, not as samples of a card.
    device = ("device_hash", "unknown_device")
    same_device = texts_of(subject, device) == texts_of(other, device) or axis in {"device_hash", "device"}
    return subject.session == other.session and same_device and not subject.source and not out_of_turn(subject, other)


def out_of_turn(subject: Group, other: Group) -> bool:
    """Return whether two groups of one session did not take turns, by the starts of their trials.

    They did not if many trials of one group ran in a row: before the other's first or after its last trial more than a
    quarter of the smaller group and more than one, elsewhere more than twice that. A few are normal: the order of cases
    differs by round. False if a start is unknown, or a group has one trial.
    """
    shared = {*subject.starts} & {*other.starts} - {""}  # trials of one second have no known order
    starts = [(start, side) for side, group in enumerate((subject, other)) for start in {*group.starts} - shared]
    fewest = min(len(subject.starts), len(other.starts))
    if not subject.session or subject.session != other.session or fewest < 2 or not starts or not min(starts)[0]:
        return False
    most = max(1, fewest // 4)
    in_a_row = [len(list(trials)) for _, trials in groupby(sorted(starts), key=itemgetter(1))]
    return max(in_a_row[0], in_a_row[-1]) > most or max(in_a_row) > 2 * most + 1


def _ratio(axis: str, subject: Group, other: Group) -> stats.Ratio:
    if _in_one_session(axis, subject, other):
        return stats.ratio(subject.values, other.values, until=subject.adaptive or other.adaptive)
    subject_values, other_values, paired = _specimens(axis, subject, other)
    return stats.specimens_ratio(subject_values, other_values, paired=paired)


def _in_one_session(axis: str, subject: Group, other: Group) -> bool:
    return not (subject.parts or other.parts) and ran_together(axis, subject, other)


def _specimens(axis: str, subject: Group, other: Group) -> tuple[stats.Values, stats.Values, bool]:
    """Return the values of each side by specimen, or by session, and whether both sides are the same specimens."""
    subject_units, other_units = (units_of(group, apart=axis == "precision") for group in (subject, other))
    if unit_of(subject) == unit_of(other) == "session" and subject.device_hash != other.device_hash:
        # Several sessions of one device are one specimen.
        return [subject.values], [other.values], False
    shared = [unit for unit in subject_units if unit in other_units]
    if axis == "precision" and len(shared) >= stats.MEASURED_FROM:
        return [subject_units[unit] for unit in shared], [other_units[unit] for unit in shared], True
    return list(subject_units.values()), list(other_units.values()), False


def _specimens_note(axis: str, subject: Group, other: Group) -> str:
    sides, apart = (subject, other), axis == "precision"
    counts = [len(units_of(side, apart=apart)) for side in sides]
    devices = [len({part.device_hash for part in side.parts or (side,)}) for side in sides]
    word = "session" if "session" in map(unit_of, sides) else "specimen" if counts == devices else "machine"
    if max(counts) == 1:
        return f"one {word}{' (physical device)' * (word == 'specimen')} each"
    shared, _, paired = _specimens(axis, subject, other) if apart else ((), (), False)
    if paired and len(shared) < max(counts):
        return f"{len(shared)} {word}s ran both precisions, the others are left out"
    return f"{counts[0]} {word}s each" if counts[0] == counts[1] else f"{counts[0]} and {counts[1]} {word}s"


def judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with verdicts, from p values that are adjusted over all of them."""
    adjusted = _adjusted(comparisons)
    return [_judge(c, adjusted.get(id(c)), len(adjusted)) for c in comparisons]


def _adjusted(comparisons: Sequence[Comparison]) -> dict[int, float]:
    """Return the p values after Holm's correction, by the ids of the comparisons that have no verdict yet.

    The slowest of n has n - 1 comparisons, but it could have been in any of n (n - 1) / 2: a factor of n / 2.
    """
    family = [c for c in comparisons if c.ratio.p is not None and not c.verdict]
    p_values = [min(1.0, (c.ratio.p or 0.0) * c.choices / 2) for c in family]
    return dict(zip(map(id, family), stats.holm(p_values), strict=True))


def with_losses(c: Comparison, fatal: Sequence[str]) -> Comparison:
    """Return the comparison with notes on trials without a figure; `incomplete` if some have a status in `fatal`."""
    sides = (c.subject_name, c.subject), (c.other_name, c.other)
    notes = [f"{name}: {group.lost_note}" for name, group in sides if group.lost]
    cut = any(group.lost.get(status) for _, group in sides for status in fatal)
    return replace(c, verdict=c.verdict or ("incomplete" if cut else ""), notes=(*c.notes, *notes))


def _judge(c: Comparison, adjusted_p: float | None, family: int) -> Comparison:
    if c.verdict:
        return c
    verdict = stats.verdict(c.ratio, adjusted_p, min(c.subject.trials, c.other.trials))
    advice = _advice(c, verdict, family)
    return replace(c, verdict=verdict, notes=(*c.notes, advice) if advice else c.notes)


def _advice(c: Comparison, verdict: stats.Verdict, family: int) -> str:
    """Return how many trials would decide, as a note; empty for a decided ratio, single trials, and specimens."""
    if verdict not in {"few trials", "undecided"} or c.ratio.specimens:
        return ""
    needed = stats.trials_to_decide(c.subject.values, c.other.values, family * c.choices // 2)
    needed = max(needed, min(c.subject.trials, c.other.trials) + 1)
    # Adding trials to a session after seeing its result would bias the test.
    amount = f"about {needed}" if needed <= MOST_TRIALS else f"over {MOST_TRIALS}"
    return f"a new run of {amount} trials per side would decide"


def accuracies_judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return comparisons of accuracies with verdicts: is the subject less than half a point worse?

    Verdicts come from Welch's test, with Holm's correction over all comparisons. Existing verdicts stay. The values of
    the groups are inverse accuracies; the `ratio` of each returned comparison is a difference of means, in points.
    """
    compared = list(map(_with_points, comparisons))
    adjusted = _adjusted(compared)
    return [replace(c, verdict=c.verdict or _accuracy_verdict(c, adjusted.get(id(c), 1.0))) for c in compared]


def accuracy_points(group: Group) -> list[float]:
    """Return the accuracies of a group whose values are their inverses, in percentage points."""
    return [100 / value for value in group.values]


def _with_points(c: Comparison) -> Comparison:
    """Return the comparison with the difference of mean accuracies, subject minus other, as its `ratio` and as a note.

    Its p value is that of "the subject loses half a point", two-sided; None if a side has one value.
    """
    values = accuracy_points(c.subject), accuracy_points(c.other)
    points = stats.Ratio(fmean(values[0]) - fmean(values[1]), specimens=c.ratio.specimens)
    note = f"{points.value:+.2f} points"
    if min(map(len, values)) > 1:
        sides = welch.side_of(values[0]), welch.side_of(values[1])
        low, high = welch.t_interval(*sides, CONFIDENCE)
        points = replace(points, low=low, high=high, p=welch.p_of(*sides, -NON_INFERIOR))
        note += f" ({low:+.2f} to {high:+.2f})"
    return replace(c, ratio=points, notes=(*c.notes, note))


def _accuracy_verdict(c: Comparison, adjusted_p: float) -> str:
    specimens = c.ratio.specimens
    if c.ratio.p is None:
        return "one run"
    if min(c.subject.trials, c.other.trials) < stats.DECIDING_TRIALS and specimens < stats.DECIDING_SPECIMENS:
        return "few trials"
    if adjusted_p >= 1 - CONFIDENCE:
        return "undecided"
    if c.ratio.value > -NON_INFERIOR:
        return "non-inferior"
    if 0 < specimens < stats.DECIDING_SPECIMENS:  # other specimens of these cards may differ
        return "one specimen" if specimens == 1 else "few specimens"
    return "inferior"


def without_verdict_if_missed(c: Comparison) -> Comparison:
    """Return the comparison; `not judged` if a run missed the goal, as the interval ignores that."""
    # A combined group has the share of its worst part.
    shares = [min(part.row["success"] for part in group.parts or (group,)) for group in (c.subject, c.other)]
    if not min(shares) < 1:
        return c
    note = f"{shares[0]:.0%} and {shares[1]:.0%} of the runs reached the goal; the interval ignores this"
    return replace(c, verdict=c.verdict or "not judged", notes=(*c.notes, note))
