"""The study `pairs`: one card, precision or version over another, pooled over the models that both have.

`answer` calls it. `ablation` and `buyer` use its results and names.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from gpubench.analysis import stats
from gpubench.analysis.compare import Compared, Workload
from gpubench.analysis.groups import Group, short, text_of, texts_of
from gpubench.analysis.matching import TWIN_POLICIES, axis_value, is_ablation
from gpubench.analysis.metrics import RATE, SECONDS, Metric
from gpubench.analysis.verdicts import OUT_OF_TURN, Comparison, accuracy_points, groups_in, out_of_turn, pooled
from gpubench.rows.alike import STACK, TURNS
from gpubench.rows.params import params_of
from gpubench.studies import words
from gpubench.studies.cases import cases_table, evidence_table, interval_of, policy_text
from gpubench.studies.pair_charts import chart_of_cases, charts_of
from gpubench.studies.section import DECIDED, Column, Estimate, Part, Result, Section, Table, Value
from gpubench.studies.sides import lost_models, unlike_figures, why_lost
from gpubench.suite.precisions import FULL
from gpubench.suite.trial import counts_by_rate

MASTER = "fp16-master"
"""The mixed precision of 2019, before torch.autocast. It is called mixed if a workload has no other mixed precision."""
IS_MIXED = f"mixed precision is {MASTER} here: an fp16 model with fp32 master weights"
WIDE = 2.0
"""If the largest ratio is this many times the smallest, the range is shown instead of the mean."""


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per workload. A workload without pairs has none if other studies show all its groups."""
    for workload in compared.workloads:
        comparisons = [c for c in workload.comparisons if not is_change(c)]
        if not comparisons and _is_shown_elsewhere(workload, compared):
            continue
        metric, cases = compared.metric, cases_table(workload.cases, compared.metric)
        results = list(_results(workload, comparisons, compared))
        lines = [_speedup(c, metric, _settings_of(c, compared)) for c in comparisons]
        ratios = Table.of("ratios" if metric.by_loss else "speedups", lines)
        yield words.section_of(
            workload.cases,
            "pairs",
            results=results,
            tables=(cases, *[ratios] * bool(comparisons), evidence_table(workload.groups, metric)),
            charts=tuple(chart_of_cases(workload, metric)),
            notes=(IS_MIXED,) if _is_mixed(workload) and results else (),
            left_out=(*workload.left_out, *without_compared(workload, compared)),
        )


def is_change(c: Comparison) -> bool:
    """Return whether this compares a change of an ablation with the plain model."""
    return c.axis == "model" and is_ablation(c.subject)


def compares_more(workload: Workload) -> bool:
    """Return whether the workload compares more than changes of an ablation."""
    return any(not is_change(c) for c in workload.comparisons)


def _is_shown_elsewhere(workload: Workload, compared: Compared) -> bool:
    """Return whether other studies show all groups: changes of an ablation, batches, or rungs of a ladder."""
    if any(map(is_change, workload.comparisons)):
        return True
    if not compared.is_usual:
        return False
    if all("batch" in group.studies.split() and not math.isnan(group.accuracy) for group in workload.cases):
        return True
    models = {group.model for group in workload.groups if not math.isnan(group.rung)}
    kinds = {(group.label, group.precision, group.batch_policy) for group in workload.groups}
    is_ladder = len(models) > 1 or len(compared.workloads) > 1  # other workloads may have the other rungs
    return is_ladder and len(models) == len(workload.groups) and len(kinds) == 1 and not workload.holes


def without_compared(workload: Workload, compared: Compared) -> list[str]:
    """Return why a workload compares nothing: the values of a compared column whose rows all failed."""
    if compares_more(workload):
        return []
    lost: dict[str, dict[str, None]] = {}
    for axis in compared.axes:
        there = {axis_value(group, axis) for group in workload.groups}
        missing = [hole for hole in workload.holes if axis_value(hole, axis) not in there]
        if len(there | {axis_value(hole, axis) for hole in missing}) > 1:
            for hole in missing:
                lost.setdefault(axis_value(hole, axis), {})[why_lost(hole, compared.metric)] = None
    return [f"{value} has no result ({', '.join(whys)})" for value, whys in lost.items()]


