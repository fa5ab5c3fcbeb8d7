"""Comparisons as charts: seconds and relative speedup per model, as PNG and SVG, legible in a post."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.analysis.cells import Cell, task_of, text_of
from gpubench.analysis.compare import Comparison, Group, Result
from gpubench.analysis.metrics import SECONDS, Metric
from gpubench.comparing import ladder
from gpubench.comparing.carrying import Rows
from gpubench.comparing.table import places, policy_text, relative_texts, shown
from gpubench.errors import UserError
from gpubench.show.numbers import seconds_text
from gpubench.show.style import (
    EDGE,
    LINE,
    WIDTH,
    footer_lines,
    plain_numbers,
    save,
    shade,
    shortened,
    themed,
)
from gpubench.show.style import STYLE as STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
MOST_LABEL = 88
"""Letters that fit under an axis."""
LOG_FROM = 20.0
"""Range of values from which a linear axis would hide the small ones."""
HOURS_FROM = 7200.0
"""Seconds of the longest case from which a chart counts in hours."""
WHISKER_REACH = 2.0
"""A whisker is cut where it goes beyond all bars by more than this factor, so that the bars can be seen."""
MOST_BARS = 200
"""More than these fit no picture."""
BAR = 0.27
"""Inches of a bar with its gap."""
LEGEND_NAMES = 9
"""More names than colours can tell apart: each bar then has its name beside it, and there is no legend."""
NAME_CHARACTERS = 34
CHARACTER = 0.092
"""Inches of a character at 11 points."""

Name = tuple[str, str]
"""Card and precision: what a bar's look says."""


@dataclass(frozen=True)
class Bar:
    """One bar: a value with its interval, or none and a text that says why."""

    model: str
    name: Name
    text: str
    value: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Panel:
    """Bars that share an axis; with `reference`, they are ratios and 1 is marked."""

    label: str
    bars: list[Bar]
    reference: bool = False

    @property
    def height(self) -> float:
        """Inches of its axes: bars, and half a bar between models."""
        return BAR * (len(self.bars) + 0.7 * len({bar.model for bar in self.bars}))


def draw(
    result: Result,
    folder: Path,
    rows: Rows | None = None,
    kinds: Sequence[str] = ("png", "svg"),
    theme: str = "light",
) -> list[str]:
    """Write the charts that the rows of every group allow into `folder`; returns lines to print.

    Each PNG and SVG carries the rows behind it, as far as `rows` has them. Raises UserError where the folder
    cannot be written.
    """
    import matplotlib

    from gpubench.comparing.lines import line_charts

    lines: list[str] = []
    totals = Counter(_suite(group) for group in result.groups)
    seen: Counter[str] = Counter()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(themed(theme)):  # type: ignore[arg-type]
            for group in result.groups:
                suite = _suite(group)
                seen[suite] += 1
                stem = _plain(suite) + (f"-{seen[suite]}" if totals[suite] > 1 else "")
                bars = {"cases": len(group.cells), "ratios": len(group.comparisons)}
                lines += [
                    f"{stem}: {count} {what} are too many for a chart; choose some with --where"
                    for what, count in bars.items()
                    if count > MOST_BARS
                ]
                table = rows.table([*group.cells, *group.holes]) if rows else b""
                figures = []
                stepwise = group.is_ladder and result.metric is SECONDS and len(group.cells) > 1
                if 0 < bars["cases"] <= MOST_BARS and not stepwise:
                    figures.append((result.metric.name, seconds_chart(group, result.metric)))
                if 0 < bars["ratios"] <= MOST_BARS:
                    figures.append(("speedup", speedup_chart(group, result.metric)))
                if group.cells:
                    figures += line_charts(group, rows.of(group.cells) if rows else None, result.metric)
                for name, figure in figures:
                    lines += save(figure, folder / f"{name}-{stem}", table, kinds)
            for suite, figure in ladder.figures(result.ladders):
                table = rows.all(suite) if rows else b""
                lines += save(figure, folder / f"ladder-{_plain(suite)}", table, kinds)
    except OSError as error:
        raise UserError(f"--charts {folder}: cannot write there ({error.strerror})") from None
    return lines


