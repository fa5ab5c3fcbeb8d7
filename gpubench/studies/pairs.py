"""Pairs: this card, precision or version over that one, pooled over the models that both have."""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpubench.analysis import stats
from gpubench.analysis.cells import Cell, short, text_of
from gpubench.analysis.compare import Group, Result
from gpubench.analysis.geomeans import Mean, interval_of
from gpubench.analysis.matching import FULL, TWIN_POLICIES, axis_value, is_ablation
from gpubench.analysis.metrics import Metric
from gpubench.analysis.verdicts import Comparison
from gpubench.studies import words
from gpubench.studies.cases import behind, cases_table, estimate, evidence_table, policy_text
from gpubench.studies.section import (
    DECIDED,
    Bar,
    BarGroup,
    Bars,
    Chart,
    Column,
    Estimate,
    Finding,
    Line,
    Lines,
    Part,
    Point,
    Section,
    Table,
    Value,
)

MASTER = "fp16-master"
"""The precision that is called mixed where no other one is there: that of 2019."""
POSITIVE = {
    "faster": "fast", "sooner": "soon", "cheaper": "cheap", "thriftier": "thrifty", "smaller": "small",
    "larger": "large", "better": "accurate",
}  # fmt: skip


def sections(result: Result) -> Iterator[Section]:
    """One for each group, but those of which another study shows every cell."""
    for group in result.groups:
        own = [c for c in group.comparisons if not is_change(c)]
        if not own and result.is_usual and is_shown_elsewhere(group):
            continue
        findings = tuple(_findings(group, own, result))
        cells = group.cases
        why = _why_nothing(group, result) if not own else ""
        yield Section(
            "pairs",
            cells[0].suite,
            words.title_of(cells),
            findings,
            tuple(_tables(group, own, result.metric)),
            tuple(_charts(group, own, result)),
            (why,) if why else (),
            group.left_out,
            words.recipe_of(cells),
            behind(cells),
        )


def is_change(c: Comparison) -> bool:
    """Whether it holds a change of an ablation against the plain model."""
    return c.axis == "model" and is_ablation(c.subject)


def is_shown_elsewhere(group: Group) -> bool:
    """Whether another study shows every cell: all are changes of an ablation, the batches of one, or rungs."""
    if all(map(is_ablation, group.cases)):
        return any(map(is_change, group.comparisons))
    if all("batch" in cell.studies.split() and not math.isnan(cell.accuracy) for cell in group.cases):
        return True
    models = {cell.model for cell in group.cells if not math.isnan(cell.rung)}
    kinds = {(cell.label, cell.precision, cell.batch_policy) for cell in group.cells}
    return len(models) == len(group.cells) and len(kinds) == 1 and not group.holes


def _why_nothing(group: Group, result: Result) -> str:
    """The values of a compared column that have rows but no result, where that is why nothing is compared."""
    lost: dict[str, str] = {}
    for axis in result.axes:
        there = {axis_value(cell, axis) for cell in group.cells}
        missing = [hole for hole in group.holes if axis_value(hole, axis) not in there]
        if len(there | {axis_value(hole, axis) for hole in missing}) > 1:
            lost |= {axis_value(hole, axis): hole.status.replace("_", " ") for hole in missing}
    return "; ".join(f"{value} has no result ({status})" for value, status in lost.items())


def _findings(group: Group, own: Sequence[Comparison], result: Result) -> Iterator[Finding]:
    """The comparisons that differ in their model alone, as one."""
    pooled: dict[tuple[str, ...], list[Comparison]] = defaultdict(list)
    only_twins = all(c.subject.batch_policy in TWIN_POLICIES for c in own)
    for c in own:
        if c.subject.batch_policy in TWIN_POLICIES and not only_twins:
            continue  # it tells the batch's part of a speedup, which is another question
        place = c.subject.label if c.subject.label == c.other.label else short(c.subject.card)
        place = place if c.axis != "card" else ""
        precision = c.subject.precision if c.axis != "precision" else ""
        batch = text_of(c.subject.row["fixed_batch"]) if c.axis != "batch_size" else ""
        pooled[c.axis, c.subject_name, c.other_name, place, precision, c.subject.batch_policy, batch].append(c)
    for (_, _, _, place, precision, _, batch), alike in pooled.items():
        yield _finding(group, alike, place, precision, batch, result)


