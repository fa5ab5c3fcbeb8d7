"""Ladders: models that each add one change to the one before, the speedup of each step, and the compute limit."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pandas as pd

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import Group, groups_of
from gpubench.rows.alike import SPECIMEN, WORKLOAD
from gpubench.rows.params import params_of, params_text
from gpubench.studies import words
from gpubench.studies.bound import bound_of
from gpubench.studies.cases import behind, estimate, evidence_table, known
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Result, Section, Table, Value
from gpubench.suite.trial import TRAINED

LIMIT = "compute limit: the training at 100% of the peak"
"""Name of the marks in charts."""


@dataclass(frozen=True)
class Ladder:
    """The rungs of a suite on one specimen in one precision, lowest first."""

    rungs: list[Group]
    """Also trials below the target accuracy; `accuracy` and `success_rate` are means over the trials of a rung."""
    cases: frozenset[int]

    @property
    def name(self) -> str:
        """Return card, author and precision."""
        return f"{self.rungs[0].label} {self.rungs[0].precision}"

    @property
    def settings(self) -> str:
        """Return the parameters that are neither off nor 0."""
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

    def gains(self) -> list[float | None]:
        """Return the speedup of each rung over the rung before it that ran."""
        times = [rung.median for rung in self.rungs]
        return [None, *(before / now for before, now in pairwise(times))]


def ladders_of(frame: pd.DataFrame, labels: Mapping[tuple[str, ...], str]) -> list[Ladder]:
    """Return the ladders of the rows; `labels` names their cards."""
    rows = frame[frame["rung"].notna() & frame["status"].isin(TRAINED) & (frame["value"] > 0)]
    ladders = []
    for _, trials in rows.groupby([*WORKLOAD, *SPECIMEN, "precision", "batch_policy"], sort=False, dropna=False):
        groups = groups_of(trials, trials["value"] > 0, labels)
        by_model: dict[str, list[Group]] = defaultdict(list)
        for group in groups:
            by_model[group.model].append(group)
        ladders.append(Ladder([_rung(same, trials) for same in by_model.values()], behind(groups)))
    return ladders


def _rung(groups: Sequence[Group], trials: pd.DataFrame) -> Group:
    """Return the group with most trials, with means of what they reached, and how many of the others are left out.

    `in_shares`: some trials had several runs.
    """
    rung = max(groups, key=lambda group: group.trials)
    left_out = sum(group.trials for group in groups) - rung.trials
    reached = trials.loc[trials["case"] == rung.case, ["accuracy", "success_rate"]]
    in_shares = not reached["success_rate"].dropna().isin([0.0, 1.0]).all()
    return replace(rung, row={**rung.row, **reached.mean(), "in_shares": in_shares, "left_out": left_out})


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per suite with a ladder; only for the metric seconds."""
    by_suite: dict[str, list[Ladder]] = defaultdict(list)
    for ladder in ladders_of(compared.frame, compared.labels) if compared.is_usual else []:
        by_suite[ladder.rungs[0].suite].append(ladder)
    groups = [group for workload in compared.workloads for group in workload.groups if not math.isnan(group.rung)]
    for suite, ladders in by_suite.items():
        ladders.sort(key=lambda ladder: -len(ladder.rungs))
        results, charts = [], []
        for ladder in ladders:
            result = _result(ladder)
            if result:
                results.append(result)
            elif len(ladder.rungs) > 1:
                charts.append(_chart(ladder, ladder.rungs[-1]))
        evidence = evidence_table([group for group in groups if group.suite == suite], compared.metric)
        title = f"{suite}: speedup of each step of its ladder"
        cases = frozenset[int]().union(*(ladder.cases for ladder in ladders))
        tables = (*map(_table, ladders), evidence)
        yield Section("ladder", suite, title, tuple(results), tables, tuple(charts), cases=cases)


def _result(ladder: Ladder) -> Result | None:
    """Return the speedup of all steps, from the first rung to the last that reached its goal; None below two."""
    rungs = [rung for rung in ladder.rungs if rung.number("success_rate") != 0]
    if len(rungs) < 2:
        return None
    first, last = rungs[0], rungs[-1]
    return Result(
        kind="ladder",
        suite=last.suite,
        subject=last.model,
        baseline=first.model,
        value=first.median / last.median,
        verdict="one run" if min(rung.trials for rung in rungs) == 1 else "no test",
        models=(f"{len(rungs) - 1} step{'s' * (len(rungs) > 2)}",),
        trials=(last.trials, first.trials),
        said=_sentence(first, last),
        precision=last.precision,
        place=last.label,
        origin=last.suite,
        facts={"kind": last.source or last.mode, "settings": ladder.settings},
        caveats=_unlike(first, last),
        projected=ladder.projected,
        charts=(_chart(ladder, last),),
        cases=ladder.cases,
    )


