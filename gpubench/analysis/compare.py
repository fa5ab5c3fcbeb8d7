"""Rows to matched comparisons with verdicts; whatever is left out is listed with its reason."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import pandas as pd

from gpubench.analysis.accuracy import accuracies_judged
from gpubench.analysis.cells import (
    GROUP,
    READ_IDENTITY,
    TRICKS,
    UNREAD,
    cells_of,
    completed,
    holes_of,
    in_order,
    labels_of,
    list_bad,
    once,
    only_sums,
    title_of,
)
from gpubench.analysis.cells import Cell as Cell
from gpubench.analysis.geomeans import Mean as Mean
from gpubench.analysis.geomeans import means_of
from gpubench.analysis.matching import FOLLOWS, pairs_along, wished
from gpubench.analysis.metrics import SECONDS, Metric, filtered, metric_named, valued
from gpubench.analysis.specimens import combined
from gpubench.analysis.time_to_goal import expected, unsure_of_shares
from gpubench.analysis.verdicts import Comparison as Comparison
from gpubench.analysis.verdicts import comparison, judged
from gpubench.comparing.ladder import Ladder, ladders_of
from gpubench.comparing.tricks import against_plain, kind_of
from gpubench.errors import UserError
from gpubench.rows.read import Loaded, load
from gpubench.rows.row import COLUMNS


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

    @property
    def cases(self) -> list[Cell]:
        """Cells and holes, in order."""
        return in_order([*self.cells, *self.holes])

    @property
    def is_ladder(self) -> bool:
        """Whether one ladder shows all of it: the rungs of one specimen in one precision, a cell each."""
        models = {cell.model for cell in self.cells if not pd.isna(cell.rung)}
        kinds = {(cell.label, cell.precision, cell.batch_policy) for cell in self.cells}
        return len(models) == len(self.cells) and len(kinds) == 1 and not (self.comparisons or self.holes)


@dataclass(frozen=True)
class Result:
    """Everything `compare` shows."""

    groups: list[Group]
    left_out: list[str]
    problems: list[str]
    failed: int = 0
    """Rows that are neither ok nor unsupported."""
    baseline: tuple[str, str] | None = None
    """(column, value) that was named as the baseline."""
    metric: Metric = SECONDS
    """What `seconds` of the cells stands for."""
    axes: tuple[str, ...] = ("card", "precision")
    """The columns compared along."""
    ladders: list[Ladder] = field(default_factory=list)
    """Of the suites whose models are steps; of seconds alone."""

    @property
    def comparisons(self) -> list[Comparison]:
        """All of them; the family for Holm's correction."""
        return [comparison for group in self.groups for comparison in group.comparisons]


@dataclass(frozen=True)
class Question:
    """What is asked of the rows."""

    by: str | None = None
    """Column to compare along, or two joined by a comma."""
    baseline: str | None = None
    allow_mismatch: bool = False
    metric: str = "seconds"
    prices: Path | None = None
    where: tuple[str, ...] = ()


def compare(
    paths: Sequence[Path], by: str | None = None, baseline: str | None = None, allow_mismatch: bool = False
) -> Result:
    """Load, match and judge seconds."""
    return answer(paths, Question(by, baseline, allow_mismatch))


def answer(paths: Sequence[Path], question: Question) -> Result:
    """Load, match and judge. Raises UserError."""
    return answer_of(asked(paths, question), question)


def asked(paths: Sequence[Path], question: Question) -> Loaded:
    """The rows that a question is about; `seconds` is the figure it asks for. Raises UserError where there are none."""
    metric = metric_named(question.metric)
    loaded = load(paths, without=UNREAD, identity=READ_IDENTITY)
    if loaded.frame.empty:
        why = "; ".join(loaded.problems) or "the files hold none"
        raise UserError(f"no row to compare: {why}")
    frame = valued(filtered(loaded.frame, question.where), metric, question.prices)
    if metric is not SECONDS and not (frame["status"].isin(metric.statuses) & (frame["seconds"] > 0)).any():
        raise UserError(f"--metric {metric.name}: no ok row has it; it needs {metric.lacking}")
    return Loaded(frame, loaded.problems)


