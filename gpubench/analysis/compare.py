"""Rows to matched comparisons with verdicts; whatever is left out is listed with its reason."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import pandas as pd

from gpubench.analysis.accuracy import accuracies_judged
from gpubench.analysis.cells import (
    CONFLICT,
    UNREAD,
    Cell,
    cells_of,
    completed,
    holes_of,
    in_order,
    list_bad,
    named_cpus,
    numbered,
    only_sums,
    without_time,
)
from gpubench.analysis.geomeans import Mean, means_of
from gpubench.analysis.matching import FOLLOWS, against_plain, is_ablation, kind_of, pairs_along, switches_of, wished
from gpubench.analysis.metrics import SECONDS, Metric, Prices, filtered, metric_named, valued
from gpubench.analysis.specimens import combined, labels_of
from gpubench.analysis.time_to_goal import expected, unsure_of_shares
from gpubench.analysis.verdicts import Comparison, against_itself, comparison, judged
from gpubench.errors import UserError
from gpubench.rows.alike import GROUP, READ_IDENTITY, TRIAL
from gpubench.rows.read import Loaded, load
from gpubench.rows.row import COLUMNS, DIGEST, NUMBERS
from gpubench.rows.table import PLAUSIBLE
from gpubench.suite.trial import TRAINED

USUAL_AXES = ("card", "precision")
NAMED = 3
"""Columns and files that a conflict names."""


@dataclass(frozen=True)
class Group:
    """Cells of one suite, recipe, data and source, and the comparisons among them."""

    cells: list[Cell]
    """At least one trial each."""
    comparisons: list[Comparison] = field(default_factory=list)
    means: list[Mean] = field(default_factory=list)
    holes: list[Cell] = field(default_factory=list)
    """Cases of which no trial is ok."""
    left_out: tuple[str, ...] = ()
    """Cells that found no partner."""

    @cached_property
    def cases(self) -> list[Cell]:
        """Cells and holes, in order."""
        return in_order([*self.cells, *self.holes])


@dataclass(frozen=True)
class Result:
    """What was compared, and the rows of which no pair was made, for studies of another kind."""

    groups: list[Group]
    left_out: list[str]
    """Rows that are in no group."""
    problems: list[str]
    failed: int = 0
    """Rows without a result that should have one."""
    missed: int = 0
    """Rows left out of the pairs because their run missed its goal."""
    baseline: tuple[str, str] | None = None
    """(column, value) that was named as the baseline."""
    metric: Metric = SECONDS
    """What the values of the cells are."""
    axes: tuple[str, ...] = USUAL_AXES
    """The columns compared along."""
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    """One row per trial, whatever became of it, as `cells.completed` and `cells.once` leave them."""
    labels: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Names of specimens (see `specimens.labels_of`)."""

    @property
    def comparisons(self) -> list[Comparison]:
        """All of them; the family for Holm's correction."""
        return [comparison for group in self.groups for comparison in group.comparisons]

    @property
    def is_usual(self) -> bool:
        """Whether seconds were compared along the usual columns, so that other studies have something to say."""
        return self.metric is SECONDS and self.axes == USUAL_AXES


@dataclass(frozen=True)
class Question:
    """What is asked of the rows."""

    by: str | None = None
    """Column to compare along, or two joined by a comma."""
    baseline: str | None = None
    allow_mismatch: bool = False
    metric: str = "seconds"
    prices: Prices | None = None
    where: tuple[str, ...] = ()


def compare(paths: Sequence[Path], question: Question | None = None) -> Result:
    """Load, match and judge. Raises UserError."""
    return compare_rows(load_rows(paths), question or Question())


def load_rows(paths: Sequence[Path], *, keep: bool = False) -> Loaded:
    """The rows of some files as comparing needs them; with `keep` their text too. Raises UserError without any."""
    loaded = plausible(load(paths, without=UNREAD, identity=READ_IDENTITY, keep=keep))
    if loaded.frame.empty:
        why = "; ".join(loaded.problems) or "the files hold none"
        raise UserError(f"no row to compare: {why}")
    return replace(loaded, frame=_with_rates(loaded.frame))


