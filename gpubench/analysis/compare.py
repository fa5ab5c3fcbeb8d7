"""Compares the rows of files: groups them, pairs the groups, judges the pairs, and lists what is left out.

`compare_rows` has all steps in one function. The commands, the library and `studies` call it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from gpubench.analysis import matching, metrics, verdicts
from gpubench.analysis.groups import (
    CONFLICT,
    CUT_SHORT,
    UNREAD,
    Group,
    completed,
    groups_of,
    holes_of,
    in_order,
    list_without_value,
    named_cpus,
    numbered,
    only_sums,
    without_time,
)
from gpubench.analysis.metrics import SECONDS, Metric, Prices, expected_time, filtered, metric_named, valued
from gpubench.analysis.specimens import combined, labels_of
from gpubench.analysis.verdicts import Comparison
from gpubench.errors import UserError
from gpubench.rows.alike import READ_IDENTITY, TRIAL, WORKLOAD
from gpubench.rows.params import params_of
from gpubench.rows.read import Loaded, load, stored
from gpubench.rows.row import COLUMNS, DIGEST, NUMBERS
from gpubench.rows.table import PLAUSIBLE
from gpubench.suite.trial import TRAINED

USUAL_AXES = ("card", "precision")
NAMED = 3
"""Maximum number of columns, and of files, in the reason of a conflict."""


@dataclass(frozen=True)
class Workload:
    """The groups of one suite, recipe, data, source and number of processes, with the comparisons between them."""

    groups: list[Group]
    """Groups with at least one trial."""
    comparisons: list[Comparison] = field(default_factory=list)
    holes: list[Group] = field(default_factory=list)
    """Cases without a usable trial."""
    left_out: tuple[str, ...] = ()
    """Groups without a counterpart, with the reason."""

    @cached_property
    def cases(self) -> list[Group]:
        """`groups` and `holes`, in order."""
        return in_order([*self.groups, *self.holes])


@dataclass(frozen=True)
class Compared:
    """The results of a comparison, and all rows for studies that need no pairs."""

    workloads: list[Workload]
    left_out: list[str]
    """Rows that are not compared, with the reason."""
    loaded: Loaded
    """The rows before any was left out. Its `problems` wait until the digests of all rows are checked."""
    failed: int = 0
    """Number of rows without a value, apart from unsupported cases and missed goals."""
    missed: int = 0
    """Number of rows left out because they missed the goal."""
    baseline: tuple[str, str] | None = None
    """(column, value) that --baseline names."""
    metric: Metric = SECONDS
    """The compared figure."""
    axes: tuple[str, ...] = USUAL_AXES
    """The compared columns."""
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    """One row per trial of any status, from `groups.completed` and `once`."""
    labels: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Labels of specimens, from `specimens.labels_of`."""

    @property
    def comparisons(self) -> list[Comparison]:
        """All comparisons. Holm's correction is over all of them."""
        return [comparison for workload in self.workloads for comparison in workload.comparisons]

    @property
    def is_usual(self) -> bool:
        """Whether seconds were compared by card and precision. Most studies need that."""
        return self.metric is SECONDS and self.axes == USUAL_AXES


@dataclass(frozen=True)
class Question:
    """What to compare: the options of `gpubench compare`."""

    by: str | None = None
    """Column or parameter to compare along, or several joined by commas."""
    baseline: str | None = None
    metric: str = "seconds"
    prices: Prices | None = None
    where: tuple[str, ...] = ()


def compare(paths: Sequence[Path], question: Question | None = None) -> Compared:
    """Return the results of comparing the rows of files. Raises UserError."""
    return compare_rows(load_rows(paths), question or Question())


def load_rows(paths: Sequence[Path], *, keep: bool = False) -> Loaded:
    """Return the rows of files for `compare_rows`, with `keep` also their text. Raises UserError if there are none."""
    loaded = plausible(load(paths, without=UNREAD, identity=READ_IDENTITY, keep=keep))
    if loaded.frame.empty:
        why = "; ".join(loaded.problems) or "the files have no rows"
        raise UserError(f"no row to compare: {why}")
    return replace(loaded, frame=_with_rates(loaded.frame))


def plausible(loaded: Loaded) -> Loaded:
    """Return the rows without those that have a number outside of PLAUSIBLE; these are listed as problems."""
    frame, problems = loaded.frame, []
    implausible = pd.Series(False, index=frame.index)
    for name in NUMBERS:
        size = np.abs(stored(frame[name]))
        hits = (size > PLAUSIBLE[1]) | ((size < PLAUSIBLE[0]) & (size > 0))
        if hits.any():
            hits = pd.Series(np.broadcast_to(hits, len(frame)), frame.index)
            problems.append(f"{int(hits.sum())} row(s) with {name} {frame.loc[hits, name].iloc[0]:.3g}; left out")
            implausible |= hits
    problems = [*loaded.file_problems, *problems]
    return replace(loaded, frame=frame[~implausible], file_problems=problems) if implausible.any() else loaded