def _finding(
    group: Group, own: Sequence[Comparison], place: str, precision: str, batch: str, result: Result
) -> Finding:
    c, metric = own[0], result.metric
    kind = c.axis if c.axis in {"card", "precision"} else "other"
    subject, baseline = _names(c)
    mixed = {cell.precision for cell in group.cases} - FULL == {MASTER}
    if kind == "precision" and mixed:
        subject, baseline = ("mixed" if name == MASTER else name for name in (subject, baseline))
    if precision == MASTER and mixed:
        precision = "mixed precision"
    place = _plain(place, c.subject.source)
    ratios = [each.ratio if metric.by_loss else each.ratio.inverse for each in own]
    value, interval = stats.geometric_mean([ratio.value for ratio in ratios]), interval_of(ratios)
    verdict = _verdict([each.verdict for each in own])
    models = tuple(dict.fromkeys(each.subject.model for each in own))
    parts = tuple(_part(each, ratio, metric) for each, ratio in zip(own, ratios, strict=True))
    cells = [cell for each in own for cell in (each.subject, each.other)]
    said = _said(kind, subject, baseline, value, verdict, metric, precision, place)
    finding = Finding(
        kind=kind,
        suite=c.subject.suite,
        subject=subject,
        baseline=baseline,
        value=value,
        interval=interval,
        verdict=verdict,
        models=models,
        trials=(min(each.subject.trials for each in own), min(each.other.trials for each in own)),
        said=said,
        precision=precision,
        place=place,
        origin=", ".join(
            filter(None, [precision.removesuffix(" precision"), c.subject.suite if kind != "card" else ""])
        ),
        facts=words.facts_of(c.subject) | ({"batch": f"batch {batch}"} if batch not in {"", "0"} else {}),
        caveats=tuple(_caveats(own)),
        parts=parts,
        cases=behind(cells),
        source=c.subject.source,
        unit="" if metric.name in {"seconds", "rate"} else metric.title,
    )
    return finding if metric.name != "seconds" else finding.with_charts(_pictures(finding, cells))


def _names(c: Comparison) -> tuple[str, str]:
    subject, baseline = c.subject_name, c.other_name
    source = c.subject.source
    if _plain(subject, source) != _plain(baseline, source):
        subject, baseline = _plain(subject, source), _plain(baseline, source)
    return (f"{c.axis} {subject}", baseline) if c.axis not in {"card", "precision"} else (subject, baseline)


def _plain(label: str, source: str) -> str:
    """A card's label without the name of who measured it."""
    return label.removesuffix(f" ({words.author(source)})") if source else label


def _verdict(verdicts: Sequence[str]) -> str:
    """What all models agree in; of how many it holds where the others are unsure; else nobody is sure."""
    found = Counter("one run" if each == "one trial" else each for each in verdicts)
    if len(found) == 1:
        return verdicts[0] if verdicts[0] != "one trial" else "one run"
    decided = [each for each in found if each in DECIDED]
    if len(decided) == 1 and set(found) == {decided[0], "unsure"}:
        return f"{found[decided[0]]}/{len(verdicts)} {decided[0]}"
    return "unsure"


def _part(c: Comparison, ratio: stats.Ratio, metric: Metric) -> Part:
    return Part(
        c.subject.model,
        metric.shown(c.subject.median),
        metric.shown(c.other.median),
        ratio.value,
        (ratio.low, ratio.high) if ratio.low and ratio.high else None,
        c.subject.batch_size,
        c.other.batch_size,
    )


