"""Charts of pairs: both sides of a result, all cases and ratios of a recipe, and trends over torch versions."""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpubench.analysis.cells import Cell, short
from gpubench.analysis.compare import Group, Result
from gpubench.analysis.metrics import Metric
from gpubench.analysis.verdicts import Comparison
from gpubench.studies import words
from gpubench.studies.cases import behind, estimate, policy_text
from gpubench.studies.section import Bar, BarGroup, Bars, Chart, Estimate, Finding, Line, Lines, Part, Point


def pictures(finding: Finding, cells: Sequence[Cell]) -> tuple[Chart, ...]:
    """Return two charts: seconds of both sides, and speedups with their intervals."""
    stem = words.slug(f"{finding.suite} {finding.subject} over {finding.baseline} {finding.where}")
    groups = [
        BarGroup(
            part.model,
            (
                Bar(finding.baseline, part.baseline, note=_note(part, part.baseline_batch, part.baseline_marks)),
                Bar(finding.subject, part.subject, note=_note(part, part.subject_batch, part.subject_marks)),
            ),
            f"{words.gain(part.value)}x",
            worse=part.value < 1,
        )
        for part in finding.parts
    ]
    dots = [
        BarGroup(part.model, (Bar(finding.subject, part.value, part.interval, note=_marks(part)),))
        for part in finding.parts
    ]
    if len(finding.parts) > 1:
        groups.append(BarGroup("mean", (), f"{words.gain(finding.value)}x", strong=True, worse=finding.value < 1))
        dots.append(BarGroup("mean", (Bar(finding.subject, finding.value, finding.interval),), strong=True))
    recipe = f"{_recipe(finding, cells)}{f', {words.PROJECTED}' * finding.projected}"
    times = f"Seconds for {recipe}; lower is better"
    speedups = f"Speedup over {finding.baseline}, {recipe}; above 1 is faster"
    bars = Bars(f"{stem}-seconds", finding.said, times, tuple(groups), "s", winner=finding.subject, cases=finding.cases)
    ratios = Bars(f"{stem}-speedup", finding.said, speedups, tuple(dots), "ratio", reference=1.0, cases=finding.cases)
    return bars, ratios


def _note(part: Part, size: float, marks: str) -> str:
    """Return a side's marks, and its batch if the sides differ in it."""
    differs = part.subject_batch != part.baseline_batch and not math.isnan(size)
    return ", ".join(filter(None, [f"batch {size:.0f}" if differs else "", marks]))


def _marks(part: Part) -> str:
    """Return the marks of both sides, without duplicates."""
    marks = ", ".join(filter(None, (part.subject_marks, part.baseline_marks)))
    return ", ".join(sorted(set(marks.split(", "))))


def _recipe(finding: Finding, cells: Sequence[Cell]) -> str:
    """Return what was run: epochs and data if they are the same in all groups, else the suite."""
    epochs, data = {cell.epochs for cell in cells}, {cell.data for cell in cells}
    known = len(epochs) == len(data) == 1 and all(data) and not any(map(math.isnan, epochs))
    if not known:
        return f"a full run of {finding.suite}"
    count = epochs.pop()
    return f"{count:.0f} epoch{'s' * (count != 1)} of {data.pop()}"


def charts_of(group: Group, comparisons: Sequence[Comparison], result: Result) -> Iterator[Chart]:
    """Yield charts of all cases, of all ratios, and of the trend over torch versions."""
    if not group.cells:
        return
    metric, suite, about = result.metric, group.cells[0].suite, words.title_of(group.cases)
    cases = behind(group.cases)
    foot, way = words.origin(group.cells), "higher" if metric.inverse else "lower"
    by_model: dict[str, list[Bar]] = defaultdict(list)
    for cell in group.cases:
        by_model[cell.model].append(_bar(cell, metric))
    bars = _best_first([BarGroup(model, tuple(bars)) for model, bars in by_model.items()], higher=metric.inverse)
    projected = any(cell.measured == "projected" for cell in group.cells)
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
    if "torch" in result.axes and (trend := _trend(group.cells, metric)):
        ticks = tuple((float(at), text) for at, text in enumerate(_versions(group.cells)))
        title, subtitle = f"{suite}: {metric.title} over torch versions", f"{metric.title}; {way} is better"
        name = words.slug(f"{about} trend")
        yield Lines(name, title, subtitle, trend, "torch", metric.title, ticks=ticks, foot=foot, cases=cases)


def _best_first(groups: Sequence[BarGroup], *, higher: bool) -> list[BarGroup]:
    """Return the groups with their bars in one order: the best mean share of the group's best value first."""
    shares: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        values = {bar: bar.value for bar in group.bars if bar.value}
        best = (max if higher else min)(values.values(), default=1.0)
        for bar, value in values.items():
            shares[bar.name].append(best / value if higher else value / best)
    places = {name: statistics.fmean(group_shares) for name, group_shares in shares.items()}

    def place(bar: Bar) -> float:
        return places.get(bar.name, math.inf)

    return [replace(group, bars=tuple(sorted(group.bars, key=place))) for group in groups]


def _bar(cell: Cell, metric: Metric) -> Bar:
    name = cell.label
    if cell.processes > 1:  # on a CPU all share it
        count = f"{cell.processes:.0f}"
        name = f"{name} ({count} processes)" if cell.device == "cpu" else f"{count} x {name}"
    name = f"{name} {cell.precision}{policy_text(cell.batch_policy)}"
    figure = estimate(cell, metric)
    if not isinstance(figure, Estimate):
        return Bar(name, None, text=str(figure or "no figure"))
    ends = (figure.low, figure.high) if figure.low is not None and figure.high is not None else None
    return Bar(name, figure.value, ends, note=", ".join(sorted(cell.marks)))


def _dot(c: Comparison, metric: Metric) -> Bar:
    ratio = metric.gain_of(c.ratio)
    where = f"{c.subject.precision * (c.axis != 'precision')}{policy_text(c.subject.batch_policy)}".strip()
    place = c.subject.label if c.axis != "card" else ""
    name = f"{c.subject_name} {where}".strip() + (f" on {place}" if place else "")
    note = c.verdict if c.verdict in {"same", "undecided"} else ""
    return Bar(name, ratio.value, ratio.interval, note=note)


def _version(cell: Cell) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return a key that sorts versions by their numbers, and the version without its build."""
    plain = cell.torch.partition("+")[0]
    return tuple((len(digits), digits) for digits in re.findall(r"[0-9]+", plain)), plain


def _versions(cells: Sequence[Cell]) -> list[str]:
    """Return the torch versions without their builds, oldest first."""
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
