"""Rows to matched comparisons with verdicts; whatever is left out is listed with its reason."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from gpubench.comparing import stats
from gpubench.comparing.cells import (
    GROUP,
    STACK,
    cells_of,
    completed,
    holes_of,
    labels_of,
    list_bad,
    once,
    text_of,
    texts_of,
    title_of,
)
from gpubench.comparing.cells import Cell as Cell
from gpubench.comparing.cells import short as short
from gpubench.comparing.matching import FOLLOWS, axis_value, bucket_of, pairs_along, wished
from gpubench.errors import UserError
from gpubench.loading import load
from gpubench.records import COLUMNS

NOTHING_COMPARABLE = 3


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


@dataclass(frozen=True)
class Mean:
    """Geometric mean of a subject's ratios over the cases that both sides have."""

    axis: str
    subject_name: str
    other_name: str
    value: float | None
    """None under half of the cases."""
    common: int
    all_cases: int


@dataclass(frozen=True)
class Group:
    """Cells of one suite, recipe, data and source, and the comparisons among them."""

    title: str
    cells: list[Cell]
    """At least one trial each."""
    comparisons: list[Comparison] = field(default_factory=list)
    means: list[Mean] = field(default_factory=list)
    holes: list[Cell] = field(default_factory=list)
    """Cases of which no trial is ok."""


@dataclass(frozen=True)
class Result:
    """Everything `compare` shows."""

    groups: list[Group]
    left_out: list[str]
    problems: list[str]

    @property
    def comparisons(self) -> list[Comparison]:
        """All of them; the family for Holm's correction."""
        return [comparison for group in self.groups for comparison in group.comparisons]


def compare_files(
    paths: Sequence[Path],
    by: str | None = None,
    baseline: str | None = None,
    charts: Path | None = None,
    alpha_beta: tuple[float, float] | None = None,
    to: int | None = None,
) -> int:
    """Print the comparison of all rows in `paths`, draw charts where asked; returns the exit code.

    Raises UserError where no row can be read, or `by` or `baseline` name nothing that is there.
    """
    result = compare(paths, by, baseline)
    from gpubench.comparing.scaleview import draw_scaling, print_scaling
    from gpubench.comparing.scaling import curves_of, held_of, sums_of
    from gpubench.comparing.table import console_of_output, print_result

    print_result(result)
    frame = load(paths).frame
    curves, sums, held = curves_of(frame, alpha_beta, to), sums_of(frame), held_of(frame)
    print_scaling(curves, sums, held, console_of_output())
    if charts is not None:
        from gpubench.comparing.plot import draw

        for path in [*draw(result, charts), *draw_scaling(curves, sums, held, charts)]:
            print(path)
    return 0 if result.comparisons else NOTHING_COMPARABLE


def compare(paths: Sequence[Path], by: str | None = None, baseline: str | None = None) -> Result:
    """Load, match and judge."""
    loaded = load(paths)
    if loaded.frame.empty:
        why = "; ".join(loaded.problems) or "the files hold none"
        raise UserError(f"no row to compare: {why}")
    by = {"batch": "batch_size"}.get(by or "", by)
    if by is not None and by not in set(COLUMNS) - {"laps", "batch_curve"}:
        raise UserError(f"--by {by}: no such column; try card, precision, torch, batch_size or mode")
    left_out: list[str] = []
    frame = once(completed(loaded.frame), left_out)
    ok = (frame["status"] == "ok") & (frame["seconds"] > 0)
    list_bad(frame[~ok], left_out)
    labels = labels_of(frame)
    cells, holes = cells_of(frame[ok], labels), holes_of(frame, ok, labels)
    axes = [by] if by else ["card", "precision"]
    wish = wished(baseline, axes, cells) if baseline else None
    shared = [column for column in GROUP if column not in {*axes, *FOLLOWS.get(by or "", ())}]
    grouped: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        grouped[texts_of(cell, shared)].append(cell)
    groups = []
    for members in grouped.values():
        comparisons: list[Comparison] = []
        for axis in axes:
            pairs = pairs_along(axis, members, wish, left_out, explicit=by is not None)
            comparisons += [_comparison(axis, subject, other) for subject, other in pairs]
        groups.append(Group(title_of(members[0]), members, comparisons))
    _place_holes(holes, groups, [column for column in shared if column != "measured"])
    groups = [replace(g, means=_means(g.comparisons, [*g.cells, *g.holes])) for g in groups]
    return Result(_judged(groups), left_out, loaded.problems)


