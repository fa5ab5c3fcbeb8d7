"""Draws charts with two number axes: rate by batch, scaling, rooflines, trends. `charts` calls it."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpubench.show.sheet import EDGE, INSET, SMALL, Key, Sheet, palette, setting, sheet_of
from gpubench.show.style import MARKERS, fitted, plain_numbers, wide
from gpubench.studies.section import Line, Lines, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

MOST = 8
"""Maximum number of lines: that of distinct colours."""
LETTER = 0.17
"""Height of a text, in inches."""
AXIS = 0.4
"""Height of the numbers and the name of the x axis, in inches."""
STYLES = {"solid": "-", "dashed": "--", "dotted": ":", "points": "none"}


def figure_of(chart: Lines, width: float, *, framed: bool) -> "Figure":
    """Return the chart drawn in the current style."""
    lines = [line for line in map(partial(_visible, chart), chart.lines) if line.points]
    edge, soft, looks = EDGE if framed else INSET, setting("axes.edgecolor"), _looks(lines)
    mains = [line for line in lines if not line.of]
    named = len(mains) > 1 and _end_right(mains, 0.3 * width)
    keys = [Key(looks[line.name][1], looks[line.name][0], line.name) for line in mains if len(mains) > 1 and not named]
    sheet = sheet_of(chart, width, keys, 2.8, framed=framed)
    sheet.text(edge, sheet.top + 0.06, chart.y, color=soft)
    sheet.text(width - edge, sheet.bottom - 0.1, chart.x, ha="right", color=soft)
    right = width - edge - (max(wide(line.name, SMALL) for line in mains) + 0.3 if named else 0.15)
    left, top, bottom = edge, sheet.top + 0.26, sheet.bottom - AXIS
    axes = sheet.plot_axes(left, top, right, bottom)
    for line in lines:
        _draw_line(axes, line, *looks[line.name])
    _set_axes(axes, chart, lines)
    if numbers := axes.get_tightbbox():
        left += max(0.0, left - numbers.x0 / sheet.figure.dpi)
    axes.set_position(sheet.part(left, top, right, bottom))
    if named:
        _name_ends(sheet, axes, mains, {line.name: looks[line.name][0] for line in lines})
    _name_points(sheet, axes, lines)
    return sheet.figure


def _visible(chart: Lines, line: Line) -> Line:
    """Return the line without points that are not above 0 on a logarithmic axis."""
    kept = [p for p in line.points if (p.x > 0 or not chart.log_x) and (p.y > 0 or not chart.log_y)]
    return replace(line, points=tuple(kept))


def _looks(lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    """Return the colour and marker of each line; a line with `of` has those of that line."""
    names = [line.name for line in lines if not line.of]
    looks = dict(zip(names, zip(palette(), MARKERS, strict=False), strict=False))
    return {line.name: looks.get(line.of or line.name, (setting("axes.edgecolor"), "o")) for line in lines}


def _draw_line(axes: "Axes", line: Line, colour: str, marker: str) -> None:
    """Draw a line; dashed and dotted lines, which are no measurements, have no markers."""
    points = line.points
    lows = [0.0 if point.low is None else max(point.y - point.low, 0.0) for point in points]
    highs = [0.0 if point.high is None else max(point.high - point.y, 0.0) for point in points]
    axes.errorbar(
        [point.x for point in points],
        [point.y for point in points],
        yerr=[lows, highs] if any(lows + highs) else None,
        capsize=3,
        elinewidth=1.4,
        color=colour,
        linestyle=STYLES[line.style],
        linewidth=1.4 if line.of else 2.0,
        marker=marker if line.style in {"solid", "points"} else "",
        markersize=6.5,
    )


def _set_axes(axes: "Axes", chart: Lines, lines: Sequence[Line]) -> None:
    """Set the scales, limits and numbers of both axes."""
    axes.margins(x=0.02)
    ends = [end for line in lines for p in line.points for end in (p.y, p.low, p.high) if end is not None]
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
    fit = all(line.style != "points" and wide(line.name, SMALL) < room for line in lines)
    return fit and all(line.points[-1].x >= near for line in lines)


def _places(sheet: Sheet, axes: "Axes", points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the positions of points, in inches from the upper left corner of the sheet."""
    pixels = axes.transData.transform([(point.x, point.y) for point in points])
    return [(float(x), sheet.figure.get_figheight() - float(y)) for x, y in pixels / sheet.figure.dpi]


def _name_ends(sheet: Sheet, axes: "Axes", lines: Sequence[Line], colours: dict[str, str]) -> None:
    """Write the name of each line at its end; names that would overlap are moved, and joined to their line."""
    places = _places(sheet, axes, [line.points[-1] for line in lines])
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


def _name_points(sheet: Sheet, axes: "Axes", lines: Sequence[Line]) -> None:
    """Write the text of each point beside it, where it covers the fewest texts, points and lines."""
    import numpy as np

    taken: list[Bbox] = []
    for line in lines:
        places = _places(sheet, axes, line.points)
        taken += [_box(x - 0.06, y, 0.12, 0.12) for x, y in places]
        for start, end in itertools.pairwise(places) if line.style != "points" else ():
            taken += [_box(x - 0.02, y, 0.04, 0.04) for x, y in np.linspace(start, end, 50)]
    for line in lines:
        for point, (x, y) in zip(line.points, _places(sheet, axes, line.points), strict=True):
            if point.text:
                _name_point(sheet, axes, x, y, fitted(point.text, 1.8, SMALL), taken)


def _box(left: float, middle: float, width: float, height: float) -> "Bbox":
    """Return a box by its left side, the middle of its height, and its size, in inches."""
    from matplotlib.transforms import Bbox

    return Bbox.from_bounds(left, middle - height / 2, width, height)


def _name_point(sheet: Sheet, axes: "Axes", x: float, y: float, text: str, taken: list["Bbox"]) -> None:
    """Write a text near (x, y) where it covers the fewest boxes of `taken`, and add its box to them."""
    width = wide(text, SMALL)
    left, right = axes.get_position().x0 * sheet.figure.get_figwidth(), sheet.figure.get_figwidth() - INSET
    room = _box(left, (sheet.top + sheet.bottom - AXIS) / 2, right - left, sheet.bottom - AXIS - sheet.top)
    offs = [0.0, -0.17, 0.17, *(way * off for off in (0.3, 0.48, 0.66, 0.84, 1.02) for way in (-1, 1))]
    sides = [(dx, dy) for dy in offs for dx in (0.1, -0.1 - width, -width / 2)]
    boxes = [_box(x + dx, y + dy, width, LETTER) for dx, dy in sides]
    outside = [not (room.contains(*box.min) and room.contains(*box.max)) for box in boxes]
    covered = [box.count_overlaps(taken) + 9 * out for box, out in zip(boxes, outside, strict=True)]
    at = covered.index(min(covered))
    taken.append(boxes[at])
    dx, dy = sides[at]
    if abs(dy) > 0.2:
        sheet.line([x, x + dx + (dx < 0) * width], [y, y + dy], setting("axes.edgecolor"), linewidth=0.8)
    sheet.text(x + dx, y + dy, text, paper=True)
