"""The study `ladder`: models that each add one change, and the speedup of each step. `answer` calls it."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import CUT_SHORT, Group, groups_of, numbered
from gpubench.rows.alike import GROUP, SPECIMEN, WORKLOAD
from gpubench.rows.params import params_of, params_text
from gpubench.studies import words
from gpubench.studies.bound import bound_of
from gpubench.studies.cases import cut_notes, estimate, evidence_table, known
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Result, Section, Table, Value
from gpubench.suite.trial import TRAINED

LIMIT = "compute limit: the training at 100% of the peak"
"""Name of the marks in charts."""


@dataclass(frozen=True)
class Ladder:
    """The rungs of a suite on one specimen in one precision, lowest first."""

    rungs: list[Group]
    """One group per rung, with the trials that missed the goal. `accuracy` and `success_rate` are means over trials."""
    cases: frozenset[int]

    @property
    def name(self) -> str:
        """Return card, author and precision."""
        return f"{self.rungs[0].label} {self.rungs[0].precision}"

    @property
    def settings(self) -> str:
        """Return the parameters of the lowest rung that are neither off nor 0."""
        params = params_of(self.rungs[0].params)
        return params_text({name: text for name, text in params.items() if text not in {"", "0", "0.0", "false"}})

    @property
    def about(self) -> str:
        """Return how the figures were made: measured or projected, mode, source, settings."""
        first = self.rungs[0]
        measured = "projected" if self.projected else first.measured
        return ", ".join(filter(None, [measured, first.mode, first.source, self.settings]))

    @property
    def projected(self) -> bool:
        """Return whether the seconds are projected from a sample."""
        return any(rung.measured == "projected" for rung in self.rungs)

    @property
    def steps(self) -> Iterator[tuple[Group, Group | None]]:
        """Yield each rung that ran with the next lower one that ran, or None for the lowest."""
        return zip(self.rungs, [None, *self.rungs[:-1]], strict=True)


def ladders_of(frame: pd.DataFrame, labels: Mapping[tuple[str, ...], str]) -> list[Ladder]:
    """Return the ladders of the rows; `labels` names their cards."""
    rows = frame[frame["rung"].notna() & frame["status"].isin(TRAINED) & (frame["value"] > 0)]
    ladders = []
    rows = rows.assign(group=numbered(rows, GROUP))
    cut = Counter(frame.loc[frame["status"].isin(CUT_SHORT), "case"])
    for _, trials in rows.groupby([*WORKLOAD, *SPECIMEN, "precision", "batch_policy"], sort=False, dropna=False):
        groups = groups_of(trials, trials["value"] > 0, labels)
        by_model: dict[str, list[Group]] = defaultdict(list)
        for group in groups:
            by_model[group.model].append(group)
        ladders.append(Ladder([_rung(same, trials, cut) for same in by_model.values()], words.behind(groups)))
    return ladders


def _rung(groups: Sequence[Group], trials: pd.DataFrame, cut: Mapping[int, int]) -> Group:
    """Return the group with most trials. Its row has the mean accuracy and the mean success rate of the trials.

    In its row, `left_out` counts trials of the other groups, and `cut` those that diverged or reached the time limit
    (from `cut`, by case; they missed the goal). `in_shares`: a trial's success rate is neither 0 nor 1.
    """
    rung = max(groups, key=lambda group: group.trials)
    left_out = sum(group.trials for group in groups) - rung.trials
    number = trials.loc[trials["identity"] == rung.row["identity"], "group"].iloc[0]
    reached = trials.loc[trials["group"] == number, ["accuracy", "success_rate"]]
    in_shares = not reached["success_rate"].dropna().isin([0.0, 1.0]).all()
    means, lost = reached.mean(), cut.get(rung.case, 0)
    means["success_rate"] *= rung.trials / (rung.trials + lost)
    return replace(rung, row={**rung.row, **means, "in_shares": in_shares, "left_out": left_out, "cut": lost})


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per suite with a ladder; only if `compared.is_usual`."""
    by_suite: dict[str, list[Ladder]] = defaultdict(list)
    for ladder in ladders_of(compared.frame, compared.labels) if compared.is_usual else []:
        by_suite[ladder.rungs[0].suite].append(ladder)
    groups = [group for workload in compared.workloads for group in workload.groups if not math.isnan(group.rung)]
    for suite, ladders in by_suite.items():
        ladders.sort(key=lambda ladder: -len(ladder.rungs))
        results, charts = [], []
        for ladder in ladders:
            rungs = [rung for rung in ladder.rungs if rung.number("success_rate") != 0]
            if len(rungs) > 1:
                results.append(_result(ladder, rungs))
            elif len(ladder.rungs) > 1:
                title = f"{len(rungs)} of {len(ladder.rungs)} steps reached the goal: {ladder.name}"
                charts.append(replace(_chart(ladder, ladder.rungs[0], ladder.rungs[-1]), title=title))
        evidence = evidence_table([group for group in groups if group.suite == suite], compared.metric)
        title = f"{suite}: speedup of each step of its ladder"
        cases = frozenset[int]().union(*(ladder.cases for ladder in ladders))
        tables = (*map(_table, ladders), evidence)
        yield Section("ladder", suite, title, tuple(results), tables, tuple(charts), cases=cases)


