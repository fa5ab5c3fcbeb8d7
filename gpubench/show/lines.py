"""Charts with two number axes: rate against batch, scaling, a roofline, a trend."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gpubench.show.sheet import EDGE, INSET, SMALL, Key, Sheet, palette, setting, sheet_of
from gpubench.show.style import MARKERS, fitted, plain_numbers, wide
from gpubench.studies.section import Line, Lines, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in inches."""
MOST = 8
"""As many as there are colours that can be told apart."""
LETTER = 0.17
"""Inches that a text takes in height."""
AXIS = 0.4
"""Inches of the numbers and the name of the x axis."""
STYLES = {"solid": "-", "dashed": "--", "dotted": ":", "points": "none"}


def figure_of(chart: Lines, width: float, *, framed: bool) -> "Figure":
    """The chart in the style that is set."""
    lines = [line for line in map(partial(_visible, chart), chart.lines) if line.points]
    edge, soft, looks = EDGE if framed else INSET, setting("axes.edgecolor"), _looks(lines)
    own = [line for line in lines if not line.of]
    named = len(own) > 1 and _end_right(own, 0.3 * width)
    keys = [_key(line, *looks[line.name]) for line in own] if len(own) > 1 and not named else []
    sheet = sheet_of(chart, width, keys, 2.8, framed=framed)
    figure, height = sheet.figure, sheet.figure.get_figheight()
    sheet.text(edge, sheet.top + 0.06, chart.y, color=soft)
    sheet.text(width - edge, sheet.bottom - 0.1, chart.x, ha="right", color=soft)
    room = max(wide(line.name, SMALL) for line in own) + 0.3 if named else 0.15
    box = [edge / width, 1 - (sheet.bottom - AXIS) / height, (width - 2 * edge - room) / width, 0.0]
    box[3] = 1 - (sheet.top + 0.26) / height - box[1]
    axes = figure.add_axes((box[0], box[1], box[2], box[3]))
    axes.patch.set_visible(False)
    for line in lines:
        _draw_line(axes, line, *looks[line.name])
    _set_axes(axes, chart, lines)
    found = axes.get_tightbbox()
    over = max(0.0, box[0] - found.x0 / figure.dpi / width) if found else 0.0
    axes.set_position((box[0] + over, box[1], box[2] - over, box[3]))
    if named:
        _name_ends(sheet, axes, own, {line.name: looks[line.name][0] for line in lines})
    _name_points(sheet, axes, lines)
    return figure


def _visible(chart: Lines, line: Line) -> Line:
    """Without points that a logarithmic axis has no place for."""
    kept = [p for p in line.points if (p.x > 0 or not chart.log_x) and (p.y > 0 or not chart.log_y)]
    return replace(line, points=tuple(kept))