def plausible(loaded: Loaded) -> Loaded:
    """Without the rows that hold a figure of no unit: what is reckoned with it need not be a number. They are named."""
    frame, problems = loaded.frame, []
    wild = pd.Series(False, index=frame.index)
    for name in (each for each in NUMBERS if each in frame):
        size = frame[name].abs()
        own = (size > PLAUSIBLE[1]) | ((size < PLAUSIBLE[0]) & (size > 0))
        if own.any():
            problems.append(f"{int(own.sum())} row(s) with {name} {frame.loc[own, name].iloc[0]:.3g}; left out")
            wild |= own
    return replace(loaded, frame=frame[~wild], problems=[*loaded.problems, *problems]) if problems else loaded


def _with_rates(frame: pd.DataFrame) -> pd.DataFrame:
    """A published figure without a rate has that of its whole run, validation included."""
    lacking = (frame["mode"] == "published") & frame["samples_per_second"].isna() & (frame["seconds"] > 0)
    if not lacking.any():
        return frame
    whole = frame["run_samples"] / frame["seconds"]
    return frame.assign(samples_per_second=frame["samples_per_second"].where(~lacking, whole))


def compare_rows(loaded: Loaded, question: Question) -> Result:
    """Match and judge the rows that a question is about. Raises UserError where it names nothing that is there."""
    metric = metric_named(question.metric)
    axes = _axes(question.by)
    follows = {column for axis in axes for column in FOLLOWS.get(axis, ())} if question.by else set()
    left_out: list[str] = []
    frame = valued(filtered(loaded.frame, question.where), metric, question.prices)
    frame = frame.assign(card=named_cpus(frame))
    every = once(completed(frame), left_out, loaded.file_of)
    untimed = only_sums(every) | (without_time(every) if metric is SECONDS else False)
    frame = every[~untimed] if untimed.any() else every  # a selection is a copy of everything
    if metric.name == "time-to-goal":
        frame = expected(frame)
    ok = frame["status"].isin(metric.statuses) & frame["value"].between(*PLAUSIBLE)
    if metric is not SECONDS and not ok.any():
        raise UserError(f"--metric {metric.name}: no ok row has it; it needs {metric.lacking}")
    list_bad(frame[~ok], left_out, metric.name)
    labels = labels_of(frame)
    cells, holes = combined(cells_of(frame, ok, labels), axes[0]), holes_of(frame, ok, labels)
    wish = wished(question.baseline, axes, cells) if question.baseline else None
    shared = [column for column in GROUP if column not in {*axes, *follows}]
    if question.allow_mismatch:
        shared = ["suite"]
    grouped: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    switches = switches_of([*cells, *holes])
    for cell in cells:
        grouped[kind_of(cell, shared, switches)].append(cell)
    groups = [_group(members, axes, wish, question, metric) for members in grouped.values()]
    _place_holes(holes, groups, [column for column in shared if column != "basis"], switches)
    if not metric.by_loss:
        groups = [replace(g, means=means_of(g.comparisons, [*g.cells, *g.holes])) for g in groups]
    missed = int((~ok & (frame["status"] == "goal_missed")).sum())
    failed = int((~ok & (frame["status"] != "unsupported")).sum()) - missed
    judged_groups = _judged(groups, metric)
    left_out = list(dict.fromkeys(left_out))
    return Result(judged_groups, left_out, loaded.problems, failed, missed, wish, metric, axes, every, labels)


def once(frame: pd.DataFrame, left_out: list[str], file_of: Callable[[int], object] = lambda place: "") -> pd.DataFrame:
    """One row per trial where a run was resumed or a file was given twice, whatever the order of the rows.

    A training that came to its end stands before one that did not. Where rows say different things of such a
    training, all of them stay, as conflicts in the files that `file_of` names by a row's place in the index.
    """
    trials = frame[["trial"]].assign(case=numbered(frame, TRIAL))
    again = trials.duplicated(keep=False) & frame["trial"].notna() & (frame["session"] != "")
    if not again.any():
        return frame
    rows, trial = frame[again], trials[again].groupby(["case", "trial"]).ngroup()
    trained = rows[rows["status"].isin(TRAINED)]
    others = rows.drop(index=trained.index)
    # What came to an end says more than what was stopped.
    others = others.assign(ended=others["status"] != "interrupted").sort_values(["ended", "status", "reason"])
    tried = trial[others.index]
    ran_again = tried.index[tried.isin(trial[trained.index]) | tried.duplicated(keep="last")]
    copies = trained.index[trained.drop(columns=DIGEST, errors="ignore").duplicated()]
    for superseded, what in (
        (ran_again, "trial(s) without a result that ran again later"),
        (copies, "row(s) of trials that are here twice"),
    ):
        if len(superseded):
            left_out.append(f"{len(superseded)} {what}")
    # Two versions that take turns in one session each have a trial of that number.
    by_version = pd.MultiIndex.from_arrays([trial[trained.index], trained["commit"]])
    contested = pd.Series(by_version.factorize()[0], trained.index)
    return _with_conflicts(frame.drop(index=ran_again.union(copies)), contested, file_of)


