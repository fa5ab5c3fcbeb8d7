"""Ladders: models that each add one change to the one before, the speedup of each step, and the compute limit."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from gpubench.analysis import stats
from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import LABELLED, Group, marks_in, texts_of
from gpubench.rows.alike import SPECIMEN, WORKLOAD
from gpubench.rows.params import params_of, params_text
from gpubench.rows.read import shown
from gpubench.studies import words
from gpubench.studies.bound import bound_of
from gpubench.studies.cases import evidence_table, known
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Estimate, Result, Section, Table, Value
from gpubench.suite.trial import TRAINED

LIMIT = "compute limit: the training at 100% of the peak"
"""Name of the marks in charts."""
LIMITING = ("flops_per_sample", "run_samples", "measured_peak_flops", "samples_per_second")
"""Columns of which the limit depends on the medians."""


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per suite with a ladder; only for the metric seconds."""
    by_suite: dict[str, list[Ladder]] = defaultdict(list)
    for ladder in ladders_of(compared.frame, compared.labels) if compared.is_usual else []:
        by_suite[ladder.suite].append(ladder)
    for suite, ladders in by_suite.items():
        ladders.sort(key=lambda ladder: -len(ladder.rungs))
        yield Section(
            "ladder",
            suite,
            f"{suite}: speedup of each step of its ladder",
            tuple(result for ladder in ladders for result in _results(ladder)),
            (*map(_table, ladders), evidence_table(_groups(suite, compared), compared.metric)),
            tuple(_chart(ladder) for ladder in ladders if len(ladder.rungs) > 1 and not list(_results(ladder))),
            cases=frozenset[int]().union(*(ladder.cases for ladder in ladders)),
        )


def _groups(suite: str, compared: Compared) -> list[Group]:
    groups = [group for workload in compared.workloads for group in workload.groups]
    return [group for group in groups if group.suite == suite and not math.isnan(group.rung)]


def _results(ladder: "Ladder") -> Iterator[Result]:
    """Yield the speedup of all steps, from the first rung to the last that reached its goal."""
    rungs = [rung for rung in ladder.rungs if rung.success_rate is None or rung.success_rate > 0]
    if len(rungs) < 2:
        return
    first, last = rungs[0], rungs[-1]
    yield Result(
        kind="ladder",
        suite=ladder.suite,
        subject=last.model,
        baseline=first.model,
        value=first.median / last.median,
        verdict="one run" if min(len(rung.seconds) for rung in rungs) == 1 else "no test",
        models=(f"{len(rungs) - 1} step{'s' * (len(rungs) > 2)}",),
        trials=(len(last.seconds), len(first.seconds)),
        said=_sentence(ladder, first, last),
        precision=ladder.precision,
        place=ladder.label,
        origin=ladder.suite,
        facts={"kind": ladder.source or ladder.mode, "settings": ladder.settings},
        caveats=_unlike(first, last),
        projected=ladder.projected,
        charts=(_chart(ladder, last),),
        cases=ladder.cases,
    )


def _unlike(first: "Rung", last: "Rung") -> tuple[str, ...]:
    """Return the notes that only one of the two rungs has, as caveats."""
    ends = [(rung.model, rung.notes.split("; ")) for rung in (first, last)]
    shared = set(ends[0][1]) & set(ends[1][1])
    return tuple(f"{model}: {note}" for model, notes in ends for note in notes if note and note not in shared)


def _sentence(ladder: "Ladder", first: "Rung", last: "Rung") -> str:
    gain = (
        f"The steps from {first.model} to {last.model} make training {words.times(first.median / last.median)} as fast"
    )
    return f"{gain} in {ladder.precision} on {words.name(ladder.label)}"


def _table(ladder: "Ladder") -> Table:
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
        limit: tuple[Value, ...] = (rung.limit, rung.limit / rung.median, rung.peak) if rung.limit else (None, None, "")
        since = last.model if last and rung.number - last.number > 1 else ""
        lines.append(
            (
                *(rung.model, rung.epochs, rung.batch, Estimate(rung.median, *(rung.interval or (None, None)))),
                *(gain, since, rung.rate, len(rung.seconds), rung.accuracy, _reached(rung), rung.expected_seconds),
                *(*limit, rung.notes),
            )
        )
    return Table(f"{ladder.name} ({ladder.about})", tuple(columns), tuple(lines))


def _reached(rung: "Rung") -> str:
    """Return how many trials reached the goal, or the share of runs if trials have several runs."""
    if rung.success_rate is None:
        return ""
    many = rung.success_rate * len(rung.seconds)
    return f"{many:.0f} of {len(rung.seconds)}" if rung.one_run_each else f"{rung.success_rate:.0%} of the runs"


def _chart(ladder: "Ladder", last: "Rung | None" = None) -> Bars:
    """Return the chart with a bar per rung, its speedup, and a mark at the compute limit."""
    bar_groups = []
    for rung, gain in zip(ladder.rungs, ladder.gains(), strict=True):
        missed = rung.success_rate is not None and rung.success_rate < 1
        note = f"{_reached(rung).removesuffix(' of the runs')} at goal" if missed else ""
        bar = Bar(ladder.name, rung.median, rung.interval, note=note)
        bar_groups.append(BarGroup(rung.model, (bar,), f"{words.gain(gain)}x" if gain else "", worse=(gain or 1) < 1))
    limits = {rung.model: rung.limit for rung in ladder.rungs if rung.limit}
    first, last = ladder.rungs[0], last or ladder.rungs[-1]
    seconds = f"Seconds per run{f', {words.PROJECTED}' * ladder.projected}, by step"
    return Bars(
        words.slug(f"{ladder.suite} ladder {first.model} to {last.model} {ladder.name}"),
        _sentence(ladder, first, last),
        f"{seconds}; right: speedup of the step; lower is better",
        tuple(bar_groups),
        "s",
        winner=ladder.name,
        marks={LIMIT: limits} if limits else {},
        foot=ladder.foot,
        cases=ladder.cases,
    )