def _said(
    kind: str, subject: str, baseline: str, value: float, verdict: str, metric: Metric, precision: str, place: str
) -> str:
    """Who is how much better than whom, and where."""
    subject = "Mixed precision" if kind == "precision" and subject == "mixed" else words.name(subject)
    trains = kind == "card" and metric.words[0] == "faster"
    verb = ("may train" if trains else "may be") if verdict == "unsure" else "trains" if trains else "is"
    good = POSITIVE[metric.words[0]]
    sentence = f"{subject} {verb} {words.times(value)} as {good} as {words.name(baseline)}"
    sentence += f" in {precision}" if precision else ""
    sentence += f" on {words.name(place)}" if place else ""
    return sentence if metric.name in {"seconds", "rate", "accuracy"} else f"{sentence} in {metric.title}"


def _caveats(own: Sequence[Comparison]) -> Iterator[str]:
    cells = [cell for each in own for cell in (each.subject, each.other)]
    if any(cell.mode == "quick" for cell in cells):
        yield "a first look"
    if any(cell.data == "synthetic" for cell in cells):
        yield "synthetic data"
    marks = sum((Counter(cell.marks) for cell in cells), Counter[str]())
    total = sum(cell.trials for cell in cells)
    yield from (f"{count} of {total} runs {mark}" for mark, count in sorted(marks.items()))
    sizes = [(each.subject.batch_size, each.other.batch_size) for each in own]
    if any(one != other for one, other in sizes if one == one and other == other):
        yield "batches differ"
    yield from dict.fromkeys(note for each in own for note in each.notes if note.startswith("differs in"))


def _pictures(each: Finding, cells: Sequence[Cell]) -> tuple[Chart, ...]:
    """The time of both sides with the speedup of each model, and the speedups with their intervals."""
    stem = words.slug(f"{each.suite} {each.subject} over {each.baseline} {each.where}")
    groups = [
        BarGroup(
            part.model,
            (
                Bar(each.baseline, part.baseline, note=_batch_note(part, part.baseline_batch)),
                Bar(each.subject, part.subject, note=_batch_note(part, part.subject_batch)),
            ),
            f"{words.gain(part.value)}x",
        )
        for part in each.parts
    ]
    dots = [BarGroup(part.model, (Bar(each.subject, part.value, part.interval),)) for part in each.parts]
    if len(each.parts) > 1:
        groups.append(BarGroup("mean", (), f"{words.gain(each.value)}x", strong=True))
        dots.append(BarGroup("mean", (Bar(each.subject, each.value, each.interval),), strong=True))
    times = f"Seconds for {_recipe(each, cells)}; lower is better"
    speedups = f"Speedup over {each.baseline}, {_recipe(each, cells)}; above 1 is faster"
    common = {"title": each.said, "cases": each.cases}
    return (
        Bars(f"{stem}-seconds", subtitle=times, groups=tuple(groups), unit="s", winner=each.subject, **common),  # type: ignore[arg-type]
        Bars(f"{stem}-speedup", subtitle=speedups, groups=tuple(dots), unit="ratio", reference=1.0, **common),  # type: ignore[arg-type]
    )


def _batch_note(part: Part, size: float) -> str:
    return f"batch {size:.0f}" if part.subject_batch != part.baseline_batch and not math.isnan(size) else ""


def _recipe(each: Finding, cells: Sequence[Cell]) -> str:
    """What was run, as far as all of it is the same."""
    epochs, data = {cell.epochs for cell in cells}, {cell.data for cell in cells}
    known = len(epochs) == len(data) == 1 and all(data) and not any(map(math.isnan, epochs))
    if not known:
        return f"a whole run of {each.suite}"
    count = epochs.pop()
    return f"{count:.0f} epoch{'s' * (count != 1)} of {data.pop()}"


def _tables(group: Group, own: Sequence[Comparison], metric: Metric) -> Iterator[Table]:
    yield cases_table(group.cases, metric)
    if own:
        yield _speedups(own, metric)
    if group.means:
        yield _means(group.means, metric)
    yield evidence_table(group.cells, metric)


