"""Charts with two number axes: rate against batch, the roofline, scaling over processes, a trend over versions."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpubench.analysis.cells import Cell, short, text_of
from gpubench.analysis.compare import Group
from gpubench.analysis.metrics import Metric
from gpubench.rows.read import shown
from gpubench.show.style import COLOURS, EDGE, LINE, MARKERS, WIDTH, footer_lines, plain_numbers, shortened
from gpubench.studies.bound import peaks_used

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 8
"""As many as there are colours; the rest are counted in the title."""
MOST_POINTS = 16
"""Of a roofline, whose points have their names beside them."""
CHARACTER, GLYPH = 6.9, 13.0
"""Points of space that a character of a point's name takes: across, and down."""
PLOT_HEIGHT = 4.6


@dataclass(frozen=True)
class Line:
    """Points (x, y, low, high) of one name, joined in order."""

    name: str
    points: list[tuple[float, float, float, float]]
    dashed: bool = False


def line_charts(group: Group, texts: pd.DataFrame | None, metric: Metric) -> list[tuple[str, "Figure"]]:
    """(name, figure) of every kind that the group's rows have data for; `texts` are the rows as text."""
    figures = []
    suite = str(group.cells[0].suite)
    axes = {c.axis for c in group.comparisons}
    if texts is not None and (curves := _batch_curves(texts, group.cells)):
        figures.append(
            ("batch", _figure(group, f"{suite}: rate against batch size", curves, "batch size", "samples/s", 2))
        )
    if "processes" in axes and (scaling := _scaling(group.cells)):
        figure = _figure(group, f"{suite}: scaling", scaling, "processes", "samples/s", 0)
        figure.axes[0].set_xticks(sorted({point[0] for line in scaling for point in line.points}))
        figure.axes[0].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        figures.append(("scaling", figure))
    if "torch" in axes and (trend := _trend(group.cells, metric)):
        names = [text for _, text in sorted({(_version(c.torch), _short_version(c.torch)) for c in group.cells})]
        figure = _figure(group, f"{suite}: {metric.title} over torch versions", trend, "torch", metric.title, 0)
        figure.axes[0].set_xticks(range(len(names)), names)
        figures.append(("trend", figure))
    if any(_roof(cell) for cell in _counted(group.cells)):
        figures.append(("roofline", _roofline(group, f"{suite}: roofline")))
    return figures


def _name(cell: Any) -> str:
    return f"{cell['model']} {cell['precision']} {short(str(cell['card']))}"


def _batch_curves(texts: pd.DataFrame, cells: Sequence[Cell]) -> list[Line]:
    """In the order of the cells."""
    found: dict[str, dict[int, float]] = {}
    for row in texts[texts["batch_curve"] != ""].map(shown).to_dict("records"):
        try:
            tried = [(int(batch), float(rate)) for batch, rate, *_ in json.loads(row["batch_curve"])]
        except (ValueError, TypeError):
            continue
        points = {batch: rate for batch, rate in tried if batch > 0 and 0 < rate < math.inf}
        if len(points) > 1:
            found.setdefault(_name(row), points)
    names = dict.fromkeys([*(_name(cell.row) for cell in cells), *found])
    return [Line(name, [(b, r, r, r) for b, r in sorted(found[name].items())]) for name in names if name in found]