@dataclass(frozen=True)
class Rung:
    """All trials of one rung."""

    number: int
    model: str
    batch: int | None
    epochs: int | None
    seconds: tuple[float, ...]
    accuracy: float | None
    """Mean over the trials that have one."""
    success_rate: float | None
    """Share of the runs that reached the goal."""
    one_run_each: bool
    """Whether each trial was one run."""
    rate: float
    """Median samples/s; NaN if unknown."""
    interval: tuple[float, float] | None
    """The 95% interval of the median; None below six trials."""
    notes: str
    """How many trials have each mark, and the reasons in their rows."""
    limit: float | None
    """Training seconds at 100% of the dense peak, if known."""
    peak: str
    """The kind of peak: `listed` if the card is known, else `measured`."""

    @property
    def median(self) -> float:
        """Return the median seconds of a run, whether or not it reached the goal."""
        return stats.median(self.seconds)

    @property
    def expected_seconds(self) -> float | None:
        """Return the expected seconds until a run reaches the goal, with repeats; None if no run did."""
        return self.median / self.success_rate if self.success_rate else None


@dataclass(frozen=True)
class Ladder:
    """The rungs of a suite on one specimen in one precision, lowest first."""

    suite: str
    label: str
    """Card, and the author of published figures."""
    precision: str
    measured: str
    """`measured` or `projected`."""
    mode: str
    source: str
    settings: str
    """Parameters that are neither off nor 0."""
    rungs: list[Rung]
    cases: frozenset[int]

    @property
    def name(self) -> str:
        """Return card, author and precision."""
        return f"{self.label} {self.precision}"

    @property
    def about(self) -> str:
        """Return how the figures were made: measured or projected, mode, source, settings."""
        return ", ".join(filter(None, [self.measured, self.mode, self.source, self.settings]))

    @property
    def foot(self) -> str:
        """Return the same without the commit of the source, for a chart."""
        return words.place_of(self.about)

    @property
    def projected(self) -> bool:
        """Return whether the seconds are projected from a sample."""
        return self.measured == "projected"

    def gains(self) -> list[float | None]:
        """Return the speedup of each rung over the rung before it that ran."""
        times = [rung.median for rung in self.rungs]
        return [None, *(before / now for before, now in pairwise(times))]


def ladders_of(frame: pd.DataFrame, labels: Mapping[tuple[str, ...], str]) -> list[Ladder]:
    """Return the ladders of the rows; `labels` names their cards."""
    rows = frame[frame["rung"].notna() & frame["status"].isin(TRAINED) & (frame["value"] > 0)]
    ladders = []
    for _, trials in rows.groupby([*WORKLOAD, *SPECIMEN, "precision", "batch_policy"], sort=False, dropna=False):
        first: dict[str, Any] = {str(name): value for name, value in trials.iloc[0].items()}
        sizes = trials.groupby(["rung", "model", "batch_size"], dropna=False, sort=True)
        rungs = [_rung(part) for _, part in sizes]
        # Of several batches of a rung, the one with most trials counts.
        best: dict[str, Rung] = {}
        for rung in rungs:
            if rung.model not in best or len(rung.seconds) > len(best[rung.model].seconds):
                best[rung.model] = rung
        label = labels[tuple(map(shown, texts_of(first, LABELLED)))]  # as groups have it
        cases = frozenset(map(int, trials["case"].unique()))
        measured = "projected" if (trials["measured"] == "projected").any() else str(first["measured"])
        mode, source = shown(str(first["mode"])), shown(str(first["source"]))
        facts = str(first["suite"]), label, str(first["precision"]), measured, mode, source, _settings(first)
        ladders.append(Ladder(*facts, list(best.values()), cases))
    return ladders


def _rung(rows: pd.DataFrame) -> Rung:
    first = rows.iloc[0]
    # Without dropna, pandas before 3 warns if all values are missing.
    medians = {name: rows[name].dropna().median() for name in LIMITING}
    bound = bound_of({**first, **medians})
    return Rung(
        number=int(first["rung"]),
        model=str(first["model"]),
        batch=None if pd.isna(first["batch_size"]) else int(first["batch_size"]),
        epochs=None if pd.isna(first["epochs"]) else int(first["epochs"]),
        seconds=tuple(rows["value"]),
        accuracy=known(float(rows["accuracy"].mean())),
        success_rate=known(float(rows["success_rate"].mean())),
        one_run_each=bool(rows["success_rate"].dropna().isin([0.0, 1.0]).all()),
        rate=float(rows["samples_per_second"].dropna().median()),
        interval=stats.median_interval(tuple(rows["value"]), bool((rows["until"] > 0).any())),
        notes=_notes(rows),
        limit=bound.limit_seconds,
        peak=bound.peak,
    )


def _notes(rows: pd.DataFrame) -> str:
    notes = words.marked(marks_in(rows), len(rows))
    return "; ".join([*notes, *dict.fromkeys(shown(str(why)) for why in rows["reason"][rows["status"] == "ok"] if why)])


def _settings(row: Mapping[str, Any]) -> str:
    settings = params_of(row["params"])
    return shown(params_text({name: text for name, text in settings.items() if text not in {"", "0", "0.0", "false"}}))
