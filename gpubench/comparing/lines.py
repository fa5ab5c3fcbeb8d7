"""Charts with two number axes: rate against batch, the roofline, scaling over processes, a trend over versions."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpubench.comparing.cells import Cell, short, text_of
from gpubench.comparing.compare import Group
from gpubench.comparing.questions import Metric
from gpubench.comparing.style import COLOURS, EDGE, LINE, MARKERS, WIDTH, footer_lines, plain_numbers, shortened
from gpubench.loading import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 8
"""As many as there are colours; the rest are counted in the title."""
PLOT_HEIGHT = 4.6


@dataclass(frozen=True)
class Line:
    """Points (x, y, low, high) of one name, joined in order."""

    name: str
    points: list[tuple[float, float, float, float]]
    joined: bool = True
    dashed: bool = False


def line_charts(group: Group, texts: pd.DataFrame | None, metric: Metric) -> list[tuple[str, "Figure"]]:
    """(name, figure) of every kind that the group's rows have data for; `texts` are the rows as text."""
    figures = []
    suite = str(group.cells[0].suite)
    axes = {c.axis for c in group.comparisons}
    if texts is not None and (curves := _batch_curves(texts)):
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
    if roofs := _roofline(group.cells):
        figures.append(
            ("roofline", _figure(group, f"{suite}: roofline", roofs, "FLOP/byte", "TFLOP/s", 10, log_y=True))
        )
    return figures


def _name(cell: Any) -> str:
    return f"{cell['model']} {cell['precision']} {short(str(cell['card']))}"


def _batch_curves(texts: pd.DataFrame) -> list[Line]:
    found: dict[str, dict[int, float]] = {}
    for row in texts[texts["batch_curve"] != ""].map(shown).to_dict("records"):
        try:
            tried = [(int(batch), float(rate)) for batch, rate, *_ in json.loads(row["batch_curve"])]
        except (ValueError, TypeError):
            continue
        points = {batch: rate for batch, rate in tried if batch > 0 and 0 < rate < math.inf}
        if len(points) > 1:
            found.setdefault(_name(row), points)
    return [Line(name, [(b, r, r, r) for b, r in sorted(points.items())]) for name, points in found.items()]


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


def _roofline(cells: Sequence[Cell]) -> list[Line]:
    """Each cell under the roof that `gpubench peak` measured on its card in its precision."""
    columns = ("flops_per_sample", "bytes_per_sample", "samples_per_second")
    known = [c for c in cells if all(_number(c, name) for name in columns)]
    roofs: dict[str, tuple[float, float]] = {}
    lines = []
    for cell in known:
        flops, moved, rate = (_number(cell, name) for name in columns)
        share = max(1.0, float(cell.row["processes"]))
        y = flops * rate / share / 1e12
        lines.append(Line(f"{cell.model} {cell.precision} {cell.label}", [(flops / moved, y, y, y)], joined=False))
        peak, bandwidth = _number(cell, "measured_peak_flops"), _number(cell, "measured_bandwidth_bytes_per_second")
        if peak and bandwidth:
            roofs[f"roof of {cell.label} in {cell.precision}"] = (peak, bandwidth)
    if not roofs:
        return []
    xs = [line.points[0][0] for line in lines]
    for name, (peak, bandwidth) in roofs.items():
        ridge = peak / bandwidth
        ends = sorted({min(*xs, ridge) / 4, ridge, max(*xs, ridge) * 4})
        points = [(x, min(peak, bandwidth * x) / 1e12) for x in ends]
        lines.append(Line(name, [(x, y, y, y) for x, y in points], dashed=True))
    return lines


def _number(cell: Cell, column: str) -> float:
    """The value, or 0 where there is none or this gpubench has no such column."""
    value = cell.row.get(column)
    return float(value) if isinstance(value, int | float) and value == value else 0.0


def _figure(
    group: Group, title: str, lines: Sequence[Line], x: str, y: str, log_base: int, log_y: bool = False
) -> "Figure":
    """`log_base` 0: a linear x axis."""
    import matplotlib
    from matplotlib.figure import Figure

    solid = [line for line in lines if not line.dashed]
    drawn = [*solid[:MOST_LINES], *[line for line in lines if line.dashed][:MOST_LINES]]
    if len(solid) > MOST_LINES:
        title += f" (first {MOST_LINES} of {len(solid)})"
    footer = footer_lines(group)
    legend_height = LINE * 1.2 * len(drawn) + 0.1
    height = 0.8 + PLOT_HEIGHT + 0.6 + legend_height + LINE * len(footer) + 2 * EDGE
    figure = Figure(figsize=(WIDTH, height))
    bottom = height - 0.8 - PLOT_HEIGHT
    axes = figure.add_axes((0.105, bottom / height, 0.87, PLOT_HEIGHT / height))
    for at, line in enumerate(drawn):
        _draw(axes, line, at, solid)
    if log_base:
        axes.set_xscale("log", base=log_base)
        plain_numbers(axes.xaxis)
    if log_base == 2 and len(ticks := sorted({point[0] for line in drawn for point in line.points})) <= 12:
        axes.set_xticks(ticks)
        axes.minorticks_off()
    values = [point[1] for line in drawn for point in line.points]
    if log_y or max(values) / min(values) > 20:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(point[3] for line in drawn for point in line.points) * 1.08)
    plain_numbers(axes.yaxis)
    axes.set_xlabel(x)
    axes.set_title(y, loc="left", fontsize=11)
    figure.text(EDGE / WIDTH, 1 - 0.12 / height, title, ha="left", va="top", fontsize=15, fontweight="bold")
    figure.legend(
        loc="upper left",
        frameon=False,
        borderpad=0,
        bbox_to_anchor=(EDGE / WIDTH, (EDGE + LINE * len(footer) + legend_height) / height),
    )
    soft = matplotlib.rcParams["axes.edgecolor"]
    figure.text(EDGE / WIDTH, EDGE / height, "\n".join(footer), va="bottom", color=soft, linespacing=1.25)
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
    linewidth = 1.8 if line.joined else 0.0
    if any(map(any, errors)):
        axes.errorbar(xs, ys, yerr=errors, capsize=3, linewidth=linewidth, label=label, **look)  # type: ignore[arg-type]
    else:
        axes.plot(xs, ys, linewidth=linewidth, label=label, **look)  # type: ignore[arg-type]
