"""Pairs: one card, precision or version over another, pooled over the models that both have."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpubench.analysis import stats
from gpubench.analysis.compare import Compared, Workload
from gpubench.analysis.groups import short, text_of, texts_of
from gpubench.analysis.matching import FULL, TWIN_POLICIES, axis_value, is_ablation
from gpubench.analysis.metrics import Metric
from gpubench.analysis.verdicts import OUT_OF_TURN, Comparison, out_of_turn, pooled
from gpubench.studies import words
from gpubench.studies.cases import behind, cases_table, evidence_table, interval_of, policy_text
from gpubench.studies.pair_charts import charts_of, pictures
from gpubench.studies.section import (
    DECIDED,
    Column,
    Estimate,
    Part,
    Result,
    Section,
    Table,
    Value,
)

MASTER = "fp16-master"
"""The precision of 2019, called mixed if a group has no other reduced precision."""
IS_MIXED = f"mixed precision is {MASTER} here: an fp16 model with fp32 master weights"
WIDE = 2.0
"""If the largest ratio is this many times the smallest, the range is shown instead of the mean."""


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per group, unless other studies show all its groups."""
    for workload in compared.workloads:
        comparisons = [c for c in workload.comparisons if not is_change(c)]
        if not comparisons and _is_shown_elsewhere(workload, compared):
            continue
        results = tuple(_results(workload, comparisons, compared))
        groups = workload.cases
        yield Section(
            "pairs",
            groups[0].suite,
            words.title_of(groups),
            results,
            tuple(_tables(workload, comparisons, compared.metric)),
            tuple(charts_of(workload, compared)),
            (IS_MIXED,) if _is_mixed(workload) and results else (),
            left_out=(*workload.left_out, *without_compared(workload, compared)),
            recipe=words.recipe_of(groups),
            cases=behind(groups),
        )


def is_change(c: Comparison) -> bool:
    """Return whether this compares a change of an ablation with the plain model."""
    return c.axis == "model" and is_ablation(c.subject)


def compares_more(workload: Workload) -> bool:
    """Return whether the group compares more than changes of an ablation."""
    return any(not is_change(c) for c in workload.comparisons)


def _is_shown_elsewhere(workload: Workload, compared: Compared) -> bool:
    """Return whether other studies show all groups: changes of an ablation, batches, or rungs."""
    if any(map(is_change, workload.comparisons)):
        return True
    if not compared.is_usual:
        return False
    if all("batch" in group.studies.split() and not math.isnan(group.accuracy) for group in workload.cases):
        return True
    models = {group.model for group in workload.groups if not math.isnan(group.rung)}
    kinds = {(group.label, group.precision, group.batch_policy) for group in workload.groups}
    return len(models) == len(workload.groups) and len(kinds) == 1 and not workload.holes


def without_compared(workload: Workload, compared: Compared) -> list[str]:
    """Return why a group compares nothing: the values of a compared column whose rows all failed."""
    if compares_more(workload):
        return []
    lost: dict[str, str] = {}
    for axis in compared.axes:
        there = {axis_value(group, axis) for group in workload.groups}
        missing = [hole for hole in workload.holes if axis_value(hole, axis) not in there]
        if len(there | {axis_value(hole, axis) for hole in missing}) > 1:
            whys = [(hole, "no figure" if hole.status == "ok" else hole.status.replace("_", " ")) for hole in missing]
            lost |= {axis_value(hole, axis): why for hole, why in whys}
    return [f"{value} has no result ({status})" for value, status in lost.items()]


def _results(workload: Workload, comparisons: Sequence[Comparison], compared: Compared) -> Iterator[Result]:
    """Yield a result per set of comparisons that differ only in their model."""
    pooled: dict[tuple[str, ...], list[Comparison]] = defaultdict(list)
    mixed = _is_mixed(workload)
    only_twins = all(c.subject.batch_policy in TWIN_POLICIES for c in comparisons)
    for c in comparisons:
        if c.subject.batch_policy in TWIN_POLICIES and not only_twins:
            continue  # shows how much of a speedup is due to the batch
        place = c.subject.label if c.subject.label == c.other.label else short(c.subject.card)
        place = place if c.axis != "card" else ""
        precision = c.subject.precision if c.axis != "precision" else ""
        batch = text_of(c.subject.row["fixed_batch"]) if c.axis != "batch_size" else ""
        pooled[c.axis, c.subject_name, c.other_name, place, precision, c.subject.batch_policy, batch].append(c)
    for (_, _, _, place, precision, _, batch), alike in pooled.items():
        yield pair_result(alike, place, precision, batch, compared.metric, mixed=mixed)