def _result(ladder: Ladder, rungs: Sequence[Group]) -> Result:
    """Return the result of all steps: the last of `rungs` over the first. Rungs that always missed are left out."""
    first, last = rungs[0], rungs[-1]
    trials = min(rung.trials for rung in rungs)
    # A note on only one of the two rungs is a caveat.
    notes = {rung.model: _notes(rung) for rung in (first, last)}
    shared = set(notes[first.model]) & set(notes[last.model])
    return Result(
        kind="ladder",
        suite=last.suite,
        subject=last.model,
        baseline=first.model,
        value=first.median / last.median,
        verdict=words.without_test((trials, trials)),
        models=(f"{len(rungs) - 1} change{'s' * (len(rungs) > 2)}",),
        trials=(last.trials, first.trials),
        said=_sentence(first, last),
        precision=last.precision,
        place=last.label,
        origin=last.suite,
        facts={"kind": last.source or last.mode, "settings": ladder.settings},
        caveats=tuple(f"{model}: {note}" for model in notes for note in notes[model] if note not in shared),
        projected=ladder.projected,
        charts=(_chart(ladder, first, last),),
        cases=ladder.cases,
    )


def _notes(rung: Group) -> list[str]:
    """Return how many trials were left out, how many have each mark, and the remarks of a row that reached its goal."""
    left_out = rung.row["left_out"]
    notes = [f"{left_out} trial{'s' * (left_out > 1)} of another batch, torch or code left out"] if left_out else []
    notes += cut_notes(rung.row["cut"], rung.trials)
    return [*notes, *words.marks_of([rung]), *(rung.reason.split("; ") if rung.reason and rung.status == "ok" else [])]


def _sentence(first: Group, last: Group) -> str:
    gain = words.times(first.median / last.median)
    where = f"in {last.precision} on {words.name(last.label)}"
    return f"The steps from {first.model} to {last.model} make training {gain} as fast {where}"


def _table(ladder: Ladder) -> Table:
    lines = [_line(rung, before) for rung, before in ladder.steps]
    return Table.of(f"{ladder.name} ({ladder.about})", lines)


def _line(rung: Group, before: Group | None) -> dict[Column, Value]:
    bound = bound_of(rung.row)
    limit, share = bound.limit_seconds, known(rung.number("success_rate"))
    return {
        Column("step"): rung.model,
        Column("epochs", "count"): known(rung.epochs),
        Column("batch", "count"): known(rung.batch_size),
        Column("seconds", "s", "lower"): estimate(rung),
        Column("gain", "ratio", "higher", places=2): before.median / rung.median if before else None,
        Column("since"): before.model if before and rung.rung - before.rung > 1 else "",
        Column("samples/s", "samples/s", "higher"): rung.samples_per_second,
        Column("trials", "count"): rung.trials,
        Column("mean accuracy", "share", "higher", places=2): known(rung.accuracy),
        Column("reached the goal"): _reached(rung),
        # Expected time until a run reaches the goal, failed runs included.
        Column("seconds to a success", "s", "lower"): rung.median / share if share else None,
        Column("limit, s", "s"): limit,
        Column("limit / seconds", "share", places=0): limit / rung.median if limit else None,
        Column("peak"): bound.peak if limit else "",
        Column("notes", note=True): "; ".join(_notes(rung)),
    }


def _reached(rung: Group) -> str:
    """Return how many trials reached the goal, or the share of runs if trials have several runs."""
    share = known(rung.number("success_rate"))
    if share is None:
        return ""
    tried = rung.trials + rung.row["cut"]
    return f"{share:.0%} of the runs" if rung.row["in_shares"] else f"{share * tried:.0f} of {tried}"


def _chart(ladder: Ladder, first: Group, last: Group) -> Bars:
    """Return the chart: a bar per rung, its speedup, and a mark at the limit. `first` and `last` are in its title."""
    bar_groups = []
    for rung, before in ladder.steps:
        gain = before.median / rung.median if before else None
        missed = rung.number("success_rate") < 1
        note = f"{_reached(rung).removesuffix(' of the runs')} at goal" if missed else ""
        bar = Bar(ladder.name, rung.median, rung.interval, note=note)
        bar_groups.append(BarGroup(rung.model, (bar,), f"{words.gain(gain)}x" if gain else "", worse=(gain or 1) < 1))
    limits = {rung.model: limit for rung in ladder.rungs if (limit := bound_of(rung.row).limit_seconds)}
    seconds = f"Seconds per run{f', {words.PROJECTED}' * ladder.projected}, by step"
    return Bars(
        words.slug(f"{first.suite} ladder {first.model} to {last.model} {ladder.name}"),
        _sentence(first, last),
        f"{seconds}; right: speedup of the step; lower is better",
        tuple(bar_groups),
        "s",
        winner=ladder.name,
        marks={LIMIT: limits} if limits else {},
        foot=words.without_commit(ladder.about),
        cases=ladder.cases,
    )
