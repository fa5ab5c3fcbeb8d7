"""The study `ablation`: the speedup of each change to a plain training; why some are not faster. `answer` calls it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpubench.analysis.compare import Compared, Workload
from gpubench.analysis.groups import Group
from gpubench.analysis.matching import PLAIN
from gpubench.analysis.metrics import Metric
from gpubench.analysis.verdicts import Comparison, groups_in
from gpubench.studies import words
from gpubench.studies.cases import cases_table, evidence_table, known, rate_text
from gpubench.studies.pairs import compares_more, is_change, pair_result
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Estimate, Result, Section, Table, Value
from gpubench.studies.sides import why_lost


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per workload in which changes are compared with `plain`, the best change first."""
    metric = compared.metric
    for workload in compared.workloads:
        changes = [c for c in workload.comparisons if is_change(c)]
        changes.sort(key=lambda c: -metric.gain_of(c.ratio).value)
        if not changes:
            continue
        title = words.title_of(workload.cases)
        of_pairs = [cases_table(workload.cases, metric), evidence_table(workload.groups, metric)]
        yield words.section_of(
            workload.cases,
            "ablation",
            results=[_result(c, metric) for c in changes],
            tables=(_table(changes, workload, metric), *([] if compares_more(workload) else of_pairs)),
            charts=(_chart(changes, title, metric),),
            left_out=workload.left_out,
        )


def _result(c: Comparison, metric: Metric) -> Result:
    """Return the result of one change. It names no model, because its subject is the model."""
    result = pair_result([c], metric)
    origin = f"{c.subject.precision}, {c.subject.suite}"
    return replace(result, kind="ablation", models=("",), origin=origin, facts=words.facts_of(c.other), charts=())


def _table(changes: Sequence[Comparison], workload: Workload, metric: Metric) -> Table:
    """Return the table: a line per change, with the reason if it could not run."""
    lines = [_line(c, metric) for c in changes]
    for hole in workload.holes:
        why = why_lost(hole, metric)
        lines.append({Column("change"): hole.model, Column("verdict"): why, Column("notes", note=True): hole.reason})
    return Table.of("changes", lines)


def _line(c: Comparison, metric: Metric) -> dict[Column, Value]:
    gain, change, plain = metric.gain_of(c.ratio), c.subject, c.other
    is_slow = metric.name == "seconds" and c.verdict != "faster"
    return {
        Column("change"): c.subject_name,
        Column(metric.gain, metric.gain_unit, "higher"): Estimate(gain.value, gain.low, gain.high),
        Column("verdict"): metric.word_of(c.verdict),
        Column("p", "p"): gain.p,
        Column("peak memory", "bytes", "lower"): known(change.peak_memory_bytes),
        Column("plain's memory", "bytes"): known(plain.peak_memory_bytes),
        Column("accuracy", "share", "higher", places=2): known(change.accuracy),
        Column("epochs", "count"): known(change.epochs),
        Column("plain's epochs", "count"): known(plain.epochs),
        Column("notes", note=True): "; ".join(filter(None, [*c.notes, _evidence(change, plain) if is_slow else ""])),
    }


def _chart(changes: Sequence[Comparison], title: str, metric: Metric) -> Bars:
    """Return the chart of ratios, a dot per change. Its title is about the best change with the verdict faster."""
    faster = [
        words.better(c.subject_name, PLAIN, metric.gain_of(c.ratio).value, c.verdict, metric)
        for c in changes
        if c.verdict == "faster"
    ]
    bar_groups = []
    for c in changes:
        gain, note = metric.gain_of(c.ratio), c.verdict if c.verdict in {"same", "undecided"} else ""
        bar_groups.append(BarGroup(c.subject_name, (Bar(c.subject_name, gain.value, gain.interval, note=note),)))
    groups, even = groups_in(changes), 0 if metric.by_loss else 1
    return Bars(
        words.slug(f"{groups[0].suite} changes {groups[0].label}"),
        faster[0] if faster else f"No change is {metric.words[0]} than {PLAIN} by its verdict",
        f"{metric.gain.capitalize()} over {PLAIN}, with 95% intervals; above {even} is {metric.words[0]}; {title}",
        tuple(bar_groups),
        metric.gain_unit,
        reference=float(even),
        foot=words.chart_foot(groups),
        cases=words.behind(groups),
    )


def _evidence(change: Group, plain: Group) -> str:
    """Return the likely reason why a change is not faster, with figures; empty if epochs differ or none is known."""
    if change.processes != plain.processes:
        rates = f"{rate_text(change.samples_per_second)} samples/s ({PLAIN}: {rate_text(plain.samples_per_second)})"
        processes = f"processes={change.processes:.0f} ({PLAIN}: {plain.processes:.0f})"
        threads = f", threads={change.number('threads'):.0f} per process ({PLAIN}: {plain.number('threads'):.0f})"
        return f"{rates}; {processes}{threads if plain.device == 'cpu' else ''}"
    if change.precision != plain.precision:
        resident = [rate_text(group.number("resident_samples_per_second")) for group in (change, plain)]
        return f"{resident[0]} samples/s in {change.precision} on a resident batch ({PLAIN}: {resident[1]})"
    if abs(change.epochs - plain.epochs) > 0:  # False if one is NaN
        return ""  # the table has the epochs
    waits = [group.number("loader_wait") for group in (change, plain)]
    checks = [group.number("valid_seconds") for group in (change, plain)]
    if abs(checks[0] - checks[1]) / plain.median > abs(waits[0] - waits[1]):
        return f"valid_seconds {checks[0]:.2f} ({PLAIN}: {checks[1]:.2f})"
    return "" if math.isnan(sum(waits)) else f"loader_wait is {waits[0]:.0%} of the laps ({PLAIN}: {waits[1]:.0%})"
