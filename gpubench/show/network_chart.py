"""Draws a network as blocks from top to bottom, with its schedule beside it. `gpubench show --chart` calls it."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.errors import writing
from gpubench.show.chart_sheet import EDGE, SIZE, SMALL, Sheet, palette, setting, sheet_of
from gpubench.show.network import Block, NetworkSummary, Points, blocks_of, moves, shape_text
from gpubench.show.style import fitted, locator, style, wide, wrapped
from gpubench.studies.section import Bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = (".png", ".svg", ".pdf")
"""Suffixes of the files that can be drawn."""
ROWS = 13
"""Maximum number of blocks."""
ROW = 0.5
"""Maximum distance from block to block, in inches."""
SHORTCUT, IDENTITY, LEFT, RIGHT, SHARE = 0.32, 0.7, 0.95, 3.72, 5.3
"""Positions, in inches: shortcuts that compute, identity shortcuts, both sides of blocks, right end of the shares."""
CURVES = 5.95
"""Left end of the schedule's curves, in inches."""
LINE = 0.19
"""Distance from line to line, in inches."""


def save(network: NetworkSummary, file: Path) -> None:
    """Draw the network into a file, whose suffix is one of KINDS. Raises UserError if the file cannot be written."""
    with style("light"), writing(f"--chart {file}", file):
        figure_of(network).savefig(file)


def figure_of(network: NetworkSummary) -> "Figure":
    """Return the picture in the current style."""
    foot = "Orange: a residual shortcut, and the name of its first layer if it has one"
    foot *= any(layer.block for layer in network.layers)
    chart = Bars("", network.title, f"{network.headline}. Blue: share of these FLOPs", (), foot=foot)
    sheet = sheet_of(chart, SIZE[0], (), 2.8, framed=True)
    _draw_blocks(sheet, network)
    _draw_schedule(sheet, network)
    return sheet.figure


def _draw_blocks(sheet: Sheet, network: NetworkSummary) -> None:
    """Draw the blocks at the left; if there are too many, some before the last are left out."""
    blocks, soft = blocks_of(network.layers), setting("axes.edgecolor")
    gap = len(blocks) - ROWS + 1 if len(blocks) > ROWS else 0
    kept: list[Block | None] = [*blocks[: ROWS - 2], None, blocks[-1]] if gap else [*blocks]
    row = min((sheet.bottom - sheet.top) / (len(kept) + 1), ROW)
    middle, y = (LEFT + RIGHT) / 2, sheet.top + row / 2
    sheet.line([middle] * 2, [y, y + row * len(kept)], soft, linewidth=1.4, zorder=0)
    sheet.text(middle, y, "input", color=soft, ha="center", paper=True)
    sheet.text(RIGHT + 0.1, y, shape_text(network.input), color=soft)
    for block in kept:
        y += row
        if block is None:
            sheet.text(middle, y, f"{gap} more", color=soft, ha="center", paper=True)
        else:
            _draw_block(sheet, block, y, row, block.flops / network.flops if network.flops else 0.0)


def _draw_block(sheet: Sheet, block: Block, y: float, row: float, share: float) -> None:
    """Draw a block: a box filled by its share of the FLOPs, its shortcut at the left, its output shape at the right."""
    half, blue, width = 0.36 * row, palette()[0], RIGHT - LEFT
    edge = blue if block.flops else setting("patch.facecolor")
    sheet.box(LEFT, y - half, width, 2 * half, facecolor=setting("figure.facecolor"))
    sheet.box(LEFT, y - half, width * share, 2 * half, facecolor=blue, alpha=0.3)
    sheet.box(LEFT, y - half, width, 2 * half, fill=False, edgecolor=edge, linewidth=1.5)
    if block.residual:
        _draw_shortcut(sheet, block, y, row)
    times = f"x {block.times}" if block.times > 1 else ""
    room = width - 0.28 - (wide(times, SMALL, "bold") + 0.1 if times else 0.0)
    sheet.text(LEFT + 0.16, y, fitted(block.label, room, SMALL))
    sheet.text(RIGHT - 0.1, y, times, weight="bold", ha="right")
    sheet.text(RIGHT + 0.1, y, shape_text(block.shape))
    if share:
        text = f"{share:.0%}" if share >= 0.005 else "<1%"
        sheet.text(SHARE, y, text, ha="right", color=setting("axes.edgecolor"))


def _draw_shortcut(sheet: Sheet, block: Block, y: float, row: float) -> None:
    """Draw the shortcut around a block, with the first layer that computes on it, and the sign of the addition."""
    colour, up = palette()[5], 0.31 * row
    far = SHORTCUT if block.shortcut else IDENTITY
    sheet.line([LEFT, far, far, LEFT], [y - up, y - up, y + up, y + up], colour, linewidth=1.8)
    sheet.line([LEFT], [y + up], setting("figure.facecolor"), marker="o", markersize=9, markeredgecolor=colour)
    sheet.line([LEFT], [y + up], colour, marker="+", markersize=7, markeredgewidth=1.8)
    if block.shortcut:
        text = fitted(block.shortcut.removeprefix("conv ").partition(" ")[0], LEFT - SHORTCUT - 0.2, SMALL)
        sheet.text((SHORTCUT + LEFT) / 2 - 0.04, y, text, ha="center")


def _draw_schedule(sheet: Sheet, network: NetworkSummary) -> None:
    """Draw up to three curves of the schedule, one below the other, and the note below them."""
    curves = [curve for curve in network.schedule.items() if moves(curve[1])] or [*network.schedule.items()]
    right = SIZE[0] - EDGE - 0.08
    note = wrapped(network.note, right - CURVES + 0.4, SMALL, 5)
    bottom = sheet.bottom - LINE * len(note)
    for number, line in enumerate(note):
        sheet.text(CURVES - 0.4, bottom + LINE * (number + 0.5), line, color=setting("axes.edgecolor"))
    curves = curves[:3]
    height = (bottom - 0.3 - sheet.top) / max(len(curves), 1)
    for number, (name, points) in enumerate(curves):
        top = sheet.top + number * height
        sheet.text(CURVES - 0.4, top + 0.08, f"{name[:1].upper()}{name[1:]}")
        axes = _draw_curve(sheet, points, top + 0.26, top + height - 0.12, right)
        axes.xaxis.set_tick_params(labelbottom=number == len(curves) - 1)
    sheet.text(right, bottom - 0.12, "epoch", ha="right", color=setting("axes.edgecolor"))


def _draw_curve(sheet: Sheet, points: Points, top: float, bottom: float, right: float) -> "Axes":
    axes = sheet.plot_axes(CURVES, top, right, bottom)
    values = [value for _, value in points]
    axes.plot([epoch for epoch, _ in points], values, color=palette()[0], linewidth=2.0)
    axes.margins(x=0.0)
    if min(values) < 0.6 * max(values) or not moves(points):
        axes.set_ylim(0, 1.08 * max(values) or 1.0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(locator())
        axis.set_major_formatter(lambda value, _: f"{value:,.12g}")
    if bottom - top < 0.8:  # low axes have room for few numbers
        axes.locator_params(axis="y", nbins=3, steps=[1, 2, 5, 10])
    return axes