def pair_result(
    comparisons: Sequence[Comparison], place: str, precision: str, batch: str, metric: Metric, *, mixed: bool = False
) -> Result:
    """Return the result of comparisons that differ only in their model; `mixed`: MASTER is called mixed."""
    c = comparisons[0]
    twice = _is_one_card_twice(c)
    kind = c.axis if c.axis in {"card", "precision"} and not twice else "other"
    subject, baseline = _names(c)
    if kind == "precision" and mixed:
        subject, baseline = ("mixed" if name == MASTER else name for name in (subject, baseline))
    if precision == MASTER and mixed:
        precision = "mixed precision"
    place = words.without_author(place, c.subject.source)
    ratios = [metric.gain_of(comparison.ratio) for comparison in comparisons]
    value, interval = stats.geometric_mean([ratio.value for ratio in ratios]), pooled(comparisons).inverse.interval
    verdict, sure = _verdict([metric.word_of(comparison.verdict) for comparison in comparisons])
    parts = tuple(_part(comparison, ratio, metric) for comparison, ratio in zip(comparisons, ratios, strict=True))
    groups = [group for comparison in comparisons for group in (comparison.subject, comparison.other)]
    ends = min(ratio.value for ratio in ratios), max(ratio.value for ratio in ratios)
    wide = ends[1] >= WIDE * ends[0]
    name = "Mixed precision" if kind == "precision" and subject == "mixed" else words.name(subject)
    verb = "train" if kind == "card" and metric.words[0] == "faster" else "be"
    said = words.better(name, words.name(baseline), ends if wide else value, verdict, metric, verb=verb)
    said += f" in {precision}" if precision else ""
    said += f" on {words.name(place)}" if place else ""
    said += ", depending on the model" if wide else ""
    said += "" if metric.name in {"seconds", "rate", "accuracy"} else f" in {metric.title}"
    result = words.result_of(
        groups,
        kind,
        subject,
        value,
        said,
        baseline=baseline,
        interval=interval,
        verdict=verdict,
        sure=sure,
        models=tuple(dict.fromkeys(comparison.subject.model for comparison in comparisons)),
        trials=(
            min(comparison.subject.trials for comparison in comparisons),
            min(comparison.other.trials for comparison in comparisons),
        ),
        precision=precision,
        place=place,
        origin=", ".join(
            filter(None, [precision.removesuffix(" precision"), c.subject.suite if kind != "card" else ""])
        ),
        facts=words.facts_of(c.subject) | ({"batch": f"batch {batch}"} if batch not in {"", "0"} else {}),
        differences=tuple(differences_of(comparisons)),
        caveats=(
            *["the same card in two runs: measure again"] * twice,
            *[f"the mean is {words.gain(value)}"] * wide,
            *words.caveats_of(groups),
        ),
        figure=f"{words.gain(ends[0])}-{words.gain(ends[1])}" if wide else "",
        parts=parts,
    )
    return result if metric.name != "seconds" else replace(result, charts=pictures(result, groups))


def _is_one_card_twice(c: Comparison) -> bool:
    """Return whether both sides are one card with one power limit and memory limit, in two sessions."""
    columns = ["device_hash", "power_cap", "memory_limit_bytes"]
    return (
        c.axis == "card" and bool(c.subject.device_hash) and texts_of(c.subject, columns) == texts_of(c.other, columns)
    )


def mixed_name(precision: str) -> str:
    """Return the precision's name; the usual mixed ones are called mixed."""
    return "mixed" if precision in {MASTER, "fp16", "bf16"} else precision


def _is_mixed(workload: Workload) -> bool:
    return {group.precision for group in workload.cases} - FULL == {MASTER}