def answer_of(rows: Loaded, question: Question) -> Result:
    """Match and judge the rows that were asked for."""
    metric = metric_named(question.metric)
    return compare_rows(rows, question.by, question.baseline, question.allow_mismatch, metric)


def compare_rows(
    loaded: Loaded,
    by: str | None = None,
    baseline: str | None = None,
    allow_mismatch: bool = False,
    metric: Metric = SECONDS,
) -> Result:
    """Match and judge what is loaded, whose `seconds` are values of `metric`."""
    axes = [{"batch": "batch_size"}.get(name.strip(), name.strip()) for name in by.split(",")] if by else []
    for axis in axes:
        if axis not in {*COLUMNS, "cudnn_benchmark"} - set(UNREAD):
            raise UserError(f"--by {axis}: no such column; try card, precision, torch, batch_size or mode")
    axes = axes or ["card", "precision"]
    follows = {column for axis in axes for column in FOLLOWS.get(axis, ())} if by else set()
    left_out: list[str] = []
    frame = once(completed(loaded.frame), left_out)
    sums = only_sums(frame) & (frame["status"] == "ok")
    if sums.any():
        many = f"{sums.sum()} row(s) of allreduce train nothing"
        left_out.append(f"{many}: `gpubench compare` prints and charts their sums")
    frame = frame[~sums]
    if metric.name == "time-to-goal":
        frame = expected(frame)
    ok = frame["status"].isin(metric.statuses) & (frame["seconds"] > 0)
    list_bad(frame[~ok], left_out, metric.name)
    labels = labels_of(frame)
    cells, holes = combined(cells_of(frame, ok, labels), axes[0]), holes_of(frame, ok, labels)
    wish = wished(baseline, axes, cells) if baseline else None
    shared = [column for column in GROUP if column not in {*axes, *follows}]
    if allow_mismatch:
        shared = ["suite"]
    grouped: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        grouped[kind_of(cell, shared)].append(cell)
    groups = []
    for members in grouped.values():
        comparisons: list[Comparison] = []
        for axis in axes:
            pairs = pairs_along(
                axis,
                # Tricks differ in their parameters by design, and have comparisons of their own below.
                [cell for cell in members if not (axis == "model" and cell.suite == TRICKS)],
                wish,
                left_out,
                explicit=by is not None,
                allow_mismatch=allow_mismatch,
                best_is_base=metric.by_loss,
            )
            comparisons += [comparison(axis, subject, other) for subject, other in pairs]
        comparisons += against_plain(members)
        groups.append(Group(title_of(members), members, comparisons))
    _place_holes(holes, groups, [column for column in shared if column != "basis"])
    if not metric.by_loss:
        groups = [replace(g, means=means_of(g.comparisons, [*g.cells, *g.holes])) for g in groups]
    failed = int((~ok & (frame["status"] != "unsupported")).sum())
    ladders = ladders_of(frame, labels) if metric is SECONDS else []
    judged_groups = _judged(groups, metric)
    return Result(
        judged_groups, list(dict.fromkeys(left_out)), loaded.problems, failed, wish, metric, tuple(axes), ladders
    )


def _place_holes(holes: Sequence[Cell], groups: list[Group], shared: Sequence[str]) -> None:
    """Each hole goes to the first group of its kind, or to one of its own."""
    places = {kind_of(group.cells[0], shared): group for group in reversed(groups)}
    for hole in holes:
        key = kind_of(hole, shared)
        if key not in places:
            places[key] = Group(title_of([hole]), [])
            groups.append(places[key])
        places[key].holes.append(hole)


def _judged(groups: Sequence[Group], metric: Metric) -> list[Group]:
    """Verdicts over the whole family, which is every ratio that is shown."""
    family = [c for group in groups for c in group.comparisons]
    if metric.name == "time-to-goal":
        family = unsure_of_shares(family)
    verdicts = iter(accuracies_judged(family) if metric.by_loss else judged(family))
    return [replace(g, comparisons=list(islice(verdicts, len(g.comparisons)))) for g in groups]
