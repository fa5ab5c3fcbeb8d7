"""Chooses which charts of the results are drawn, and writes them as files. `page` and the commands call it."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.errors import UserError
from gpubench.show import bars, lines
from gpubench.show.sheet import SIZE
from gpubench.show.style import save, style
from gpubench.studies.section import Answer, Bar, BarGroup, Bars, Chart, Lines, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINDINGS = 6
"""Number of results whose charts are drawn, unless all are asked for."""
MOST_BARS = 40
UNITS = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def draw(answer: Answer, folder: Path, *, every: bool, kinds: Sequence[str], theme: str) -> list[str]:
    """Write the charts of the first results, or `every` chart; return lines to print: paths, and what was not drawn.

    Each file contains the rows of its cases. Raises UserError if the folder cannot be written.
    """
    paths: list[str] = []
    charts = chosen(answer, every=every)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with style(theme):
            for chart in charts:
                paths += save(figure_of(chart), folder / chart.name, answer.table(chart.cases), kinds)
    except OSError as error:
        raise UserError(f"--charts {folder}: cannot write there ({error.strerror})") from None
    return [*paths, *_not_drawn(answer, charts)]


def _not_drawn(answer: Answer, charts: Sequence[Chart]) -> list[str]:
    """Return a line with the number of other charts and the options that draw them."""
    names = {chart.name for chart in charts}
    suites = [section.suite for section in answer.sections for chart in charts_of(section) if chart.name not in names]
    if not suites:
        return []
    of = ", ".join(dict.fromkeys(suites))
    return [
        f"Not drawn: {len(suites)} more, of {of}. All: --all-charts DIR; one suite: --only {suites[0]} --charts DIR."
    ]


def chosen(answer: Answer, *, every: bool) -> list[Chart]:
    """Return the charts of the first results, or those of the sections if results have none; or `every` chart."""
    of_results = [charts for result in answer.results if (charts := worth_drawing(result.charts))]
    charts = [chart for charts in of_results[: None if every else FINDINGS] for chart in charts]
    if every or not charts:
        charts += [chart for section in answer.sections for chart in section.charts]
    return worth_drawing(charts)


def worth_drawing(charts: Sequence[Chart]) -> list[Chart]:
    """Return the charts that show more than one figure, without duplicates."""
    return list({chart.name: chart for chart in charts if _figures(chart) > 1}.values())


def charts_of(section: Section, most: int | None = None) -> list[Chart]:
    """Return the charts of a section and of its results, or of the first `most`, that show more than one figure."""
    of_results = [charts for result in section.results if (charts := worth_drawing(result.charts))]
    return worth_drawing([*itertools.chain.from_iterable(of_results[:most]), *section.charts])


def _figures(chart: Chart) -> int:
    """Return the number of figures in a chart."""
    if isinstance(chart, Bars):
        return len(bars.values_of(chart))
    return sum(len(line.points) for line in chart.lines if not line.of)


def figure_of(chart: Chart, *, width: float = SIZE[0], framed: bool = True) -> "Figure":
    """Return the chart in the current style; `framed`: with title, subtitle and foot, at least as high as SIZE."""
    chart = drawn(chart)
    if isinstance(chart, Bars):
        return bars.figure_of(chart, width, framed=framed)
    return lines.figure_of(chart, width, framed=framed)


def drawn(chart: Chart) -> Chart:
    """Return the chart as it is drawn: in the best unit of time, and without lines or bars that are too many."""
    if isinstance(chart, Lines):
        names = [line.name for line in chart.lines if not line.of]
        kept = tuple(line for line in chart.lines if (line.of or line.name) in names[: lines.MOST])
        return replace(chart, lines=kept, foot=_foot(chart, len(names) - lines.MOST))
    if chart.unit == "s" and chart.reference is None:
        chart = _in_unit(chart)
    groups = _kept(chart.groups)
    more = sum(len(group.bars) for group in chart.groups) - sum(len(group.bars) for group in groups)
    subtitle = f"{chart.subtitle}; logarithmic axis" if bars.logarithmic(chart) else chart.subtitle
    return replace(chart, groups=groups, subtitle=subtitle, foot=_foot(chart, more))


def _foot(chart: Chart, more: int) -> str:
    """Return the foot of a chart, with the number of lines or bars that are left out."""
    return ". ".join(filter(None, [chart.foot.rstrip(". "), f"And {more} more" if more > 0 else ""]))


def _in_unit(chart: Bars) -> Bars:
    """Return the chart in the largest unit of time in which every bar is at least 1."""
    smallest = min(bars.values_of(chart), default=0)
    unit = next((name for name, seconds in UNITS.items() if smallest >= seconds), "seconds")

    def bar_of(bar: Bar) -> Bar:
        value = None if bar.value is None else bar.value / UNITS[unit]
        ends = bar.interval and (bar.interval[0] / UNITS[unit], bar.interval[1] / UNITS[unit])
        return replace(bar, value=value, interval=ends)

    return replace(
        chart,
        groups=tuple(replace(group, bars=tuple(map(bar_of, group.bars))) for group in chart.groups),
        marks={
            name: {group: mark / UNITS[unit] for group, mark in marks.items()} for name, marks in chart.marks.items()
        },
        subtitle=chart.subtitle.replace("Seconds", unit.capitalize()).replace("seconds", unit),
        unit="",
    )


def _kept(groups: Sequence[BarGroup]) -> tuple[BarGroup, ...]:
    """Return the first groups, with at most MOST_BARS bars together, and the groups that are means."""
    count, kept = 0, list[BarGroup]()
    for group in groups:
        count += len(group.bars)
        if group.strong or count <= MOST_BARS or not kept:
            kept.append(replace(group, bars=group.bars[:MOST_BARS]))
    return tuple(kept)