def _names(c: Comparison) -> tuple[str, str]:
    subject, baseline = c.subject_name, c.other_name
    source = c.subject.source
    if words.without_author(subject, source) != words.without_author(baseline, source):
        subject, baseline = words.without_author(subject, source), words.without_author(baseline, source)
    named = c.axis in {"card", "precision"} or is_change(c)
    return (subject, baseline) if named else (f"{c.axis} {subject or 'unknown'}", baseline or "unknown")


def _verdict(verdicts: Sequence[str]) -> tuple[str, tuple[int, str] | None]:
    """Return the verdict of all models, else `undecided`; also count the decided ones if they agree."""
    counts = Counter(verdicts)
    if len(counts) == 1:
        return verdicts[0], None
    sure = set(counts) - {"undecided"}
    one = sure.pop() if len(sure) == 1 else ""
    return "undecided", (counts[one], one) if one in DECIDED else None


def _part(c: Comparison, ratio: stats.Ratio, metric: Metric) -> Part:
    return Part(
        c.subject.model,
        metric.shown(c.subject.median),
        metric.shown(c.other.median),
        ratio.value,
        ratio.interval,
        c.subject.batch_size,
        c.other.batch_size,
        ", ".join(sorted(c.subject.marks)),
        ", ".join(sorted(c.other.marks)),
        interval_of(c.subject, metric),
        interval_of(c.other, metric),
    )


def differences_of(comparisons: Sequence[Comparison]) -> Iterator[str]:
    groups = [group for comparison in comparisons for group in (comparison.subject, comparison.other)]
    if any(group.mode == "quick" for group in groups):
        yield "quick mode"
    if any(group.data == "synthetic" for group in groups):
        yield "synthetic data"
    sizes = [(comparison.subject.batch_size, comparison.other.batch_size) for comparison in comparisons]
    if any(one != other for one, other in sizes if one == one and other == other):
        yield "batches differ"
    if any(out_of_turn(comparison.subject, comparison.other) for comparison in comparisons):
        yield OUT_OF_TURN
    yield from dict.fromkeys(
        f"differs in {', '.join(comparison.differing)}" for comparison in comparisons if comparison.differing
    )


def _tables(workload: Workload, comparisons: Sequence[Comparison], metric: Metric) -> Iterator[Table]:
    yield cases_table(workload.cases, metric)
    if comparisons:
        yield _speedups(comparisons, metric)
    yield evidence_table(workload.groups, metric)


def _speedups(comparisons: Sequence[Comparison], metric: Metric) -> Table:
    """Return the table of ratios over the baseline; above 1 is better."""
    columns = (
        Column("model"),
        Column("subject"),
        Column("baseline"),
        Column("in"),
        Column("on"),
        Column(metric.gain, "ratio", "higher"),
        Column("verdict"),
        Column("p", "p"),
        Column("trials", "count"),
        Column("baseline trials", "count"),
        Column("notes", note=True),
    )
    return Table("ratios" if metric.by_loss else "speedups", columns, tuple(_speedup(c, metric) for c in comparisons))


def _speedup(c: Comparison, metric: Metric) -> tuple[Value, ...]:
    ratio = metric.gain_of(c.ratio)
    source = c.subject.source if c.subject.source == c.other.source else ""
    # The two sides may be two cards.
    labels = dict.fromkeys(words.without_author(label, source) for label in (c.subject.label, c.other.label))
    sides = ((c.subject_name, c.subject), (c.other_name, c.other))
    marks = [f"{name}: {', '.join(texts)}" for name, group in sides if (texts := words.marks_of([group]))]
    return (
        c.subject.model,
        words.without_author(c.subject_name, source)
        + (policy_text(c.subject.batch_policy) if c.axis == "precision" else ""),
        words.without_author(c.other_name, source),
        "" if c.axis == "precision" else f"{c.subject.precision}{policy_text(c.subject.batch_policy)}",
        "" if c.axis == "card" else " and ".join(labels),
        Estimate(ratio.value, ratio.low, ratio.high),
        metric.word_of(c.verdict),
        ratio.p,
        c.subject.trials,
        c.other.trials,
        "; ".join([*c.notes, *marks]),
    )