def _results(workload: Workload, comparisons: Sequence[Comparison], compared: Compared) -> Iterator[Result]:
    """Yield a result per set of comparisons that differ only in their model."""
    alike: dict[tuple[str, ...], list[Comparison]] = defaultdict(list)
    only_twins = all(c.subject.batch_policy in TWIN_POLICIES for c in comparisons)
    for c in comparisons:
        # A twin (an extra run at another batch) only shows how much of a speedup is due to the batch.
        if only_twins or c.subject.batch_policy not in TWIN_POLICIES:
            settings = _settings_of(c, compared).values()
            key = c.axis, c.subject_name, c.other_name, *_in_common(c), c.subject.batch_policy, *settings
            alike[key].append(c)
    for members in alike.values():
        for part, stack in _by_stack(members):
            lost = lost_models(part, workload, compared.metric)
            result = pair_result(part, compared.metric, mixed=_is_mixed(workload), lost=lost)
            yield replace(result, facts={**result.facts, **stack})


def _by_stack(comparisons: Sequence[Comparison]) -> Iterator[tuple[list[Comparison], dict[str, str]]]:
    """Yield the comparisons; apart for each stack and code, with what distinguishes it, if a model occurs twice."""
    if len({c.subject.model for c in comparisons}) == len(comparisons):
        yield list(comparisons), {}
        return
    stacks = [{column: text_of(c.subject.row[column]) for column in (*STACK, *TURNS)} for c in comparisons]
    differing = [column for column in stacks[0] if len({stack[column] for stack in stacks}) > 1]
    by_stack: dict[tuple[str, ...], list[Comparison]] = defaultdict(list)
    for c, stack in zip(comparisons, stacks, strict=True):
        by_stack[tuple(stack[column] for column in differing)].append(c)
    for values, members in by_stack.items():
        yield members, {name: f"{name} {value}" for name, value in zip(differing, values, strict=True)}


def _settings_of(c: Comparison, compared: Compared) -> dict[str, str]:
    """Return the compared parameters (`--by compile,precision`) except the axis of this pair, with their values."""
    params = params_of(c.subject.params)
    return {axis: axis_value(c.subject, axis) for axis in compared.axes if axis in params and axis != c.axis}


def _in_common(c: Comparison) -> tuple[str, str, str]:
    """Return the card, the precision and the fixed batch of both sides; each is empty if it is what is compared."""
    place = c.subject.label if c.subject.label == c.other.label else short(c.subject.card)
    return (
        place if c.axis != "card" else "",
        c.subject.precision if c.axis != "precision" and not is_change(c) else "",
        text_of(c.subject.row["fixed_batch"]) if c.axis != "batch_size" else "",
    )


