"""Ablations: the speedup of each change over the plain pipeline of its session, and the figure that explains it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpubench.analysis.compare import Compared, Workload
from gpubench.analysis.groups import Group
from gpubench.analysis.matching import PLAIN
from gpubench.analysis.metrics import Metric
from gpubench.analysis.verdicts import Comparison
from gpubench.studies import words
from gpubench.studies.cases import behind, cases_table, evidence_table, known
from gpubench.studies.pairs import compares_more, is_change, pair_result
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Estimate, Result, Section, Table, Value


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per group that compares changes with `plain`, the best change first."""
    metric = compared.metric
    for workload in compared.workloads:
        changes = [c for c in workload.comparisons if is_change(c)]
        changes.sort(key=lambda c: -metric.gain_of(c.ratio).value)
        if not changes:
            continue
        title = words.title_of(workload.cases)
        yield Section(
            "ablation",
            changes[0].subject.suite,
            title,
            tuple(_result(c, metric) for c in changes),
            (_table(changes, workload, metric), *_groups(workload, metric)),
            (_chart(changes, title, metric),),
            (),
            workload.left_out,
            words.recipe_of(workload.cases),
            behind(workload.cases),
        )


def _result(c: Comparison, metric: Metric) -> Result:
    """Return the result of one change, named by the subject alone."""
    result = pair_result([c], c.subject.label, "", "", metric)
    origin = f"{c.subject.precision}, {c.subject.suite}"
    return replace(result, kind="ablation", models=("",), origin=origin, facts=words.facts_of(c.other), charts=())


def _groups(workload: Workload, metric: Metric) -> tuple[Table, ...]:
    """Return the tables of cases and evidence, unless `pairs` shows them."""
    return (
        ()
        if compares_more(workload)
        else (cases_table(workload.cases, metric), evidence_table(workload.groups, metric))
    )


def _table(changes: Sequence[Comparison], workload: Workload, metric: Metric) -> Table:
    """Return a line per change, with the reason for changes that could not run."""
    columns = (
        Column("change"),
        Column(metric.gain, "ratio", "higher"),
        Column("verdict"),
        Column("p", "p"),
        Column("peak memory", "bytes", "lower"),
        Column("plain's", "bytes"),
        Column("accuracy", "share", "higher", places=2),
        Column("epochs", "count"),
        Column("plain's epochs", "count"),
        Column("notes", note=True),
    )
    lines: list[tuple[Value, ...]] = []
    for c in changes:
        gain, change, plain = metric.gain_of(c.ratio), c.subject, c.other
        slow = metric.name == "seconds" and c.verdict != "faster"
        note = "; ".join(filter(None, [*c.notes, _evidence(change, plain) if slow else ""]))
        lines.append(
            (
                *(c.subject_name, Estimate(gain.value, gain.low, gain.high), metric.word_of(c.verdict), gain.p),
                *(known(change.peak_memory_bytes), known(plain.peak_memory_bytes), known(change.accuracy)),
                *(known(change.epochs), known(plain.epochs), note),
            )
        )
    nothing = (None,) * (len(columns) - 4)
    lines += [(hole.model, None, hole.status, *nothing, hole.reason) for hole in workload.holes]
    return Table("changes", columns, tuple(lines))


def _best(changes: Sequence[Comparison], metric: Metric) -> str:
    """Return a sentence about the fastest change whose verdict is decided."""
    best = next((c for c in changes if c.verdict == "faster"), None)
    if best is None:
        return f"No change has the verdict {metric.words[0]} over {PLAIN}"
    return words.better(words.name(best.subject_name), PLAIN, metric.gain_of(best.ratio).value, best.verdict, metric)


def _chart(changes: Sequence[Comparison], title: str, metric: Metric) -> Bars:
    """Return the chart of ratios, a dot per change."""
    bar_groups = []
    for c in changes:
        gain = metric.gain_of(c.ratio)
        bar = Bar(
            c.subject_name, gain.value, gain.interval, note=c.verdict if c.verdict in {"same", "undecided"} else ""
        )
        bar_groups.append(BarGroup(c.subject_name, (bar,)))
    groups = [group for c in changes for group in (c.subject, c.other)]
    return Bars(
        words.slug(f"{groups[0].suite} changes {groups[0].label}"),
        _best(changes, metric),
        f"{metric.gain.capitalize()} over {PLAIN}, with 95% intervals; above 1 is {metric.words[0]}; {title}",
        tuple(bar_groups),
        "ratio",
        reference=1.0,
        foot=words.origin(groups),
        cases=behind(groups),
    )


def _evidence(change: Group, plain: Group) -> str:
    """Return the figure that changed most between the two, of those that usually explain a difference."""
    if change.processes != plain.processes:
        rates = f"{_rate(change.samples_per_second)} against {_rate(plain.samples_per_second)} samples/s"
        threads = f", threads={change.number('threads'):.0f} per process instead of {plain.number('threads'):.0f}"
        return f"{rates}: processes={change.processes:.0f}{threads if plain.device == 'cpu' else ''}"
    if change.precision != plain.precision:
        resident = [_rate(group.number("resident_samples_per_second")) for group in (change, plain)]
        return f"{resident[0]} against {resident[1]} samples/s on a resident batch, in {change.precision}"
    if abs(change.epochs - plain.epochs) > 0:  # both known
        return ""  # in the columns
    waits = [group.number("loader_wait") for group in (change, plain)]
    checks = [group.number("valid_seconds") for group in (change, plain)]
    if abs(checks[0] - checks[1]) / plain.median > abs(waits[0] - waits[1]):
        return f"valid_seconds {checks[0]:.2f} against {checks[1]:.2f}"
    return f"loader_wait is {waits[0]:.0%} of the laps, and was {waits[1]:.0%}"


def _rate(value: float) -> str:
    return f"{value:.3g}" if value > 0 else "unknown"