def _with_conflicts(frame: pd.DataFrame, trial: "pd.Series[int]", file_of: Callable[[int], object]) -> pd.DataFrame:
    """The rows, with status and reason of a conflict where several trained one trial: `trial` has its number.

    It also has the numbers of copies that are no longer in the frame.
    """
    left = trial[trial.index.isin(frame.index)]
    several = left[left.duplicated(keep=False)]
    if several.empty:
        return frame
    values = frame.loc[several.index].groupby(several).nunique(dropna=False)
    differing = [name for name in COLUMNS if name in values and name != DIGEST and (values[name] > 1).any()]
    names = sorted(differing, key=lambda name: name != "seconds")[:NAMED]
    files = sorted({str(file_of(place)) for place in trial.index[trial.isin(several)]})
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    reason = f"rows of one trial differ in {', '.join(names)} ({', '.join(files[:NAMED])}{more})"
    contradicting = frame.index.isin(several.index)
    return frame.assign(
        status=frame["status"].mask(contradicting, CONFLICT), reason=frame["reason"].mask(contradicting, reason)
    )


def _axes(by: str | None) -> tuple[str, ...]:
    """The columns that `--by` names. Raises UserError."""
    axes = [{"batch": "batch_size"}.get(name.strip(), name.strip()) for name in by.split(",")] if by else []
    for axis in axes:
        if axis not in {*COLUMNS, "cudnn_benchmark"} - {*UNREAD, "batch_curve"}:
            raise UserError(f"--by {axis}: no such column; try card, precision, torch, batch_size or mode")
    return tuple(axes) or USUAL_AXES


def _group(
    members: list[Cell],
    axes: Sequence[str],
    wish: tuple[str, str] | None,
    question: Question,
    metric: Metric,
) -> Group:
    """The cells of one kind with all their comparisons, not yet judged."""
    comparisons: list[Comparison] = []
    left_out: list[str] = []
    for axis in axes:
        pairs = pairs_along(
            axis,
            # What an ablation changes differs by design, and is compared with `plain` below.
            [cell for cell in members if not (axis == "model" and is_ablation(cell))],
            wish,
            left_out,
            explicit=question.by is not None,
            allow_mismatch=question.allow_mismatch,
            best_is_base=metric.by_loss,
        )
        comparisons += [comparison(axis, subject, other) for subject, other in pairs]
    comparisons += [against_itself(subject, plain) for subject, plain in against_plain(members)]
    return Group(members, comparisons, left_out=tuple(dict.fromkeys(left_out)))


def _place_holes(holes: Sequence[Cell], groups: list[Group], shared: Sequence[str], switches: Collection[str]) -> None:
    """Each hole goes to the first group of its kind, or to one of its own."""
    places = {kind_of(group.cells[0], shared, switches): group for group in reversed(groups)}
    for hole in holes:
        key = kind_of(hole, shared, switches)
        if key not in places:
            places[key] = Group([])
            groups.append(places[key])
        places[key].holes.append(hole)


def _judged(groups: Sequence[Group], metric: Metric) -> list[Group]:
    """Verdicts over the whole family, which is every ratio that is shown."""
    family = [c for group in groups for c in group.comparisons]
    if metric.name == "time-to-goal":
        family = unsure_of_shares(family)
    verdicts = iter(accuracies_judged(family) if metric.by_loss else judged(family))
    return [replace(g, comparisons=list(islice(verdicts, len(g.comparisons)))) for g in groups]