def pair_result(
    comparisons: Sequence[Comparison], metric: Metric, *, mixed: bool = False, lost: Iterable[str] = ()
) -> Result:
    """Return the result of comparisons that differ only in model, with the caveats `lost`. `mixed`: see MASTER."""
    c = comparisons[0]
    place, precision, batch = _in_common(c)
    sides = [texts_of(group, ["device_hash", "power_cap", "memory_limit_bytes"]) for group in (c.subject, c.other)]
    twice = c.axis == "card" and bool(c.subject.device_hash) and sides[0] == sides[1]  # one card in two sessions
    kind = c.axis if c.axis in {"card", "precision"} and not twice else "other"
    subject, baseline = _names(c, mixed=mixed)
    if precision == MASTER and mixed:
        precision = "mixed precision"
    place = words.without_author(place, c.subject.source)
    ratios = [metric.gain_of(comparison.ratio) for comparison in comparisons]
    mean = metric.gain_of(pooled(comparisons, by_loss=metric.by_loss))
    verdict, sure = _verdict([metric.word_of(comparison.verdict) for comparison in comparisons])
    groups = groups_in(comparisons)
    ends = None if metric.by_loss else wide_range([ratio.value for ratio in ratios])
    name = "Mixed precision" if kind == "precision" and subject == "mixed" else words.name(subject)
    verb = "train" if kind == "card" and metric.words[0] == "faster" else "be"
    figure = metric.title.replace("samples", words.sample_of(c.subject.suite))
    low, high = mean.interval or (math.inf, math.inf)
    known = "undecided" if low <= (0 if metric.by_loss else 1) <= high and verdict not in DECIDED else verdict
    claim = words.better(name, words.name(baseline), ends or mean.value, known, metric, verb=verb)
    claim += f" in {precision}" if precision else ""
    claim += f" on {words.name(place)}" if place else ""
    claim += ", depending on the model" if ends else ""
    claim += "" if metric.name in {"seconds", "rate", "accuracy"} else f" in {figure}"
    origin = [precision.removesuffix(" precision"), c.subject.suite if kind != "card" else ""]
    trials = (min(x.subject.trials for x in comparisons), min(x.other.trials for x in comparisons))
    result = words.result_of(
        groups, kind, subject, mean.value, claim,
        baseline=baseline, interval=mean.interval, is_points=metric.by_loss, verdict=verdict, sure=sure,
        models=tuple(dict.fromkeys(comparison.subject.model for comparison in comparisons)), trials=trials,
        precision=precision, place=place, origin=", ".join(filter(None, origin)),
        facts=words.facts_of(c.subject) | ({"batch": f"batch {batch}"} if batch not in {"", "0"} else {}),
        differences=tuple(differences_of(comparisons, metric)),
        caveats=(
            *["the same card in two runs: measure again"] * twice,
            *[f"the mean is {words.gain(mean.value)}"] * bool(ends),
            *lost,
            *words.caveats_of(groups, [subject, baseline] * len(comparisons)),
        ),
        figure=words.range_text(ends) if ends else "",
        parts=tuple(_part(*pair, metric) for pair in zip(comparisons, ratios, strict=True)),
    )  # fmt: skip
    return _with_charts(result, comparisons, ratios) if metric is SECONDS else result


def _with_charts(result: Result, comparisons: Sequence[Comparison], ratios: Sequence[stats.Ratio]) -> Result:
    """Return the result with charts, and with rates in its parts if all its trials count by their rates."""
    groups = groups_in(comparisons)
    if all(counts_by_rate(g.studies, g.mode) and g.samples_per_second > 0 for g in groups):
        rates = [replace(x, subject=_per_sample(x.subject), other=_per_sample(x.other)) for x in comparisons]
        parts = tuple(_part(*pair, RATE) for pair in zip(rates, ratios, strict=True))
        result = replace(result, parts=parts, unit=RATE.unit)
    return replace(result, charts=charts_of(result, groups))


def wide_range(ratios: Sequence[float]) -> tuple[float, float] | None:
    """Return the smallest and the largest ratio if they differ so much that a mean would mislead, else None."""
    least, most = min(ratios), max(ratios)
    return (least, most) if most >= WIDE * least else None


def precision_name(precision: str) -> str:
    """Return `mixed` for the usual kinds of mixed precision, else the precision's name."""
    return "mixed" if precision in {MASTER, "fp16", "bf16"} else precision


def _is_mixed(workload: Workload) -> bool:
    return {group.precision for group in workload.cases} - FULL == {MASTER}


def _names(c: Comparison, *, mixed: bool) -> tuple[str, str]:
    subject, baseline = c.subject_name, c.other_name
    if c.axis == "precision" and mixed:
        subject, baseline = ("mixed" if name == MASTER else name for name in (subject, baseline))
    source = c.subject.source
    if words.without_author(subject, source) != words.without_author(baseline, source):
        subject, baseline = words.without_author(subject, source), words.without_author(baseline, source)
    named = c.axis in {"card", "precision"} or is_change(c)
    return (subject, baseline) if named else (f"{c.axis} {subject or 'unknown'}", baseline or "unknown")