def _with_rates(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows; a published row without a rate gets the rate of its whole run, validation included."""
    lacking = (frame["mode"] == "published") & frame["samples_per_second"].isna() & (frame["seconds"] > 0)
    if not lacking.any():
        return frame
    whole = frame["run_samples"] / frame["seconds"]
    return frame.assign(samples_per_second=frame["samples_per_second"].where(~lacking, whole))


def compare_rows(loaded: Loaded, question: Question) -> Compared:
    """Return the results for the rows that a question selects. Raises UserError, also if `where` selects none."""
    metric = metric_named(question.metric)
    if isinstance(question.prices, Path):
        metrics.read_prices(question.prices)  # also for a metric without prices, a wrong file is an error
    axes = _axes(question.by, loaded.frame["params"])
    follows = {column for axis in axes for column in matching.FOLLOWS.get(axis, ())} if question.by else set()
    left_out: list[str] = []
    frame = loaded.frame.assign(card=named_cpus(loaded.frame))
    frame = valued(filtered(frame, question.where), metric, question.prices)
    trials = once(completed(frame), left_out, loaded.file_of)
    untimed = only_sums(trials) | (without_time(trials) if metric is SECONDS else False)
    frame = trials[~untimed] if untimed.any() else trials  # a selection copies the whole frame
    if metric.name == "time-to-goal":
        frame = expected_time(frame)
    ok = frame["status"].isin(metric.statuses) & frame["value"].between(*PLAUSIBLE)
    if metric is not SECONDS and not ok.any():
        raise UserError(f"--metric {metric.name}: no ok row has it; it needs {metric.lacking}")
    if not ok.all():
        list_without_value(frame[~ok], left_out, metric.name)
    labels = labels_of(frame)
    by_parameter = any(axis in params_of(text) for text in set(stored(frame["params"])) for axis in axes)
    follows |= {"params"} if by_parameter else set()
    groups = combined(groups_of(frame, ok, labels), "params" if by_parameter else axes[0])
    holes = holes_of(frame, ok, labels)
    baseline = matching.named_baseline(question.baseline, axes, groups) if question.baseline else None
    shared = [column for column in WORKLOAD if column not in {*axes, *follows}]
    grouped: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    switches = matching.switches_of([*groups, *holes])
    for group in groups:
        grouped[matching.workload_key(group, shared, switches)].append(group)
    workloads = [_workload(members, axes, baseline, question, metric, switches) for members in grouped.values()]
    _place_holes(holes, workloads, [column for column in shared if column != "basis"], switches)
    lost = Counter(frame.loc[~ok, "status"])
    missed, failed = lost["goal_missed"], lost.total() - lost["goal_missed"] - lost["unsupported"]
    judged_workloads = _judged(workloads, metric)
    left_out = list(dict.fromkeys(left_out))
    return Compared(judged_workloads, left_out, loaded, failed, missed, baseline, metric, axes, trials, labels)


def once(frame: pd.DataFrame, left_out: list[str], file_of: Callable[[int], object] = lambda place: "") -> pd.DataFrame:
    """Return one row per trial, also if a run was resumed or a file was given twice. The order of rows does not matter.

    The row of a finished training replaces the trial's unfinished rows, such as failed ones. If rows of finished
    trainings of one trial differ, all stay, with the status conflict; their reason names their files. `file_of` returns
    the file of a row by its index in the frame.
    """
    trials = frame[["trial"]].assign(case=numbered(frame, TRIAL))
    repeated = trials.duplicated(keep=False) & frame["trial"].notna() & ~frame["session"].isin([""])
    if not repeated.any():
        return frame
    rows, trial = frame[repeated], trials[repeated].groupby(["case", "trial"]).ngroup()
    trained = rows[rows["status"].isin(TRAINED)]
    unfinished = rows.drop(index=trained.index)
    # Interrupted rows come first, because the last row of a trial is kept.
    unfinished["ended"] = unfinished["status"] != "interrupted"
    unfinished = unfinished.sort_values(["ended", "status", "reason"])
    tried = trial[unfinished.index]
    ran_again = tried.index[tried.isin(trial[trained.index]) | tried.duplicated(keep="last")]
    copies = trained.index[trained.drop(columns=DIGEST, errors="ignore").duplicated()]
    if len(ran_again):
        left_out.append(f"{len(ran_again)} row(s) of failed or stopped trials that ran again")
    if len(copies):
        left_out.append(f"{len(copies)} duplicate row(s) of trials")
    # Two versions that alternate in one session both have a trial of the same number.
    by_version = pd.MultiIndex.from_arrays([trial[trained.index], trained["commit"]])
    contested = pd.Series(by_version.factorize()[0], trained.index)
    return _with_conflicts(frame.drop(index=ran_again.union(copies)), contested, file_of)


def _with_conflicts(frame: pd.DataFrame, trial: "pd.Series[int]", file_of: Callable[[int], object]) -> pd.DataFrame:
    """Return the rows; those that share a number in `trial` become conflicts. The reason names files of copies, too."""
    kept = trial[trial.index.isin(frame.index)]
    conflicting = kept[kept.duplicated(keep=False)]
    if conflicting.empty:
        return frame
    values = frame.loc[conflicting.index].groupby(conflicting).nunique(dropna=False)
    differing = [name for name in COLUMNS if name in values and name != DIGEST and (values[name] > 1).any()]
    names = sorted(differing, key=lambda name: name != "seconds")[:NAMED]
    files = sorted({str(file_of(place)) for place in trial.index[trial.isin(conflicting)]})
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    reason = f"rows of one trial differ in {', '.join(names)} ({', '.join(files[:NAMED])}{more})"
    contradicting = frame.index.isin(conflicting.index)
    return frame.assign(
        status=frame["status"].mask(contradicting, CONFLICT), reason=frame["reason"].mask(contradicting, reason)
    )


def _axes(by: str | None, params: "pd.Series[str]") -> tuple[str, ...]:
    """Return the columns, and parameters in `params`, that `--by` names, else USUAL_AXES. Raises UserError."""
    axes = [{"batch": "batch_size"}.get(name.strip(), name.strip()) for name in by.split(",")] if by else []
    for axis in axes:
        is_known = axis not in {*UNREAD, "batch_curve"} and (
            not matching.is_parameter(axis) or any(axis in params_of(text) for text in params.unique())
        )
        if not is_known:
            raise UserError(f"--by {axis}: no such column or parameter; try card, precision, torch, batch_size or mode")
    return tuple(dict.fromkeys(axes)) or USUAL_AXES


def _workload(
    members: list[Group],
    axes: Sequence[str],
    baseline: tuple[str, str] | None,
    question: Question,
    metric: Metric,
    switches: Collection[str],
) -> Workload:
    """Return a workload of these groups with their comparisons, not yet judged."""
    comparisons: list[Comparison] = []
    left_out: list[str] = []
    for axis in axes:
        pairs = matching.pairs_along(
            axis,
            # Models of an ablation are compared with `plain`, below.
            [group for group in members if not (axis == "model" and matching.is_ablation(group))],
            baseline,
            left_out,
            explicit=question.by is not None,
            best_is_base=metric.by_loss,
        )
        choices = 2 if baseline and baseline[0] == axis else matching.choices_of(axis, members)
        comparisons += [replace(verdicts.comparison(axis, *pair), choices=choices) for pair in pairs]
    comparisons += [
        verdicts.plain_comparison(subject, plain) for subject, plain in matching.plain_pairs(members, switches)
    ]
    return Workload(members, comparisons, left_out=tuple(dict.fromkeys(left_out)))


def _place_holes(
    holes: Sequence[Group], workloads: list[Workload], shared: Sequence[str], switches: Collection[str]
) -> None:
    """Add each hole to the first workload with the same key, or to a new workload."""
    by_key = {matching.workload_key(workload.groups[0], shared, switches): workload for workload in reversed(workloads)}
    for hole in holes:
        key = matching.workload_key(hole, shared, switches)
        if key not in by_key:
            by_key[key] = Workload([])
            workloads.append(by_key[key])
        by_key[key].holes.append(hole)


def _judged(workloads: Sequence[Workload], metric: Metric) -> list[Workload]:
    """Return the workloads with verdicts. Holm's correction is over all their ratios."""
    family = [c for workload in workloads for c in workload.comparisons]
    if metric.name == "time-to-goal":
        family = list(map(verdicts.without_verdict_if_missed, family))
    # Trainings that were cut short would be the least accurate ones.
    fatal = CUT_SHORT if metric.statuses == TRAINED else ("timed_out",)
    family = [verdicts.with_losses(c, fatal) for c in family]
    judged = iter(verdicts.accuracies_judged(family) if metric.by_loss else verdicts.judged(family))
    return [replace(g, comparisons=list(islice(judged, len(g.comparisons)))) for g in workloads]