def _by_name(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    grouped: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        grouped[_name(cell.row)].append(cell)  # a label may name the session, which is what differs here
    return grouped


def _scaling(cells: Sequence[Cell]) -> list[Line]:
    lines = []
    for name, members in _by_name(cells).items():
        points = sorted((c.row["processes"], c.samples_per_second) for c in members if c.samples_per_second > 0)
        if len({x for x, _ in points}) < 2:
            continue
        lines.append(Line(name, [(x, y, y, y) for x, y in points]))
        first, rate = points[0]
        ideal = [(x, rate / first * x) for x, _ in points]
        lines.append(Line(f"{name}, in proportion", [(x, y, y, y) for x, y in ideal], dashed=True))
    return lines


def _version(text: object) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", str(text).partition("+")[0])))


def _short_version(text: object) -> str:
    return text_of(text).partition("+")[0]


def _trend(cells: Sequence[Cell], metric: Metric) -> list[Line]:
    order = sorted({(_version(c.torch), _short_version(c.torch)) for c in cells})
    place = {text: at for at, (_, text) in enumerate(order)}
    lines = []
    for name, members in _by_name(cells).items():
        points = []
        for cell in members:
            interval = cell.interval or (cell.median, cell.median)
            low, high = sorted(map(metric.shown, interval))
            points.append((float(place[_short_version(cell.torch)]), metric.shown(cell.median), low, high))
        if len(points) > 1:
            lines.append(Line(name, sorted(points)))
    return lines


def _counted(cells: Sequence[Cell]) -> list[Cell]:
    """Those whose work and rate are known."""
    columns = ("flops_per_sample", "bytes_per_sample", "samples_per_second")
    return [cell for cell in cells if all(_number(cell, name) for name in columns)]


def _roof(cell: Cell) -> tuple[float, float] | None:
    """FLOP/s and bytes a second that `gpubench peak` measured on its card in its precision."""
    peak, bandwidth = _number(cell, "measured_peak_flops"), _number(cell, "measured_bandwidth_bytes_per_second")
    return (peak, bandwidth) if peak and bandwidth else None


def _point(cell: Cell) -> tuple[float, float]:
    """FLOP/byte and TFLOP/s of one of its devices."""
    flops = _number(cell, "flops_per_sample")
    rate = _number(cell, "samples_per_second") / peaks_used(cell.row)
    return flops / _number(cell, "bytes_per_sample"), flops * rate / 1e12


def _roofline(group: Group, title: str) -> "Figure":
    """Each cell, named by its model, in the colour of its roof: that of its card in its precision."""
    counted = _counted(group.cells)
    cells = counted[:MOST_POINTS]
    if len(counted) > len(cells):
        title += f" (first {len(cells)} of {len(counted)})"
    kinds: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        kinds[f"{cell.precision} on {cell.label}"].append(cell)
    xs = [_point(cell)[0] for cell in cells]
    figure, axes = _frame(group, title, len(kinds), whiskers=False)
    axes.set_xscale("log")
    axes.set_yscale("log")
    names = []
    for at, (kind, members) in enumerate(kinds.items()):
        look = {"color": COLOURS[at % len(COLOURS)], "marker": MARKERS[at % len(MARKERS)], "markersize": 7.0}
        points = [_point(cell) for cell in members]
        roof = next(filter(None, map(_roof, members)), None)
        label = shortened(kind, 60) + ("; dashed: its roof" if roof else "; its peak was not measured")
        axes.plot(*zip(*points, strict=True), linestyle="none", label=label, **look)  # type: ignore[arg-type]
        names += [(str(cell.model), point) for cell, point in zip(members, points, strict=True)]
        if roof:
            ridge = roof[0] / roof[1]
            ends = sorted({min(*xs, ridge) / 4, ridge, max(*xs, ridge) * 4})
            axes.plot(ends, [min(roof[0], roof[1] * x) / 1e12 for x in ends], "--", color=look["color"], linewidth=1.3)
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    axes.set_xlabel("FLOP/byte")
    axes.set_title("TFLOP/s", loc="left", fontsize=11)
    _name_points(axes, names)
    _legend(figure)
    return figure


def _name_points(axes: "Axes", names: Sequence[tuple[str, tuple[float, float]]]) -> None:
    """Each name beside its point, where it covers no other name or point; farther off, with a line to it."""
    import matplotlib

    axes.autoscale_view()  # else the limits are set when the figure is drawn
    line = {"arrowstyle": "-", "color": matplotlib.rcParams["axes.edgecolor"], "linewidth": 0.8}
    places = [axes.transData.transform(point) * 72 / axes.figure.dpi for _, point in names]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    for (name, point), (x, y) in zip(names, places, strict=True):
        text = shortened(name, 24)
        wide = len(text) * CHARACTER
        sides = [(7, -GLYPH / 2), (-7 - wide, -GLYPH / 2), (-wide / 2, 6), (-wide / 2, -6 - GLYPH)]
        near = len(sides)
        sides += [(dx, dy) for off in (20, 34, 48) for dx in (7, -7 - wide) for dy in (off, -off - GLYPH)]
        boxes = [(x + dx, y + dy, x + dx + wide, y + dy + GLYPH) for dx, dy in sides]
        at = next((at for at, box in enumerate(boxes) if not any(_overlap(box, other) for other in taken)), 0)
        taken.append(boxes[at])
        axes.annotate(
            text,
            point,
            sides[at],
            textcoords="offset points",
            va="bottom",
            bbox={"facecolor": matplotlib.rcParams["figure.facecolor"], "linewidth": 0, "pad": 0},
            arrowprops=line if at >= near else None,
        )


def _overlap(one: tuple[float, float, float, float], two: tuple[float, float, float, float]) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def _number(cell: Cell, column: str) -> float:
    """The value, or 0 where there is none or this gpubench has no such column."""
    value = cell.row.get(column)
    return float(value) if isinstance(value, int | float) and value == value else 0.0


def _frame(group: Group, title: str, entries: int, *, whiskers: bool) -> tuple["Figure", "Axes"]:
    """A figure with its title and footer, and axes, with room for a legend of `entries`."""
    import matplotlib
    from matplotlib.figure import Figure

    footer = footer_lines(group, whiskers=whiskers)
    legend_height = LINE * 1.2 * entries + 0.1
    height = 0.8 + PLOT_HEIGHT + 0.6 + legend_height + LINE * len(footer) + 2 * EDGE
    figure = Figure(figsize=(WIDTH, height))
    bottom = height - 0.8 - PLOT_HEIGHT
    axes = figure.add_axes((0.105, bottom / height, 0.87, PLOT_HEIGHT / height))
    figure.text(EDGE / WIDTH, 1 - 0.12 / height, title, ha="left", va="top", fontsize=15, fontweight="bold")
    soft = matplotlib.rcParams["axes.edgecolor"]
    figure.text(EDGE / WIDTH, EDGE / height, "\n".join(footer), va="bottom", color=soft, linespacing=1.25)
    return figure, axes


def _legend(figure: "Figure") -> None:
    """Below the axes and their ticks, above the footer."""
    top = figure.axes[0].get_position().y0 - 0.75 / figure.get_figheight()
    figure.legend(loc="upper left", frameon=False, borderpad=0, bbox_to_anchor=(EDGE / WIDTH, top))


def _figure(group: Group, title: str, lines: Sequence[Line], x: str, y: str, log_base: int) -> "Figure":
    """`log_base` 0: a linear x axis."""
    solid = [line for line in lines if not line.dashed]
    drawn = [*solid[:MOST_LINES], *[line for line in lines if line.dashed][:MOST_LINES]]
    if len(solid) > MOST_LINES:
        title += f" (first {MOST_LINES} of {len(solid)})"
    whiskers = any(low < high for line in drawn for _, _, low, high in line.points)
    figure, axes = _frame(group, title, len(drawn), whiskers=whiskers)
    for at, line in enumerate(drawn):
        _draw(axes, line, at, solid)
    if log_base:
        axes.set_xscale("log", base=log_base)
        plain_numbers(axes.xaxis)
    if log_base == 2 and len(ticks := sorted({point[0] for line in drawn for point in line.points})) <= 12:
        apart = ticks[:1]
        for tick in ticks[1:]:  # numbers of points close to each other would be written over each other
            apart += [tick] * (tick / apart[-1] > 1.6)
        axes.set_xticks(apart)
        axes.minorticks_off()
    values = [point[1] for line in drawn for point in line.points]
    if max(values) / min(values) > 20:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(point[3] for line in drawn for point in line.points) * 1.08)
    plain_numbers(axes.yaxis)
    axes.set_xlabel(x)
    axes.set_title(y, loc="left", fontsize=11)
    _legend(figure)
    return figure


def _draw(axes: "Axes", line: Line, at: int, solid: Sequence[Line]) -> None:
    xs, ys = [point[0] for point in line.points], [point[1] for point in line.points]
    label = shortened(line.name, 90)
    if line.dashed:
        owner = next((n for n, other in enumerate(solid) if line.name.startswith(f"{other.name},")), at)
        axes.plot(xs, ys, "--", color=COLOURS[owner % len(COLOURS)], linewidth=1.3, label=label)
        return
    look = {"color": COLOURS[at % len(COLOURS)], "marker": MARKERS[at % len(MARKERS)], "markersize": 7.0}
    errors = [[point[1] - point[2] for point in line.points], [point[3] - point[1] for point in line.points]]
    if any(map(any, errors)):
        axes.errorbar(xs, ys, yerr=errors, capsize=3, linewidth=1.8, label=label, **look)  # type: ignore[arg-type]
    else:
        axes.plot(xs, ys, linewidth=1.8, label=label, **look)  # type: ignore[arg-type]