def _plain(suite: str) -> str:
    """A suite's name as a part of a file's."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", suite)[:60]


def _suite(group: Group) -> str:
    return str([*group.cells, *group.holes][0].suite)


def seconds_chart(group: Group, metric: Metric = SECONDS) -> "Figure":
    """One bar per card and precision for each model: median seconds (or hours), and their multiple of the fastest."""
    relative = relative_texts(group.cells)
    axis = group.comparisons[0].axis if group.comparisons else "card"
    in_hours = metric is SECONDS and max(cell.median for cell in group.cells) > HOURS_FROM

    def figure(value: float) -> float:
        return value / 3600 if in_hours else metric.shown(value)

    bars = []
    for cell in group.cases:
        if not cell.seconds:
            bars.append(Bar(cell.model, _name(cell), cell.status.replace("_", " ")))
            continue
        low, high = sorted(map(figure, cell.interval or (cell.median, cell.median)))
        text = seconds_text(figure(cell.median), (high - low) / 2 or None)
        text += f"  ({relative[id(cell)]}x)" if id(cell) in relative else ""
        extra = "" if axis in {"card", "precision"} else f"  {axis} {_brief(axis, cell.row[axis])}"
        ends = (low, high) if cell.interval else None
        bars.append(Bar(cell.model, _name(cell), text + extra, figure(cell.median), ends))
    what = f"{'hours' if in_hours else 'seconds'} of a whole run" if metric is SECONDS else metric.title
    best_word = "fastest" if metric is SECONDS else "best"
    owner = "the model's" if any(map(task_of, group.cells)) else "the"  # rungs and tricks are all one task
    panel = Panel(f"{what}; in brackets relative to {owner} {best_word}" if relative else what, bars)
    return _figure(group, f"{_suite(group)}: {what}", [panel])


def speedup_chart(group: Group, metric: Metric = SECONDS) -> "Figure":
    """One bar per comparison for each model, with its 95% interval and a line at 1; a panel per axis.

    Above 1 is better than the baseline in every panel.
    """
    panels = []
    for axis in dict.fromkeys(c.axis for c in group.comparisons):
        along = [c for c in group.comparisons if c.axis == axis]
        bases = " or ".join(dict.fromkeys(c.other_name for c in along))
        panels.append(Panel(_ratio_label(axis, bases, metric), [_ratio_bar(c, metric) for c in along], reference=True))
    title = "relative speedup" if metric is SECONDS else f"{metric.title}, relative"
    return _figure(group, f"{_suite(group)}: {title}", panels)


def _ratio_label(axis: str, bases: str, metric: Metric) -> str:
    better = metric.words[0]
    if metric is SECONDS:
        first, second = ("in", "in the precision shown") if axis == "precision" else ("of", "of the one shown")
        label = f"seconds {first} {bases} / seconds {second}; above 1: faster"
        longer = f"{label} than {bases}"
        return longer if len(longer) <= MOST_LABEL else label.replace(bases, shortened(bases, 40))
    first, second = ("the one shown", bases) if metric.inverse else (bases, "the one shown")
    return f"{metric.title} of {first} / {metric.title} of {second}; above 1: {better}"


def _ratio_bar(c: Comparison, metric: Metric) -> Bar:
    ratio = shown(c, metric)[0]
    interval = (ratio.low, ratio.high) if ratio.low is not None and ratio.high is not None else None
    text = f"{ratio.value:.{places(ratio)}f}"
    if c.axis not in {"card", "precision", "model"}:  # which the bar's place or colour names
        text += f"  {c.axis} {_brief(c.axis, c.subject_name)}"
    elif c.verdict in {"same", "unsure"}:
        text += f"  {c.verdict}"
    return Bar(c.subject.model, _name(c.subject), text, ratio.value, interval)


def _brief(axis: str, value: object) -> str:
    """A torch version without its build, which the footer has."""
    text = shortened(text_of(value), 24)
    return text.partition("+")[0] if axis == "torch" else text


def _name(cell: Cell) -> Name:
    card = cell.label
    if cell.processes > 1:  # on a CPU they share the one
        count = f"{cell.processes:.0f}"
        card = f"{card} ({count} processes)" if cell.device == "cpu" else f"{count} x {card}"
    return card, f"{cell.precision}{policy_text(cell)}"


def _looks(group: Group) -> Callable[[Name], dict[str, object]]:
    """Colour by card, shade and hatch by precision: readable in grey as well."""
    import matplotlib

    names = [_name(cell) for cell in [*group.cells, *group.holes]]
    cards = list(dict.fromkeys(card for card, _ in names))
    kinds = list(dict.fromkeys(kind for _, kind in names))

    def look(name: Name) -> dict[str, object]:
        kind = kinds.index(name[1])
        return {
            "facecolor": shade(cards.index(name[0]), kind),
            "hatch": HATCHES[kind % len(HATCHES)],
            "edgecolor": matplotlib.rcParams["figure.facecolor"],
            "linewidth": 0.5,
        }

    return look


def _figure(group: Group, title: str, panels: Sequence[Panel]) -> "Figure":
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    look = _looks(group)
    names = list(dict.fromkeys(bar.name for panel in panels for bar in panel.bars if bar.value is not None))
    named = len(names) > LEGEND_NAMES
    labels = [] if named else [shortened(" ".join(name), 60) for name in names]
    columns = max(1, min(3, len(labels), int((WIDTH - 0.3) * 72 / (max(map(len, labels), default=1) * 6.7 + 44))))
    footer = footer_lines(group, whiskers=any(bar.interval for panel in panels for bar in panel.bars))
    legend_height = LINE * 1.15 * math.ceil(len(labels) / columns) + 0.1
    below = 0.55  # ticks and the label of an axis
    height = sum(_height(panel, named) + below + 0.1 for panel in panels) + 0.5
    height += legend_height + LINE * len(footer) + 2 * EDGE
    figure = Figure(figsize=(WIDTH, height))
    longest = max(map(len, _tick_texts(panels, named)))
    left = min(0.42, (0.3 + (0.088 if named else 0.095) * longest) / WIDTH)
    top = height - 0.5
    for panel in panels:
        tall = _height(panel, named)
        bottom = top - tall
        place = (left, bottom / height, 1 - 2.5 * EDGE / WIDTH - left, tall / height)
        _draw_panel(figure.add_axes(place), panel, look, named, place[2] * WIDTH)
        top = bottom - below - 0.1
    figure.text(EDGE / WIDTH, 1 - 0.12 / height, title, ha="left", va="top", fontsize=15, fontweight="bold")
    handles = [Patch(label=label, **look(name)) for label, name in zip(labels, names, strict=not named)]  # type: ignore[arg-type]
    if handles:
        figure.legend(
            handles=handles,
            loc="upper left",
            ncols=columns,
            frameon=False,
            borderpad=0,
            columnspacing=1.2,
            bbox_to_anchor=(EDGE / WIDTH, (EDGE + LINE * len(footer) + legend_height) / height),
        )
    soft = matplotlib.rcParams["axes.edgecolor"]
    figure.text(EDGE / WIDTH, EDGE / height, "\n".join(footer), va="bottom", color=soft, linespacing=1.25)
    return figure


def _height(panel: Panel, named: bool) -> float:
    """With names beside the bars each model takes a line of its own as a heading."""
    return panel.height + (BAR * len({bar.model for bar in panel.bars}) if named else 0)


def _tick_texts(panels: Sequence[Panel], named: bool) -> set[str]:
    bars = [bar for panel in panels for bar in panel.bars]
    return {shortened(" ".join(bar.name), NAME_CHARACTERS) for bar in bars} if named else {bar.model for bar in bars}


def _draw_panel(
    axes: "Axes", panel: Panel, look: Callable[[Name], dict[str, object]], named: bool, width: float
) -> None:
    import matplotlib

    values = [bar.value for bar in panel.bars if bar.value]
    logarithmic = max(values) / min(values) > LOG_FROM
    cut = min(values) / WHISKER_REACH if logarithmic else 0.0, max(values) * WHISKER_REACH
    ends = [end for bar in panel.bars if bar.value for end in (bar.value, *_within(bar.interval, cut))]
    low, high = min(ends), max(ends)
    high = max(high, 1.0) if panel.reference else high
    # The share of the axis that the longest text beside a bar takes.
    room = min(0.65, (max(len(bar.text) for bar in panel.bars if bar.value is not None) * CHARACTER + 0.15) / width)
    origin = 1.0 if panel.reference else low / 2
    if logarithmic:
        axes.set_xscale("log")
        start = min(origin, low) / (1.15 if panel.reference else 1)
        axes.set_xlim(start, start * (high / start) ** (1 / (1 - room)))
    else:
        origin = 0.0
        axes.set_xlim(0, high / (1 - room))
    plain_numbers(axes.xaxis)
    axes.grid(visible=False, axis="y")
    ticks, headings, y = {}, set(), 0.0
    for model in dict.fromkeys(bar.model for bar in panel.bars):
        bars = [bar for bar in panel.bars if bar.model == model]
        if named:
            ticks[y] = model
            headings.add(y)
            y += 1
        else:
            ticks[y + (len(bars) - 1) / 2] = model
        for bar in bars:
            if bar.value is not None:
                axes.barh(y, bar.value - origin, left=origin, height=0.86, **look(bar.name))  # type: ignore[arg-type]
                _whisker(axes, y, bar, cut)
            end = max(bar.value or origin, *_within(bar.interval, cut), origin)
            text = bar.text if bar.value is not None else f"{' '.join(bar.name)}: {bar.text}"
            share = (len(text) * CHARACTER + 0.15) / width
            if panel.reference and end < 1 < end + share * axes.get_xlim()[1]:
                end = 1.0  # the line there would strike it through
            axes.annotate(text, (end, y), xytext=(5, 0), textcoords="offset points", va="center")
            if named:
                ticks[y] = shortened(" ".join(bar.name), NAME_CHARACTERS)
            y += 1
        y += 0.7
    axes.set_ylim(y - 0.7 - 0.15, -0.85)
    axes.set_yticks(list(ticks), list(ticks.values()))
    for place, label in zip(ticks, axes.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if place in headings or not named else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(panel.label, loc="right" if len(panel.label) > 70 else "center")
    if panel.reference:
        axes.axvline(1, color=matplotlib.rcParams["text.color"], linewidth=1.2)


def _within(interval: tuple[float, float] | None, cut: tuple[float, float]) -> tuple[float, ...]:
    """The ends of an interval as far as they are drawn."""
    return tuple(min(max(end, cut[0]), cut[1]) for end in interval or ())


def _whisker(axes: "Axes", y: float, bar: Bar, cut: tuple[float, float]) -> None:
    """The interval as a line with a cap at each end, or an arrow where it goes on beyond `cut`."""
    if bar.interval:
        import matplotlib

        ink = matplotlib.rcParams["text.color"]
        ends = _within(bar.interval, cut)
        axes.plot(ends, [y, y], color=ink, linewidth=1.2)
        for end, whole, arrow in zip(ends, bar.interval, "<>", strict=True):
            axes.plot(end, y, color=ink, marker="|" if end == whole else arrow, markersize=6.0)