def _verdict(verdicts: Sequence[str]) -> tuple[str, tuple[int, str] | None]:
    """Return the verdict that all models share, else `undecided`; and (count, verdict) if one other verdict occurs."""
    counts = Counter(verdicts)
    if len(counts) == 1:
        return verdicts[0], None
    sure = set(counts) - {"undecided"}
    one = sure.pop() if len(sure) == 1 else ""
    return "undecided", (counts[one], one) if one in DECIDED else None


def _per_sample(group: Group) -> Group:
    samples = group.samples_per_second * group.median
    return replace(group, values=tuple(seconds / samples for seconds in group.values))


def _part(c: Comparison, ratio: stats.Ratio, metric: Metric) -> Part:
    return Part(
        c.subject.model,
        _figure_of(c.subject, metric), _figure_of(c.other, metric),
        ratio.value, ratio.interval,
        c.subject.batch_size, c.other.batch_size,
        ", ".join(sorted(c.subject.marks)), ", ".join(sorted(c.other.marks)),
        None if metric.by_loss else interval_of(c.subject, metric),
        None if metric.by_loss else interval_of(c.other, metric),
    )  # fmt: skip


def _figure_of(group: Group, metric: Metric) -> float:
    """Return a group's figure beside a ratio, the median, or beside points, the mean."""
    return fmean(accuracy_points(group)) / 100 if metric.by_loss else metric.median_of(group.values)


def differences_of(comparisons: Sequence[Comparison], metric: Metric = SECONDS) -> Iterator[str]:
    """Yield how the rows of both sides were made, and how the sides differ besides the axis."""
    groups = groups_in(comparisons)
    if any(group.mode == "quick" for group in groups):
        yield "quick mode"
    if any(group.data == "synthetic" for group in groups):
        yield "synthetic data"
    if any(c.axis != "batch_size" and _batches_differ(c) for c in comparisons):
        yield "batches differ"
    if any(out_of_turn(comparison.subject, comparison.other) for comparison in comparisons):
        yield OUT_OF_TURN
    yield from dict.fromkeys(f"differs in {', '.join(c.differing)}" for c in comparisons if c.differing)
    yield from unlike_figures(comparisons, metric)


def _batches_differ(c: Comparison) -> bool:
    sides = [{text_of(part.batch_size) for part in side.parts or (side,)} - {""} for side in (c.subject, c.other)]
    return all(sides) and sides[0] != sides[1]


def _speedup(c: Comparison, metric: Metric, settings: Mapping[str, str]) -> dict[Column, Value]:
    """Return the line of a ratio over the baseline; above 1 is better."""
    ratio = metric.gain_of(c.ratio)
    source = c.subject.source if c.subject.source == c.other.source else ""
    # The two sides may be two cards.
    labels = dict.fromkeys(words.without_author(label, source) for label in (c.subject.label, c.other.label))
    sides = ((c.subject_name, c.subject), (c.other_name, c.other))
    marks = [f"{name}: {', '.join(texts)}" for name, group in sides if (texts := words.marks_of([group]))]
    policy = policy_text(c.subject.batch_policy)
    is_of_precisions = c.axis == "precision"
    return {
        Column("model"): c.subject.model,
        Column("subject"): words.without_author(c.subject_name, source) + policy * is_of_precisions,
        Column("baseline"): words.without_author(c.other_name, source),
        Column("in"): "" if is_of_precisions else f"{c.subject.precision}{policy}",
        Column("on"): "" if c.axis == "card" else " and ".join(labels),
        **{Column(name): value for name, value in settings.items()},
        Column(metric.gain, metric.gain_unit, "higher"): Estimate(ratio.value, ratio.low, ratio.high),
        Column("verdict"): metric.word_of(c.verdict),
        Column("p", "p"): ratio.p,
        Column("trials", "count"): c.subject.trials,
        Column("baseline trials", "count"): c.other.trials,
        Column("notes", note=True): "; ".join([*c.notes, *marks]),
    }