def _speedups(own: Sequence[Comparison], metric: Metric) -> Table:
    """Every ratio over the baseline; above 1 is better, of accuracies too."""
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
    return Table("ratios" if metric.by_loss else "speedups", columns, tuple(_speedup(c, metric) for c in own))


def _speedup(c: Comparison, metric: Metric) -> tuple[Value, ...]:
    ratio = c.ratio if metric.by_loss else c.ratio.inverse
    verdict = metric.words[c.verdict == "slower"] if c.verdict in {"faster", "slower"} else c.verdict
    verdict = "one run" if verdict == "one trial" else verdict
    source = c.subject.source if c.subject.source == c.other.source else ""
    labels = dict.fromkeys(
        _plain(label, source) for label in (c.subject.label, c.other.label)
    )  # two devices may be two cards
    sides = ((c.subject_name, c.subject), (c.other_name, c.other))
    marks = [f"{name}: {', '.join(found)}" for name, cell in sides if (found := words.marks_of(cell))]
    return (
        c.subject.model,
        _plain(c.subject_name, source) + (policy_text(c.subject.batch_policy) if c.axis == "precision" else ""),
        _plain(c.other_name, source),
        "" if c.axis == "precision" else f"{c.subject.precision}{policy_text(c.subject.batch_policy)}",
        "" if c.axis == "card" else " and ".join(labels),
        Estimate(ratio.value, ratio.low, ratio.high),
        verdict,
        ratio.p,
        c.subject.trials,
        c.other.trials,
        "; ".join([*c.notes, *marks]),
    )


def _means(means: Sequence[Mean], metric: Metric) -> Table:
    """Geometric means over the cases that every compared card has."""
    gain = Column(f"mean {metric.gain}", "ratio", "higher")
    names = (Column("subject"), Column("baseline"), Column("in"), gain, Column("cases", "count"), Column("of", "count"))
    return Table("geometric means", names, tuple(_mean(mean.inverse) for mean in means))


def _mean(mean: Mean) -> tuple[Value, ...]:
    value: Value = "under half of the cases"
    if mean.value is not None:
        value = Estimate(mean.value, *(mean.interval or (None, None)))
    where = f"{mean.precision}{policy_text(mean.batch_policy)}"
    return mean.subject_name, mean.other_name, where, value, mean.common, mean.all_cases


def _charts(group: Group, own: Sequence[Comparison], result: Result) -> Iterator[Chart]:
    """Every case, every ratio, and what a trend over versions looks like."""
    if not group.cells:
        return
    metric, suite, about = result.metric, group.cells[0].suite, words.title_of(group.cases)
    cases = behind(group.cases)
    foot, way = words.origin(group.cells), "higher" if metric.inverse else "lower"
    models = list(dict.fromkeys(cell.model for cell in group.cases))
    bars = [
        BarGroup(model, tuple(_bar(cell, metric) for cell in group.cases if cell.model == model)) for model in models
    ]
    what = "Seconds of a whole run" if metric.name == "seconds" else metric.title
    title = f"{suite}: {'a whole run' if metric.name == 'seconds' else metric.title} of each case"
    subtitle = f"{what}; {way} is better; {about}"
    bars = _best_first(bars, higher=metric.inverse)
    yield Bars(words.slug(f"{about} {metric.name}"), title, subtitle, tuple(bars), metric.unit, foot=foot, cases=cases)
    for axis in dict.fromkeys(c.axis for c in own):
        along = [c for c in own if c.axis == axis]
        dots = [
            BarGroup(model, tuple(_dot(c, metric) for c in along if c.subject.model == model))
            for model in dict.fromkeys(c.subject.model for c in along)
        ]
        dots = _best_first(dots, higher=True)
        bases = words.listed(dict.fromkeys(words.name(c.other_name) for c in along))
        ends = ", with 95% intervals" * any(bar.interval for group in dots for bar in group.bars)
        subtitle = f"{metric.gain.capitalize()} over {bases}{ends}; above 1 is {metric.words[0]}"
        name = words.slug(f"{about} {axis} {metric.gain}")
        title = f"{suite}: {metric.gain} by {axis}"
        yield Bars(name, title, subtitle, tuple(dots), "ratio", reference=1.0, foot=foot, cases=cases)
    if "torch" in result.axes and (trend := _trend(group.cells, metric)):
        ticks = tuple((float(at), text) for at, text in enumerate(_versions(group.cells)))
        title, subtitle = f"{suite}: {metric.title} over torch versions", f"{metric.title}; {way} is better"
        name = words.slug(f"{about} trend")
        yield Lines(name, title, subtitle, trend, "torch", metric.title, ticks=ticks, foot=foot, cases=cases)