def _place_holes(holes: Sequence[Cell], groups: list[Group], shared: Sequence[str]) -> None:
    """Each hole goes to the first group of its kind, or to one of its own."""
    places = {texts_of(group.cells[0], shared): group for group in reversed(groups)}
    for hole in holes:
        key = texts_of(hole, shared)
        if key not in places:
            places[key] = Group(title_of(hole), [])
            groups.append(places[key])
        places[key].holes.append(hole)


def _comparison(axis: str, subject: Cell, other: Cell) -> Comparison:
    one_specimen = (subject.session, subject.device_hash) == (other.session, other.device_hash)
    ratio = stats.ratio(subject.seconds, other.seconds, same_session=one_specimen and not subject.source)
    notes = ["one specimen each"] if ratio.specimens else []
    stack = [column for column in STACK if column != axis and not _excused(column, subject, other)]
    differing = [c for c in stack if _minor(subject.row[c], c) != _minor(other.row[c], c)]
    if differing:
        notes.append(f"differs in {', '.join(differing)}")
    notes += [f"another {c}" for c in ("cpu", "driver") if str(subject.row[c]) != str(other.row[c]) and c != axis]
    if subject.suite_digest != other.suite_digest:
        notes.append("the suite's file was edited in between")
    if axis == "precision" and subject.batch_policy != "fixed":
        notes.append(_batch_note(subject, other))
    verdict = ""
    if set(differing) - FOLLOWS.get(axis, set()):
        verdict = f"{axis} + stack"
    elif subject.measured != other.measured:
        verdict, notes = "not judged", [*notes, f"{subject.measured} / {other.measured}"]
    names = axis_value(subject, axis), axis_value(other, axis)
    return Comparison(axis, subject, other, *names, ratio, verdict, tuple(note for note in notes if note))


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


def _judged(groups: list[Group]) -> list[Group]:
    """Verdicts, with p values adjusted over every ratio that is shown."""
    shown = [c for group in groups for c in group.comparisons]
    family = [c for c in shown if c.ratio.p is not None and not c.verdict]
    adjusted = dict(zip(map(id, family), stats.holm([c.ratio.p or 0.0 for c in family]), strict=True))
    return [
        replace(g, comparisons=[_judge(c, adjusted.get(id(c)), len(family)) for c in g.comparisons]) for g in groups
    ]


def _judge(c: Comparison, adjusted_p: float | None, family: int) -> Comparison:
    if c.verdict:
        return c
    trials = min(c.subject.trials, c.other.trials)
    verdict = stats.verdict(c.ratio, adjusted_p, trials)
    advice = ""
    if verdict == "few trials" or (verdict == "unsure" and not c.ratio.specimens):
        more = stats.trials_to_decide(c.subject.seconds, c.other.seconds, family) - trials
        advice = f"about {max(1, more)} more trials a side would decide"
    elif verdict == "unsure":
        advice = "no more than two specimens of one card may differ by"
    return replace(c, verdict=verdict, notes=(*c.notes, advice) if advice else c.notes)


def _means(comparisons: Sequence[Comparison], cells: Sequence[Cell]) -> list[Mean]:
    """One per card against the baseline, over the cases that every compared card has."""
    cards = [c for c in comparisons if c.axis == "card"]
    sides = {c.other_name for c in cards} | {c.subject_name for c in cards}
    cases = {bucket_of(cell, "card") for cell in cells if cell.label in sides}
    if len(cases) < 2:
        return []
    ratios: dict[tuple[str, str], dict[tuple[str, ...], float]] = defaultdict(dict)
    for c in cards:
        ratios[c.subject_name, c.other_name][bucket_of(c.subject, "card")] = c.ratio.value
    common = set.intersection(*map(set, ratios.values()))
    enough = len(common) * 2 >= len(cases)
    means = []
    for (subject, other), by_case in ratios.items():
        value = stats.geometric_mean([by_case[case] for case in common]) if enough else None
        means.append(Mean("card", subject, other, value, len(common), len(cases)))
    return means
