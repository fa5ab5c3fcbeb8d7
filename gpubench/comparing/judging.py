"""A pair of cells to a comparison: its ratio, what to know about it, and the verdict that it allows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from gpubench.comparing import stats
from gpubench.comparing.cells import STACK, Cell, text_of
from gpubench.comparing.matching import FOLLOWS, axis_value, mismatch
from gpubench.comparing.specimens import unit_of, units_of

MANY = 50
"""More units than this are not counted out to anyone."""


@dataclass(frozen=True)
class Comparison:
    """Seconds of one cell over seconds of another."""

    axis: str
    subject: Cell
    other: Cell
    subject_name: str
    other_name: str
    ratio: stats.Ratio
    """Subject over other."""
    verdict: str = ""
    notes: tuple[str, ...] = ()


def comparison(axis: str, subject: Cell, other: Cell) -> Comparison:
    """The ratio of a pair, and why it gets no verdict where that does not depend on the figures."""
    ratio = _ratio(axis, subject, other)
    notes = [_specimens_note(subject, other)] if ratio.specimens else []
    unlike = mismatch(axis, subject, other)
    stack = [column for column in STACK if column != axis and not _excused(column, subject, other)]
    differing = [c for c in stack if _minor(subject.row[c], c) != _minor(other.row[c], c)]
    if unlike or differing:
        notes.append(f"differs in {', '.join([*unlike, *differing])}")
    notes += [f"another {c}" for c in ("cpu", "driver") if str(subject.row[c]) != str(other.row[c]) and c != axis]
    if subject.suite_digest != other.suite_digest:
        notes.append("the suite's file was edited in between")
    if axis == "precision" and subject.batch_policy != "fixed":
        notes.append(_batch_note(subject, other))
    verdict = ""
    if unlike:
        verdict = "not alike"
    elif set(differing) - FOLLOWS.get(axis, set()):
        verdict = f"{axis} + stack"
    elif subject.measured != other.measured:
        verdict, notes = "not judged", [*notes, f"{subject.measured} / {other.measured}"]
    names = axis_value(subject, axis), axis_value(other, axis)
    return Comparison(axis, subject, other, *names, ratio, verdict, tuple(note for note in notes if note))


def _ratio(axis: str, subject: Cell, other: Cell) -> stats.Ratio:
    if not (subject.parts or other.parts):
        # Where two devices of one host are themselves the question, there is no other specimen to speak for.
        same_device = subject.device_hash == other.device_hash or axis in {"device_hash", "device"}
        same_session = subject.session == other.session and same_device and not subject.source
        until = subject.adaptive or other.adaptive
        return stats.ratio(subject.seconds, other.seconds, same_session=same_session, until=until)
    ours, theirs = units_of(subject), units_of(other)
    if unit_of(subject) == unit_of(other) == "session" and subject.device_hash != other.device_hash:
        # Many days of one device still are one specimen.
        return stats.specimens_ratio([subject.seconds], [other.seconds])
    shared = [unit for unit in ours if unit in theirs]
    if axis == "precision" and len(shared) >= stats.MEASURED_FROM:
        pairs = [(stats.median(ours[unit]), stats.median(theirs[unit])) for unit in shared]
        return stats.paired_specimens_ratio([a for a, _ in pairs], [b for _, b in pairs])
    return stats.specimens_ratio(list(ours.values()), list(theirs.values()))


def _specimens_note(subject: Cell, other: Cell) -> str:
    counts = [len(units_of(cell)) for cell in (subject, other)]
    if max(counts) == 1:
        return "one specimen each"
    word = "sessions" if "session" in {unit_of(subject), unit_of(other)} else "specimens"
    return f"{counts[0]} {word} each" if counts[0] == counts[1] else f"{counts[0]} and {counts[1]} {word}"


def _excused(column: str, subject: Cell, other: Cell) -> bool:
    """Threads are part of the card itself where a CPU is what is measured."""
    return column == "threads" and subject.device == other.device == "cpu"


def _batch_note(subject: Cell, other: Cell) -> str:
    if pd.isna(subject.batch_size) or pd.isna(other.batch_size):
        return ""
    times = subject.batch_size / other.batch_size
    return "same batch" if times == 1 else f"batch {times:.2g} x"


def _minor(value: Any, column: str) -> str:
    """A version's first two numbers (cuDNN writes 91002 for 9.10.2); other facts as they are."""
    text = text_of(value)
    if column in {"threads", "cpu"}:
        return text
    if column == "cudnn" and text.isdigit():
        return text[:-2]
    return ".".join(text.partition("+")[0].split(".")[:2])


def judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Verdicts, with p values adjusted over all of these, which have to be all that are shown."""
    family = [c for c in comparisons if c.ratio.p is not None and not c.verdict]
    adjusted = dict(zip(map(id, family), stats.holm([c.ratio.p or 0.0 for c in family]), strict=True))
    return [_judge(c, adjusted.get(id(c)), len(family)) for c in comparisons]


def _judge(c: Comparison, adjusted_p: float | None, family: int) -> Comparison:
    if c.verdict:
        return c
    verdict = stats.verdict(c.ratio, adjusted_p, min(c.subject.trials, c.other.trials))
    advice = _advice(c, verdict, family)
    return replace(c, verdict=verdict, notes=(*c.notes, advice) if advice else c.notes)


def _advice(c: Comparison, verdict: stats.Verdict, family: int) -> str:
    """How much more would decide."""
    if verdict == "few trials" or (verdict == "unsure" and not c.ratio.specimens):
        needed = stats.trials_to_decide(c.subject.seconds, c.other.seconds, family)
        have, unit = min(c.subject.trials, c.other.trials), "trials"
    elif verdict in {"unsure", "one specimen", "few specimens"} and c.subject.device_hash != c.other.device_hash:
        needed, have, unit = stats.specimens_to_decide(c.ratio.value), c.ratio.specimens, "specimens"
    else:
        return ""
    more = max(1, needed - have)
    unit = unit.removesuffix("s") if more == 1 else unit
    return f"about {more} more {unit} a side would decide" if more <= MANY else f"over {MANY} more {unit} would decide"