def _best_first(groups: Sequence[BarGroup], *, higher: bool) -> list[BarGroup]:
    """The bars of every group in the same order: that of how near they come to the best of their groups."""
    shares: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        values = {bar: bar.value for bar in group.bars if bar.value}
        best = (max if higher else min)(values.values(), default=1.0)
        for bar, value in values.items():
            shares[bar.name].append(best / value if higher else value / best)
    places = {name: statistics.fmean(own) for name, own in shares.items()}

    def place(bar: Bar) -> float:
        return places.get(bar.name, math.inf)

    return [replace(group, bars=tuple(sorted(group.bars, key=place))) for group in groups]


def _bar(cell: Cell, metric: Metric) -> Bar:
    many = f"{cell.processes:.0f} x " if cell.processes > 1 and cell.device != "cpu" else ""
    many_cpu = f" ({cell.processes:.0f} processes)" if cell.processes > 1 and cell.device == "cpu" else ""
    name = f"{many}{cell.label}{many_cpu} {cell.precision}{policy_text(cell.batch_policy)}"
    figure = estimate(cell, metric)
    if not isinstance(figure, Estimate):
        return Bar(name, None, text=str(figure or "no figure"))
    ends = (figure.low, figure.high) if figure.low is not None and figure.high is not None else None
    return Bar(name, figure.value, ends)


def _dot(c: Comparison, metric: Metric) -> Bar:
    ratio = c.ratio if metric.by_loss else c.ratio.inverse
    where = f"{c.subject.precision * (c.axis != 'precision')}{policy_text(c.subject.batch_policy)}".strip()
    place = c.subject.label if c.axis != "card" else ""
    name = f"{c.subject_name} {where}".strip() + (f" on {place}" if place else "")
    note = c.verdict if c.verdict in {"same", "unsure"} else ""
    return Bar(name, ratio.value, (ratio.low, ratio.high) if ratio.low and ratio.high else None, note=note)


def _version(cell: Cell) -> tuple[tuple[int, ...], str]:
    plain = cell.torch.partition("+")[0]
    return tuple(map(int, re.findall(r"\d+", plain))), plain


def _versions(cells: Sequence[Cell]) -> list[str]:
    """Versions of torch without their builds, oldest first."""
    return [text for _, text in sorted(set(map(_version, cells)))]


def _trend(cells: Sequence[Cell], metric: Metric) -> tuple[Line, ...]:
    places = {text: at for at, text in enumerate(_versions(cells))}
    lines: dict[str, list[Point]] = defaultdict(list)
    for cell in cells:
        low, high = sorted(map(metric.shown, cell.interval or (cell.median, cell.median)))
        at = float(places[_version(cell)[1]])
        name = f"{cell.model} {cell.precision} {short(cell.card)}"
        lines[name].append(Point(at, metric.shown(cell.median), low, high))
    by_x = {name: tuple(sorted(points, key=lambda point: point.x)) for name, points in lines.items()}
    return tuple(Line(name, points) for name, points in by_x.items() if len(points) > 1)
