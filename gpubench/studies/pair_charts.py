"""Charts of pairs: both sides of a result, all cases and ratios of a recipe, and trends over torch versions."""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpubench.analysis.compare import Compared, Workload
from gpubench.analysis.groups import Group, short
from gpubench.analysis.metrics import Metric
from gpubench.analysis.verdicts import Comparison
from gpubench.studies import words
from gpubench.studies.cases import behind, estimate, policy_text
from gpubench.studies.section import Bar, BarGroup, Bars, Chart, Estimate, Line, Lines, Part, Point, Result


def pictures(result: Result, groups: Sequence[Group]) -> tuple[Chart, ...]:
    """Return two charts: seconds of both sides, and speedups with their intervals."""
    stem = words.slug(f"{result.suite} {result.subject} over {result.baseline} {result.where}")
    bar_groups = [
        BarGroup(
            part.model,
            (
                Bar(result.baseline, part.baseline, note=_note(part, part.baseline_batch, part.baseline_marks)),
                Bar(result.subject, part.subject, note=_note(part, part.subject_batch, part.subject_marks)),
            ),
            f"{words.gain(part.value)}x",
            worse=part.value < 1,
        )
        for part in result.parts
    ]
    dots = [
        BarGroup(part.model, (Bar(result.subject, part.value, part.interval, note=_marks(part)),))
        for part in result.parts
    ]
    if len(result.parts) > 1:
        bar_groups.append(BarGroup("mean", (), f"{words.gain(result.value)}x", strong=True, worse=result.value < 1))
        dots.append(BarGroup("mean", (Bar(result.subject, result.value, result.interval),), strong=True))
    recipe = f"{_recipe(result, groups)}{f', {words.PROJECTED}' * result.projected}"
    times = f"Seconds for {recipe}; lower is better"
    speedups = f"Speedup over {result.baseline}, {recipe}; above 1 is faster"
    bars = Bars(
        f"{stem}-seconds", result.said, times, tuple(bar_groups), "s", winner=result.subject, cases=result.cases
    )
    ratios = Bars(f"{stem}-speedup", result.said, speedups, tuple(dots), "ratio", reference=1.0, cases=result.cases)
    return bars, ratios


def _note(part: Part, size: float, marks: str) -> str:
    """Return a side's marks, and its batch if the sides differ in it."""
    differs = part.subject_batch != part.baseline_batch and not math.isnan(size)
    return ", ".join(filter(None, [f"batch {size:.0f}" if differs else "", marks]))


def _marks(part: Part) -> str:
    """Return the marks of both sides, without duplicates."""
    marks = ", ".join(filter(None, (part.subject_marks, part.baseline_marks)))
    return ", ".join(sorted(set(marks.split(", "))))


def _recipe(result: Result, groups: Sequence[Group]) -> str:
    """Return what was run: epochs and data if they are the same in all groups, else the suite."""
    epochs, data = {group.epochs for group in groups}, {group.data for group in groups}
    known = len(epochs) == len(data) == 1 and all(data) and not any(map(math.isnan, epochs))
    if not known:
        return f"a full run of {result.suite}"
    count = epochs.pop()
    return f"{count:.0f} epoch{'s' * (count != 1)} of {data.pop()}"


