"""Charts of the study `pairs`: times and speedups of a pair, and all cases of a workload. `buyer` uses its titles."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from gpubench.analysis.compare import Workload
from gpubench.analysis.groups import Group
from gpubench.analysis.metrics import Metric
from gpubench.studies import words
from gpubench.studies.cases import estimate, interval_of, policy_text
from gpubench.studies.section import Bar, BarGroup, Bars, Estimate, Part, Result

PARTS = {f"{part}_{what}": f"{named} {what}" for part, named in (("train", "training"), ("valid", "validation"))
         for what in ("images", "tokens")}  # fmt: skip
"""Words for the parameters that limit training or validation to a part of the data."""


def charts_of(result: Result, groups: Sequence[Group]) -> tuple[Bars, ...]:
    """Return two charts: seconds (or rates) of both sides, and speedups with their intervals.

    Published times stay in seconds, as their authors drew them; others are drawn in minutes or hours if they are long.
    """
    stem = words.slug(f"{result.suite} {result.subject} over {result.baseline} {result.where}")
    bar_groups, dots = [], []
    is_telling = len({marks for part in result.parts for marks in (part.subject_marks, part.baseline_marks)}) > 1
    for part in result.parts if is_telling else [replace(p, subject_marks="", baseline_marks="") for p in result.parts]:
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
    rate = result.unit.replace("samples", words.sample_of(result.suite))
    times = f"Training {rate}; higher is better" if rate else f"Seconds for {recipe}; lower is better"
    speedups = f"Speedup over {result.baseline}, {recipe}; above 1 is faster"
    foot = "; ".join(filter(None, [words.why_undecided(result), words.chart_foot(groups)]))
    bars = partial(Bars, title=result.said, foot=foot, cases=result.cases)
    return (
        bars(
            f"{stem}-{'rate' if result.unit else 'seconds'}",
            subtitle=times,
            groups=tuple(bar_groups),
            unit=result.unit or ("seconds" if all(group.source for group in groups) else "s"),
            winner=result.subject,
        ),
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
    """Return what was run: epochs, data and the used part of the data if all groups agree in them, else the suite."""
    epochs, data = {group.epochs for group in groups}, {group.data for group in groups}
    known = len(epochs) == len(data) == 1 and all(data) and not any(map(math.isnan, epochs))
    if not known:
        return f"a full run of {result.suite}"
    count = epochs.pop()
    given = words.shared_params(groups)
    part = [f"{given[name]} {named}" for name, named in PARTS.items() if given.get(name, "0") != "0"]
    return ", ".join([f"{count:.0f} epoch{'s' * (count != 1)} of {words.data_name(data.pop())}", *part])


def chart_of_cases(workload: Workload, metric: Metric) -> Iterator[Bars]:
    """Yield the chart of all cases, if any has a figure: a group of bars per model, the best bar first."""
    if not workload.groups:
        return
    about, sign = words.title_of(workload.cases), -1 if metric.inverse else 1
    by_model: dict[str, list[Bar]] = defaultdict(list)
    for group, label in zip(workload.cases, words.labels_of(workload.cases), strict=True):
        by_model[group.model].append(_bar(group, label, metric))
    for bars in by_model.values():
        bars.sort(key=lambda bar: math.inf if bar.value is None else sign * bar.value)
    projected = any(group.measured == "projected" for group in workload.groups)
    title = metric.title.replace("samples", words.sample_of(workload.groups[0].suite))
    what = f"Seconds of a full run{f', {words.PROJECTED}' * projected}" if metric.name == "seconds" else title
    yield Bars(
        words.slug(f"{about} {metric.name}"),
        f"{workload.groups[0].suite}: all cases",
        f"{what}; {'higher' if metric.inverse else 'lower'} is better; {about}",
        tuple(BarGroup(model, tuple(bars)) for model, bars in by_model.items()),
        metric.unit,
        foot=words.chart_foot(workload.groups),
        cases=words.behind(workload.cases),
    )


def _bar(group: Group, name: str, metric: Metric) -> Bar:
    if group.processes > 1:  # on a CPU all processes share it
        count = f"{group.processes:.0f}"
        name = f"{name} ({count} processes)" if group.device == "cpu" else f"{count} x {name}"
    name = f"{name} {group.precision}{policy_text(group.batch_policy)}"
    figure = estimate(group, metric)
    if not isinstance(figure, Estimate):
        return Bar(name, None, text=str(figure or "no figure"))
    return Bar(name, figure.value, interval_of(group, metric), note=", ".join(sorted(group.marks)))
