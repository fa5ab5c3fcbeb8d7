"""Compare two groups: ratio, caveats and verdict. `compare` calls it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpubench.analysis import stats
from gpubench.analysis.groups import CONFLICT, Group
from gpubench.analysis.matching import FOLLOWS, axis_value, other_stack
from gpubench.analysis.specimens import unit_of, units_of

CODE_AXES = {"gpubench", "commit", "suite_version", "suite_digest"}
"""Axes that compare versions of the code that is timed."""
OUT_OF_TURN = "one session's trials with a time did not take turns: judged as two sessions"
MOST_UNITS = 50
"""Advice names no number of units above this."""


@dataclass(frozen=True)
class Comparison:
    """A result: the values of one group over those of another, with caveats and a verdict."""

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
    """Columns of the stack that differ beside the axis."""
    is_unlike: bool = False
    """Whether there is no verdict because of these, or of edited code."""


def comparison(axis: str, subject: Group, other: Group) -> Comparison:
    """Return the ratio of a pair, with caveats, and a verdict where the ratio does not matter for it."""
    ratio = _ratio(axis, subject, other)
    notes = [_specimens_note(axis, subject, other)] if ratio.specimens else []
    notes += [OUT_OF_TURN] if out_of_turn(subject, other) else []
    differing = other_stack(axis, subject, other)
    if differing:
        notes.append(f"differs in {', '.join(differing)}")
    notes += [f"another {c}" for c in ("cpu", "driver") if str(subject.row[c]) != str(other.row[c]) and c != axis]
    layouts = [str(side.row["memory_format"]) for side in (subject, other)]
    if all(layouts) and len(set(layouts)) > 1 and axis != "memory_format":
        notes.append(f"layout {' / '.join(layouts)}")
    edited = subject.row["suite_digest"] != other.row["suite_digest"] and axis not in CODE_AXES
    if edited:
        notes.append("the code that is timed was edited in between")
    if axis == "precision" and subject.batch_policy != "fixed":
        notes.append(_batch_note(subject, other))
    verdict = ""
    another_stack = bool(set(differing) - FOLLOWS.get(axis, set()))
    if another_stack:
        verdict = f"{axis} + stack"
    elif edited:
        verdict = f"{axis} + code"
    elif subject.contradicting or other.contradicting:
        verdict = CONFLICT
    elif subject.mode != other.mode and subject.measured != other.measured:
        verdict, notes = "not judged", [*notes, f"{subject.measured} / {other.measured}"]
    names = axis_value(subject, axis), axis_value(other, axis)
    notes_shown = tuple(filter(None, notes))
    is_unlike = another_stack or edited
    return Comparison(axis, subject, other, *names, ratio, verdict, notes_shown, tuple(differing), is_unlike)


def plain_comparison(subject: Group, plain: Group) -> Comparison:
    """Return the result of a change over `plain` of the same session, whatever their differences."""
    ratio = _ratio("model", subject, plain)
    verdict = CONFLICT if subject.contradicting or plain.contradicting else ""
    notes = (OUT_OF_TURN,) if out_of_turn(subject, plain) else ()
    return Comparison("model", subject, plain, subject.model, plain.model, ratio, verdict, notes)


def groups_in(comparisons: Sequence[Comparison]) -> list[Group]:
    """Return both sides of each comparison."""
    return [group for c in comparisons for group in (c.subject, c.other)]


def pooled(comparisons: Sequence[Comparison]) -> stats.Ratio:
    """Return the geometric mean of the ratios of several models, subject over other, with its 95% interval."""
    together = all(_in_one_session(c.axis, c.subject, c.other) for c in comparisons)
    if len(comparisons) > 1 and together and len({c.subject.session for c in comparisons}) == 1:
        sides = [c.subject.rounds for c in comparisons], [c.other.rounds for c in comparisons]
        return stats.pooled_ratio(*sides, until=any(_until(c.subject, c.other) for c in comparisons))
    return stats.mean_of_alike([_ratio(c.axis, c.subject, c.other) for c in comparisons])


def p_above(c: Comparison, limit: float) -> float:
    """Return the one-sided p value that a comparison's ratio is at most `limit`."""
    if _in_one_session(c.axis, c.subject, c.other):
        return stats.p_above(c.subject.values, c.other.values, limit, until=_until(c.subject, c.other))
    ours, theirs, paired = _specimens(c.axis, c.subject, c.other)
    return stats.specimens_p_above(ours, theirs, limit, paired=paired)


def ran_together(axis: str, subject: Group, other: Group) -> bool:
    """Return whether both are of one device in one session, with no spread between specimens or sessions."""
    # Two devices of one host that are compared as such are not samples of a card.
    same_device = _device(subject) == _device(other) or axis in {"device_hash", "device"}
    return subject.session == other.session and same_device and not subject.source and not out_of_turn(subject, other)


