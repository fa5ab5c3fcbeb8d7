"""Draws charts with two number axes: rate or accuracy by batch, scaling. `charts` calls it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpubench.show.sheet import EDGE, INSET, SMALL, Key, Sheet, palette, setting, sheet_of
from gpubench.show.style import MARKERS, fitted, plain_numbers, wide
from gpubench.studies.section import Line, Lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 8
"""Maximum number of lines: that of distinct colours."""
LETTER = 0.17
"""Height of a text, in inches."""
AXIS = 0.4
"""Height of the numbers and the name of the x axis, in inches."""


def figure_of(chart: Lines, width: float, *, framed: bool) -> "Figure":
    """Return the chart drawn in the current style."""
    lines = [line for line in map(partial(_visible, chart), chart.lines) if line.points]
    edge, soft = EDGE if framed else INSET, setting("axes.edgecolor")
    colours = dict(zip((line.name for line in lines), palette(), strict=False))
    named = len(lines) > 1 and _end_right(lines, 0.3 * width)
    keys = []
    if len(lines) > 1 and not named:
        keys = [Key(marker, colours[line.name], line.name) for line, marker in zip(lines, MARKERS, strict=False)]
    sheet = sheet_of(chart, width, keys, 2.8, framed=framed)
    sheet.text(edge, sheet.top + 0.06, chart.y, color=soft)
    sheet.text(width - edge, sheet.bottom - 0.1, chart.x, ha="right", color=soft)
    right = width - edge - (max(wide(line.name, SMALL) for line in lines) + 0.3 if named else 0.15)
    left, top, bottom = edge, sheet.top + 0.26, sheet.bottom - AXIS
    axes = sheet.plot_axes(left, top, right, bottom)
    for line, marker in zip(lines, MARKERS, strict=False):
        xs, ys = [point.x for point in line.points], [point.y for point in line.points]
        axes.plot(xs, ys, color=colours[line.name], linewidth=2.0, marker=marker, markersize=6.5)
    _set_axes(axes, chart, lines)
    if numbers := axes.get_tightbbox():
        left += max(0.0, left - numbers.x0 / sheet.figure.dpi)
    axes.set_position(sheet.part(left, top, right, bottom))
    if named:
        _name_ends(sheet, axes, lines, colours)
    return sheet.figure


def _visible(chart: Lines, line: Line) -> Line:
    """Return the line without points that are not above 0 on a logarithmic axis."""
    kept = [p for p in line.points if (p.x > 0 or not chart.log_x) and (p.y > 0 or not chart.log_y)]
    return replace(line, points=tuple(kept))


def _set_axes(axes: "Axes", chart: Lines, lines: Sequence[Line]) -> None:
    """Set the scales, limits and numbers of both axes."""
    axes.margins(x=0.02)
    ends = [point.y for line in lines for point in line.points]
    if chart.reference is not None:
        axes.axhline(chart.reference, color=setting("axes.edgecolor"), linewidth=1.4, zorder=1)
        ends.append(chart.reference)
    if chart.log_x:
        axes.set_xscale("log", base=chart.log_x)
    if chart.log_y:
        axes.set_yscale("log", base=chart.log_y)
    elif 0 <= min(ends) < 0.6 * max(ends):
        axes.set_ylim(0, max(ends) * 1.08)
    plain_numbers(axes.xaxis, chart.log_x)
    plain_numbers(axes.yaxis, chart.log_y)
    axes.minorticks_off()
    if chart.ticks:
        axes.set_xticks([at for at, _ in chart.ticks], [fitted(name, 1.1, SMALL) for _, name in chart.ticks])


def _end_right(lines: Sequence[Line], room: float) -> bool:
    """Return whether every line ends near the right side, and its name fits into `room` inches there."""
    xs = [point.x for line in lines for point in line.points]
    near = max(xs) - 0.1 * (max(xs) - min(xs))
    fit = all(wide(line.name, SMALL) < room for line in lines)
    return fit and all(line.points[-1].x >= near for line in lines)


def _name_ends(sheet: Sheet, axes: "Axes", lines: Sequence[Line], colours: dict[str, str]) -> None:
    """Write the name of each line at its end; names that would overlap are moved, and joined to their line."""
    pixels = axes.transData.transform([(line.points[-1].x, line.points[-1].y) for line in lines])
    places = [(float(x), sheet.figure.get_figheight() - float(y)) for x, y in pixels / sheet.figure.dpi]
    ends = sorted(zip(places, lines, strict=True), key=lambda end: end[0][1])
    edge = max(x for x, _ in places) + 0.1
    ys: list[float] = []
    for (_, y), _ in ends:
        ys.append(max(y, ys[-1] + LETTER) if ys else y)
    floor = sheet.bottom - AXIS
    for at in reversed(range(len(ys))):
        ys[at] = min(ys[at], floor)
        floor = ys[at] - LETTER
    for ((x, y), line), moved in zip(ends, ys, strict=True):
        sheet.line([x + 0.06, edge, edge + 0.1], [y, moved, moved], colours[line.name])
        sheet.text(edge + 0.14, moved, line.name)
