"""Chooses charts to draw, adds dates to their foot, and writes files. `page`, `site` and the commands call it."""

import csv
import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.errors import UserError, writing
from gpubench.show import bars
from gpubench.show.chart_sheet import SIZE
from gpubench.show.style import save, style
from gpubench.studies.section import Answer, Bar, Bars, Result, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINDINGS = 6
"""Number of results whose charts are drawn, unless all are asked for."""
UNITS = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def draw(answer: Answer, folder: Path, *, every: bool, theme: str, kinds: Sequence[str] = ("png", "svg")) -> list[str]:
    """Write the charts of the first results, or `every` chart; return lines to print: paths, and what was not drawn.

    Each file contains the rows of its cases. Raises UserError if the folder cannot be written.
    """
    paths: list[str] = []
    charts = _chosen(answer, every=every)
    with style(theme):
        for chart in charts:
            figure = figure_of(dated(chart, answer))
            with writing(f"--charts {folder}", folder / chart.name):
                paths += save(figure, folder / chart.name, answer.table(chart.cases), kinds)
    more = len(_chosen(answer, every=True)) - len(charts)
    if not more:
        return paths or ["No chart: nothing here has two figures to compare."]
    suites = list(dict.fromkeys(section.suite for section in answer.sections))
    one = f"; one suite ({', '.join(suites)}): --only {suites[0]} --charts DIR" if len(suites) > 1 else ""
    return [*paths, f"Not drawn: {more} more chart{'s' * (more > 1)}. All: --all --charts DIR{one}."]


def named_figure(answer: Answer, name: str = "", theme: str = "light") -> "Figure":
    """Return the first chart of an answer, or the one of this name, as a figure. Raises UserError if there is none."""
    named = {chart.name: chart for chart in _chosen(answer, every=bool(name))}
    chart = named.get(name) if name else next(iter(named.values()), None)
    if chart is None:
        there = f"the charts are {', '.join(named)}" if named else "nothing here has two figures to compare"
        raise UserError(f"no chart{f' {name}' if name else ''}: {there}")
    with style(theme):
        return figure_of(dated(chart, answer))


def _chosen(answer: Answer, *, every: bool) -> list[Bars]:
    """Return `every` chart, or the charts of the first results, or of the sections if the results have none."""
    charts = [chart for result in answer.results for chart in result.charts] if every else first_charts(answer.results)
    if every or not charts:
        charts += [chart for section in answer.sections for chart in section.charts]
    return worth_drawing(charts)


def first_charts(results: Sequence[Result]) -> list[Bars]:
    """Return the charts of the first FINDINGS results with charts, without charts that repeat another."""
    charts = [kept for result in results if (kept := [c for c in worth_drawing(result.charts) if not _repeats(c)])]
    return list(itertools.chain.from_iterable(charts[:FINDINGS]))


def _repeats(chart: Bars) -> bool:
    """Return whether a chart has only ratios without intervals: the chart of both sides has these ratios as text."""
    intervals = [bar.interval for group in chart.groups for bar in group.bars if bar.interval]
    return chart.reference is not None and not intervals


def charts_of(section: Section) -> list[Bars]:
    """Return the charts of a section's first results, and the section's own charts that have other cases."""
    charts = first_charts(section.results)
    cases = {chart.cases for chart in charts} - {frozenset()}
    return worth_drawing([*charts, *(chart for chart in section.charts if chart.cases not in cases)])


def worth_drawing(charts: Sequence[Bars]) -> list[Bars]:
    """Return the charts that show more than one figure, without duplicates."""
    return list({chart.name: chart for chart in charts if len(bars.values_of(chart)) > 1}.values())


def dated(chart: Bars, answer: Answer) -> Bars:
    """Return the chart with the dates of its rows in its foot, if the rows have dates."""
    days = days_of(csv.DictReader(io.StringIO(answer.table(chart.cases).decode())))
    return replace(chart, foot="; ".join(filter(None, [chart.foot.rstrip(". "), days])))


def days_of(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the first and last day of rows as text, `2026-11-21 to 2026-11-22`; empty if no row has a date."""
    days = sorted({row["started"][:10] for row in rows if row.get("started")})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""


def figure_of(chart: Bars, *, width: float = SIZE[0], framed: bool = True) -> "Figure":
    """Return the chart in the current style. `framed`: as high as SIZE, with its texts; else with at most 40 bars."""
    return bars.figure_of(in_best_unit(chart) if framed else drawn(chart), width, framed=framed)


def drawn(chart: Bars) -> Bars:
    """Return the chart as a page shows it: in the best unit of time, with at most 40 bars."""
    return bars.shortened(in_best_unit(chart), most=40)


def in_best_unit(chart: Bars) -> Bars:
    """Return a chart of seconds in the largest unit of time in which all bars are 1 or more; others keep their unit."""
    if chart.unit != "s" or chart.reference is not None:
        return replace(chart, foot=chart.foot.rstrip(". "))
    smallest = min(bars.values_of(chart), default=0)
    unit = next((name for name, seconds in UNITS.items() if smallest >= seconds), "seconds")
    size = UNITS[unit]

    def bar_of(bar: Bar) -> Bar:
        ends = bar.interval and (bar.interval[0] / size, bar.interval[1] / size)
        return replace(bar, value=None if bar.value is None else bar.value / size, interval=ends)

    return replace(
        chart,
        groups=tuple(replace(group, bars=tuple(map(bar_of, group.bars))) for group in chart.groups),
        marks={name: {group: mark / size for group, mark in marks.items()} for name, marks in chart.marks.items()},
        foot=chart.foot.rstrip(". "),
        subtitle=chart.subtitle.replace("Seconds", unit.capitalize()).replace("seconds", unit),
        unit="",
    )
