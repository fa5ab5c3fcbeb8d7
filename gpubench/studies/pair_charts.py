"""Charts of pairs: both sides of a result, and all cases of a recipe."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from gpubench.analysis.compare import Compared, Workload
from gpubench.analysis.groups import Group
from gpubench.analysis.metrics import Metric
from gpubench.studies import words
from gpubench.studies.cases import behind, estimate, interval_of, policy_text
from gpubench.studies.section import Bar, BarGroup, Bars, Estimate, Part, Result

PARTS = ("train_", "valid_")
"""How the names of parameters begin that train or validate on a part of the data."""


def pictures(result: Result, groups: Sequence[Group]) -> tuple[Bars, ...]:
    """Return two charts: seconds of both sides, and speedups with their intervals."""
    stem = words.slug(f"{result.suite} {result.subject} over {result.baseline} {result.where}")
    bar_groups, dots = [], []
    for part in result.parts:
        subject_note = _note(part, part.subject_batch, part.subject_marks)
        baseline_note = _note(part, part.baseline_batch, part.baseline_marks)
        sides = (
            Bar(result.baseline, part.baseline, part.baseline_interval, note=baseline_note),
            Bar(result.subject, part.subject, part.subject_interval, note=subject_note),
        )
        bar_groups.append(BarGroup(part.model, sides, f"{words.gain(part.value)}x", worse=part.value < 1))
        dots.append(BarGroup(part.model, (Bar(result.subject, part.value, part.interval, note=_marks(part)),)))
    if len(result.parts) > 1:
        bar_groups.append(BarGroup("mean", (), f"{words.gain(result.value)}x", strong=True, worse=result.value < 1))
        dots.append(BarGroup("mean", (Bar(result.subject, result.value, result.interval),), strong=True))
    recipe = f"{recipe_of(result, groups)}{f', {words.PROJECTED}' * result.projected}"
    times = f"Seconds for {recipe}; lower is better"
    speedups = f"Speedup over {result.baseline}, {recipe}; above 1 is faster"
    bars = partial(Bars, title=result.said, foot=words.origin(groups), cases=result.cases)
    return (
        bars(f"{stem}-seconds", subtitle=times, groups=tuple(bar_groups), unit="s", winner=result.subject),
        bars(f"{stem}-speedup", subtitle=speedups, groups=tuple(dots), unit="ratio", reference=1.0),
    )


def _note(part: Part, size: float, marks: str) -> str:
    """Return a side's marks, and its batch if the sides differ in it."""
    differs = part.subject_batch != part.baseline_batch and not math.isnan(size)
    return ", ".join(filter(None, [f"batch {size:.0f}" if differs else "", marks]))


def _marks(part: Part) -> str:
    """Return the marks of both sides, without duplicates."""
    marks = ", ".join(filter(None, (part.subject_marks, part.baseline_marks)))
    return ", ".join(sorted(set(marks.split(", "))))


def recipe_of(result: Result, groups: Sequence[Group]) -> str:
    """Return what was run: epochs, data and the part of it if they are the same in all groups, else the suite."""
    epochs, data = {group.epochs for group in groups}, {group.data for group in groups}
    known = len(epochs) == len(data) == 1 and all(data) and not any(map(math.isnan, epochs))
    if not known:
        return f"a full run of {result.suite}"
    count = epochs.pop()
    part = [f"{name}={value}" for name, value in words.shared_params(groups).items() if name.startswith(PARTS)]
    part = [text for text in part if not text.endswith("=0")]
    return ", ".join([f"{count:.0f} epoch{'s' * (count != 1)} of {words.data_name(data.pop())}", *part])


def charts_of(workload: Workload, compared: Compared) -> Iterator[Bars]:
    """Yield the chart of all cases."""
    if not workload.groups:
        return
    metric, suite, about = compared.metric, workload.groups[0].suite, words.title_of(workload.cases)
    cases = behind(workload.cases)
    foot, way = words.origin(workload.groups), "higher" if metric.inverse else "lower"
    by_model: dict[str, list[Bar]] = defaultdict(list)
    for group, label in zip(workload.cases, words.labels_of(workload.cases), strict=True):
        by_model[group.model].append(_bar(group, label, metric))
    bars = _best_first([BarGroup(model, tuple(bars)) for model, bars in by_model.items()], higher=metric.inverse)
    projected = any(group.measured == "projected" for group in workload.groups)
    what = f"Seconds of a full run{f', {words.PROJECTED}' * projected}" if metric.name == "seconds" else metric.title
    title = f"{suite}: all cases"
    subtitle = f"{what}; {way} is better; {about}"
    yield Bars(words.slug(f"{about} {metric.name}"), title, subtitle, tuple(bars), metric.unit, foot=foot, cases=cases)


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


def _bar(group: Group, name: str, metric: Metric) -> Bar:
    if group.processes > 1:  # on a CPU all share it
        count = f"{group.processes:.0f}"
        name = f"{name} ({count} processes)" if group.device == "cpu" else f"{count} x {name}"
    name = f"{name} {group.precision}{policy_text(group.batch_policy)}"
    figure = estimate(group, metric)
    if not isinstance(figure, Estimate):
        return Bar(name, None, text=str(figure or "no figure"))
    return Bar(name, figure.value, interval_of(group, metric), note=", ".join(sorted(group.marks)))