def _looks(lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each line: those of the line that it is of, else its own."""
    own = [line.name for line in lines if not line.of]
    looks = dict(zip(own, zip(palette(), MARKERS, strict=False), strict=False))
    return {line.name: looks.get(line.of or line.name, (setting("axes.edgecolor"), "o")) for line in lines}


def _key(line: Line, colour: str, marker: str) -> Key:
    return Key(marker if line.style == "points" else STYLES[line.style], colour, line.name)


def _draw_line(axes: "Axes", line: Line, colour: str, marker: str) -> None:
    """Without markers where it is no measurement but what one is compared with."""
    points = line.points
    look: dict[str, Any] = {"color": colour, "linestyle": STYLES[line.style], "linewidth": 1.4 if line.of else 2.0}
    if line.style in {"solid", "points"}:
        look |= {"marker": marker, "markersize": 6.5}
    xs, ys = [point.x for point in points], [point.y for point in points]
    lows = [0.0 if point.low is None else max(point.y - point.low, 0.0) for point in points]
    highs = [0.0 if point.high is None else max(point.high - point.y, 0.0) for point in points]
    if any(lows + highs):
        axes.errorbar(xs, ys, yerr=[lows, highs], capsize=3, elinewidth=1.4, **look)
    else:
        axes.plot(xs, ys, **look)


def _set_axes(axes: "Axes", chart: Lines, lines: Sequence[Line]) -> None:
    """Scales, limits, and plain numbers along them."""
    soft = setting("axes.edgecolor")
    if chart.reference is not None:
        axes.axhline(chart.reference, color=soft, linewidth=1.4, zorder=1)
    axes.margins(x=0.02)
    ends = [end for line in lines for p in line.points for end in (p.y, p.low, p.high) if end is not None]
    ends += [] if chart.reference is None else [chart.reference]
    if chart.log_x:
        axes.set_xscale("log", base=chart.log_x)
    if chart.log_y:
        axes.set_yscale("log", base=chart.log_y)
    elif 0 <= min(ends) < 0.6 * max(ends):
        axes.set_ylim(0, max(ends) * 1.08)
    if not chart.log_y:
        axes.locator_params(axis="y", nbins=6)
    plain_numbers(axes.yaxis)
    plain_numbers(axes.xaxis)
    axes.minorticks_off()
    xs = sorted({point.x for line in lines for point in line.points})
    if chart.ticks:
        axes.set_xticks([at for at, _ in chart.ticks], [fitted(name, 1.1, SMALL) for _, name in chart.ticks])
    elif (chart.log_x or len(xs) <= 12) and not any(line.style == "points" for line in lines):
        axes.set_xticks(_apart(xs, axes))
    axes.tick_params(which="both", labelsize=SMALL, length=0, labelcolor=soft)
    axes.grid(visible=False, axis="x")
    axes.spines["left"].set_visible(False)


def _apart(xs: Sequence[float], axes: "Axes") -> list[float]:
    """Those whose numbers do not touch."""
    axes.autoscale_view()
    apart: list[float] = []
    for x in xs:
        if not apart or (axes.transData.transform((x, 1)) - axes.transData.transform((apart[-1], 1)))[0] > 55:
            apart.append(x)
    return apart


def _end_right(lines: Sequence[Line], room: float) -> bool:
    """Whether every line ends at the right side, and its name, which fits into `room`, can stand there."""
    xs = [point.x for line in lines for point in line.points]
    near = max(xs) - 0.1 * (max(xs) - min(xs))
    fit = all(line.style != "points" and wide(line.name, SMALL) < room for line in lines)
    return fit and len(lines) <= 10 and all(line.points[-1].x >= near for line in lines)


def _place(sheet: Sheet, axes: "Axes", x: float, y: float) -> tuple[float, float]:
    """Inches from the upper left corner."""
    across, up = axes.transData.transform((x, y)) / sheet.figure.dpi
    return float(across), sheet.figure.get_figheight() - float(up)


def _name_ends(sheet: Sheet, axes: "Axes", lines: Sequence[Line], colours: dict[str, str]) -> None:
    """Names at the ends of their lines, moved apart, and joined to where they belong."""
    ends = sorted((_place(sheet, axes, line.points[-1].x, line.points[-1].y), at) for at, line in enumerate(lines))
    ends.sort(key=lambda end: end[0][1])
    edge = max(x for (x, _), _ in ends) + 0.1
    ys: list[float] = []
    for (_, y), _ in ends:
        ys.append(max(y, ys[-1] + LETTER) if ys else y)
    for at in range(len(ys) - 1, -1, -1):
        floor = sheet.bottom - AXIS if at == len(ys) - 1 else ys[at + 1] - LETTER
        ys[at] = min(ys[at], floor)
    for ((x, y), number), moved in zip(ends, ys, strict=True):
        line = lines[number]
        sheet.line([x + 0.06, edge, edge + 0.1], [y, moved, moved], colours[line.name])
        sheet.text(edge + 0.14, moved, line.name)


def _name_points(sheet: Sheet, axes: "Axes", lines: Sequence[Line]) -> None:
    """Each text beside its point, where it covers the fewest texts, points and lines; if farther off, with a line."""
    taken: list[Box] = []
    for line in lines:
        places = [_place(sheet, axes, point.x, point.y) for point in line.points]
        taken += [_around(x, y, 0.06) for x, y in places]
        if line.style != "points":
            taken += [_around(x, y, 0.02) for x, y in _between(places)]
    for point in [point for line in lines for point in line.points if point.text]:
        _name_point(sheet, axes, point, taken)


def _between(places: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Places along the line that joins some."""
    for (left, top), (right, bottom) in itertools.pairwise(places):
        steps = int(math.hypot(right - left, bottom - top) / 0.08) + 1
        yield from ((left + (right - left) * n / steps, top + (bottom - top) * n / steps) for n in range(1, steps))


def _around(x: float, y: float, half: float) -> Box:
    return x - half, y - half, x + half, y + half


def _name_point(sheet: Sheet, axes: "Axes", point: Point, taken: list[Box]) -> None:
    x, y = _place(sheet, axes, point.x, point.y)
    text = fitted(point.text, 1.8, SMALL)
    width = wide(text, SMALL)
    left = axes.get_position().x0 * sheet.figure.get_figwidth()
    room = (left, sheet.top, sheet.figure.get_figwidth() - INSET, sheet.bottom - AXIS)
    sides = [(0.1, 0.0), (-0.1 - width, 0.0), (-width / 2, -0.17), (-width / 2, 0.17), (0.06, -0.15), (0.06, 0.15)]
    near = len(sides)
    for off in (0.3, 0.48, 0.66, 0.84, 1.02):
        sides += [(dx, dy) for dx in (0.1, -0.1 - width, 0.4, -0.4 - width) for dy in (-off, off)]
    boxes = [(x + dx, y + dy - LETTER / 2, x + dx + width, y + dy + LETTER / 2) for dx, dy in sides]
    covered = [sum(_touch(box, other) for other in taken) + 9 * (not _inside(box, room)) for box in boxes]
    at = covered.index(min(covered))
    taken.append(boxes[at])
    dx, dy = sides[at]
    if at >= near:
        nearest = x + dx + (0 if dx > 0 else width)
        sheet.line([x, nearest], [y, y + dy], setting("axes.edgecolor"), linewidth=0.8)
    sheet.text(x + dx, y + dy, text, paper=True)


def _inside(one: Box, two: Box) -> bool:
    return one[0] >= two[0] and one[1] >= two[1] and one[2] <= two[2] and one[3] <= two[3]


def _touch(one: Box, two: Box) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]