def out_of_turn(subject: Group, other: Group) -> bool:
    """Return whether two groups have one session's name, but too many trials of one ran before or after the other.

    Too many is over a quarter of the smaller group, and more than one trial: a round has its cases in any order. False
    where the time of a trial is unknown, and where a group is of one trial.
    """
    sides = [(group.starts, min(group.starts, default=""), max(group.starts, default="")) for group in (subject, other)]
    if not subject.session or subject.session != other.session or not all(first for _, first, _ in sides):
        return False
    fewest = min(len(starts) for starts, *_ in sides)
    most = max(1, fewest // 4)
    return fewest > 1 and any(
        sum(start < first for start in starts) > most or sum(start > last for start in starts) > most
        for (starts, *_), (_, first, last) in (sides, sides[::-1])
    )


def _ratio(axis: str, subject: Group, other: Group) -> stats.Ratio:
    if _in_one_session(axis, subject, other):
        return stats.ratio(subject.values, other.values, until=_until(subject, other))
    ours, theirs, paired = _specimens(axis, subject, other)
    return stats.specimens_ratio(ours, theirs, paired=paired)


def _in_one_session(axis: str, subject: Group, other: Group) -> bool:
    return not (subject.parts or other.parts) and ran_together(axis, subject, other)


def _until(subject: Group, other: Group) -> bool:
    return subject.adaptive or other.adaptive


def _specimens(axis: str, subject: Group, other: Group) -> tuple[stats.Values, stats.Values, bool]:
    """Return the values of each side by specimen, or by session, and whether both sides are the same specimens."""
    ours, theirs = units_of(subject), units_of(other)
    if unit_of(subject) == unit_of(other) == "session" and subject.device_hash != other.device_hash:
        # Several sessions of one device are one specimen.
        return [subject.values], [other.values], False
    shared = [unit for unit in ours if unit in theirs]
    if axis == "precision" and len(shared) >= stats.MEASURED_FROM:
        return [ours[unit] for unit in shared], [theirs[unit] for unit in shared], True
    return list(ours.values()), list(theirs.values()), False


def _device(group: Group) -> tuple[str, str]:
    return group.device_hash, group.row["unknown_device"]


def _specimens_note(axis: str, subject: Group, other: Group) -> str:
    counts = [len(units_of(group)) for group in (subject, other)]
    if max(counts) == 1:
        return "one specimen each"
    word = "sessions" if "session" in {unit_of(subject), unit_of(other)} else "specimens"
    ours, _, paired = _specimens(axis, subject, other)
    if paired and len(ours) < max(counts):
        return f"{len(ours)} {word} ran both, the others are left out"
    return f"{counts[0]} {word} each" if counts[0] == counts[1] else f"{counts[0]} and {counts[1]} {word}"


def _batch_note(subject: Group, other: Group) -> str:
    if not (subject.batch_size > 0 and other.batch_size > 0):
        return ""
    times = subject.batch_size / other.batch_size
    return "same batch" if times == 1 else f"batch {times:.2g} x"


def judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with verdicts, from p values adjusted over all of them: give all that are shown."""
    comparisons = [_completeness(c) for c in comparisons]
    family = [c for c in comparisons if c.ratio.p is not None and not c.verdict]
    adjusted = dict(zip(map(id, family), stats.holm([c.ratio.p or 0.0 for c in family]), strict=True))
    return [_judge(c, adjusted.get(id(c)), len(family)) for c in comparisons]


def _completeness(c: Comparison) -> Comparison:
    """Add a note on trials without a time. Where slow ones reached the time limit, the verdict is `incomplete`."""
    sides = (c.subject_name, c.subject), (c.other_name, c.other)
    notes = [f"{name}: {group.lost_note}" for name, group in sides if group.lost]
    cut = any(group.lost.get("timed_out") for _, group in sides)
    return replace(c, verdict=c.verdict or ("incomplete" if cut else ""), notes=(*c.notes, *notes))


def _judge(c: Comparison, adjusted_p: float | None, family: int) -> Comparison:
    if c.verdict:
        return c
    verdict = stats.verdict(c.ratio, adjusted_p, min(c.subject.trials, c.other.trials))
    advice = _advice(c, verdict, family)
    return replace(c, verdict=verdict, notes=(*c.notes, advice) if advice else c.notes)


def _advice(c: Comparison, verdict: stats.Verdict, family: int) -> str:
    """Return how many more trials or specimens would decide; empty where that is not the reason."""
    if verdict not in {"few trials", "undecided", "one specimen", "few specimens"}:
        return ""
    if not c.ratio.specimens:
        needed = stats.trials_to_decide(c.subject.values, c.other.values, family)
        needed = max(needed, min(c.subject.trials, c.other.trials) + 1)
        # Adding trials to a session after seeing its result would bias the test.
        amount = f"about {needed}" if needed <= MOST_UNITS else f"over {MOST_UNITS}"
        return f"a new session of {amount} trials a side would decide"
    same_device = c.subject.device_hash and c.subject.device_hash == c.other.device_hash
    if same_device and c.axis in {"card", "precision"}:
        return ""  # more sessions are no more specimens
    more = max(1, stats.specimens_to_decide(c.ratio.value) - c.ratio.specimens)
    unit = "sessions" if same_device else "specimens"
    unit = unit.removesuffix("s") if more == 1 else unit
    return (
        f"about {more} more {unit} a side would decide"
        if more <= MOST_UNITS
        else f"over {MOST_UNITS} more {unit} would decide"
    )