def charts_of(workload: Workload, comparisons: Sequence[Comparison], compared: Compared) -> Iterator[Chart]:
    """Yield charts of all cases, of all ratios, and of the trend over torch versions."""
    if not workload.groups:
        return
    metric, suite, about = compared.metric, workload.groups[0].suite, words.title_of(workload.cases)
    cases = behind(workload.cases)
    foot, way = words.origin(workload.groups), "higher" if metric.inverse else "lower"
    by_model: dict[str, list[Bar]] = defaultdict(list)
    for group in workload.cases:
        by_model[group.model].append(_bar(group, metric))
    bars = _best_first([BarGroup(model, tuple(bars)) for model, bars in by_model.items()], higher=metric.inverse)
    projected = any(group.measured == "projected" for group in workload.groups)
    what = f"Seconds of a full run{f', {words.PROJECTED}' * projected}" if metric.name == "seconds" else metric.title
    title = f"{suite}: all cases"
    subtitle = f"{what}; {way} is better; {about}"
    yield Bars(words.slug(f"{about} {metric.name}"), title, subtitle, tuple(bars), metric.unit, foot=foot, cases=cases)
    for axis in dict.fromkeys(c.axis for c in comparisons):
        along = [c for c in comparisons if c.axis == axis]
        by_subject: dict[str, list[Bar]] = defaultdict(list)
        for c in along:
            by_subject[c.subject.model].append(_dot(c, metric))
        dots = _best_first([BarGroup(model, tuple(bars)) for model, bars in by_subject.items()], higher=True)
        bases = words.listed(dict.fromkeys(words.name(c.other_name) for c in along))
        ends = ", with 95% intervals" * any(bar.interval for group in dots for bar in group.bars)
        subtitle = f"{metric.gain.capitalize()} over {bases}{ends}; above 1 is {metric.words[0]}"
        name = words.slug(f"{about} {axis} {metric.gain}")
        title = f"{suite}: {metric.gain} by {axis}"
        yield Bars(name, title, subtitle, tuple(dots), "ratio", reference=1.0, foot=foot, cases=cases)
    if "torch" in compared.axes and (trend := _trend(workload.groups, metric)):
        ticks = tuple((float(at), text) for at, text in enumerate(_versions(workload.groups)))
        title, subtitle = f"{suite}: {metric.title} over torch versions", f"{metric.title}; {way} is better"
        name = words.slug(f"{about} trend")
        yield Lines(name, title, subtitle, trend, "torch", metric.title, ticks=ticks, foot=foot, cases=cases)


def _best_first(bar_groups: Sequence[BarGroup], *, higher: bool) -> list[BarGroup]:
    """Return the groups with their bars in one order: the best mean share of the group's best value first."""
    shares: dict[str, list[float]] = defaultdict(list)
    for group in bar_groups:
        values = {bar: bar.value for bar in group.bars if bar.value}
        best = (max if higher else min)(values.values(), default=1.0)
        for bar, value in values.items():
            shares[bar.name].append(best / value if higher else value / best)
    places = {name: statistics.fmean(group_shares) for name, group_shares in shares.items()}

    def place(bar: Bar) -> float:
        return places.get(bar.name, math.inf)

    return [replace(group, bars=tuple(sorted(group.bars, key=place))) for group in bar_groups]


def _bar(group: Group, metric: Metric) -> Bar:
    name = group.label
    if group.processes > 1:  # on a CPU all share it
        count = f"{group.processes:.0f}"
        name = f"{name} ({count} processes)" if group.device == "cpu" else f"{count} x {name}"
    name = f"{name} {group.precision}{policy_text(group.batch_policy)}"
    figure = estimate(group, metric)
    if not isinstance(figure, Estimate):
        return Bar(name, None, text=str(figure or "no figure"))
    ends = (figure.low, figure.high) if figure.low is not None and figure.high is not None else None
    return Bar(name, figure.value, ends, note=", ".join(sorted(group.marks)))


def _dot(c: Comparison, metric: Metric) -> Bar:
    ratio = metric.gain_of(c.ratio)
    where = f"{c.subject.precision * (c.axis != 'precision')}{policy_text(c.subject.batch_policy)}".strip()
    place = c.subject.label if c.axis != "card" else ""
    name = f"{c.subject_name} {where}".strip() + (f" on {place}" if place else "")
    note = c.verdict if c.verdict in {"same", "undecided"} else ""
    return Bar(name, ratio.value, ratio.interval, note=note)


def _version(group: Group) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return a key that sorts versions by their numbers, and the version without its build."""
    plain = group.torch.partition("+")[0]
    return tuple((len(digits), digits) for digits in re.findall(r"[0-9]+", plain)), plain


def _versions(groups: Sequence[Group]) -> list[str]:
    """Return the torch versions without their builds, oldest first."""
    return [text for _, text in sorted(set(map(_version, groups)))]


def _trend(groups: Sequence[Group], metric: Metric) -> tuple[Line, ...]:
    places = {text: at for at, text in enumerate(_versions(groups))}
    lines: dict[str, list[Point]] = defaultdict(list)
    for group in groups:
        low, high = sorted(map(metric.shown, group.interval or (group.median, group.median)))
        at = float(places[_version(group)[1]])
        name = f"{group.model} {group.precision} {short(group.card)}"
        lines[name].append(Point(at, metric.shown(group.median), low, high))
    by_x = {name: tuple(sorted(points, key=lambda point: point.x)) for name, points in lines.items()}
    return tuple(Line(name, points) for name, points in by_x.items() if len(points) > 1)