def _notes(rung: Group) -> list[str]:
    """Return the trials left out, how many have each mark, and the remarks of a row that reached its goal."""
    left_out = rung.row["left_out"]
    notes = [f"{left_out} trial{'s' * (left_out > 1)} of another batch, torch or code left out"] if left_out else []
    return [*notes, *words.marks_of([rung]), *(rung.reason.split("; ") if rung.reason and rung.status == "ok" else [])]


def _unlike(first: Group, last: Group) -> tuple[str, ...]:
    """Return the notes that only one of the two rungs has, as caveats."""
    shared = {*_notes(first)} & {*_notes(last)}
    return tuple(f"{rung.model}: {note}" for rung in (first, last) for note in _notes(rung) if note not in shared)


def _sentence(first: Group, last: Group) -> str:
    gain = words.times(first.median / last.median)
    where = f"in {last.precision} on {words.name(last.label)}"
    return f"The steps from {first.model} to {last.model} make training {gain} as fast {where}"


def _table(ladder: Ladder) -> Table:
    columns = [
        Column("step"),
        Column("epochs", "count"),
        Column("batch", "count"),
        Column("seconds", "s", "lower"),
        Column("gain", "ratio", "higher", places=2),
        Column("since"),
        Column("samples/s", "samples/s", "higher"),
        Column("trials", "count"),
        Column("mean accuracy", "share", "higher", places=2),
        Column("reached the goal"),
        Column("seconds to a success", "s", "lower"),
        Column("limit", "s"),
        Column("of the limit", "share", places=0),
        Column("peak"),
        Column("notes", note=True),
    ]
    before = [None, *ladder.rungs]
    lines = []
    for rung, gain, last in zip(ladder.rungs, ladder.gains(), before, strict=False):
        bound = bound_of(rung.row)
        limit: tuple[Value, ...] = (None, None, "")
        if bound.limit_seconds:
            limit = (bound.limit_seconds, bound.limit_seconds / rung.median, bound.peak)
        since = last.model if last and rung.rung - last.rung > 1 else ""
        lines.append(
            (
                *(rung.model, known(rung.epochs), known(rung.batch_size), estimate(rung), gain, since),
                *(rung.samples_per_second, rung.trials, known(rung.accuracy), _reached(rung), seconds_to_success(rung)),
                *(*limit, "; ".join(_notes(rung))),
            )
        )
    return Table(f"{ladder.name} ({ladder.about})", tuple(columns), tuple(lines))


def seconds_to_success(rung: Group) -> float | None:
    """Return the expected seconds until a run reaches the goal, with repeats; None if no run did."""
    share = known(rung.number("success_rate"))
    return rung.median / share if share else None


def _reached(rung: Group) -> str:
    """Return how many trials reached the goal, or the share of runs if trials have several runs."""
    share = known(rung.number("success_rate"))
    if share is None:
        return ""
    return f"{share:.0%} of the runs" if rung.row["in_shares"] else f"{share * rung.trials:.0f} of {rung.trials}"


def _chart(ladder: Ladder, last: Group) -> Bars:
    """Return the chart with a bar per rung, its speedup, and a mark at the compute limit."""
    bar_groups = []
    for rung, gain in zip(ladder.rungs, ladder.gains(), strict=True):
        missed = rung.number("success_rate") < 1
        note = f"{_reached(rung).removesuffix(' of the runs')} at goal" if missed else ""
        bar = Bar(ladder.name, rung.median, rung.interval, note=note)
        bar_groups.append(BarGroup(rung.model, (bar,), f"{words.gain(gain)}x" if gain else "", worse=(gain or 1) < 1))
    limits = {rung.model: limit for rung in ladder.rungs if (limit := bound_of(rung.row).limit_seconds)}
    first = ladder.rungs[0]
    seconds = f"Seconds per run{f', {words.PROJECTED}' * ladder.projected}, by step"
    return Bars(
        words.slug(f"{first.suite} ladder {first.model} to {last.model} {ladder.name}"),
        _sentence(first, last),
        f"{seconds}; right: speedup of the step; lower is better",
        tuple(bar_groups),
        "s",
        winner=ladder.name,
        marks={LIMIT: limits} if limits else {},
        foot=words.place_of(ladder.about),
        cases=ladder.cases,
    )
