"""Comparisons as charts: seconds and relative speedup per model, as PNG and SVG, legible in a post."""

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.comparing.cells import Cell
from gpubench.comparing.compare import Comparison, Group, Result
from gpubench.comparing.stats import median_interval
from gpubench.comparing.table import places, policy_text, seconds_text, shown
from gpubench.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008): told apart with any colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#666666")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
SHADES = (0.0, 0.35, 0.6, 0.2, 0.5, 0.7)
"""How far each precision's colour is from its card's towards white."""
LOG_FROM = 20.0
"""Range of values from which a linear axis would hide the small ones."""
MOST_BARS = 200
"""More than these fit no picture."""
WIDTH = 8.0
"""Inches: 1200 pixels, so that 11 points can be read on a phone."""
BAR, EDGE, LINE = 0.27, 0.15, 0.2
"""Inches of a bar with its gap, of the margin, and of a line of text."""
STYLE = {
    "font.size": 11,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "hatch.linewidth": 0.6,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "svg.hashsalt": "gpubench",
}

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


def draw(result: Result, folder: Path) -> list[str]:
    """Write `seconds-*` and `speedup-*` charts of every group into `folder`; returns lines to print.

    Raises UserError where the folder cannot be written.
    """
    import matplotlib

    lines: list[str] = []
    totals = Counter(_suite(group) for group in result.groups)
    seen: Counter[str] = Counter()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
            for group in result.groups:
                suite = _suite(group)
                seen[suite] += 1
                stem = re.sub(r"[^A-Za-z0-9_-]", "-", suite) + (f"-{seen[suite]}" if totals[suite] > 1 else "")
                if len(group.cells) + len(group.comparisons) > MOST_BARS:
                    lines.append(f"{stem}: {len(group.cells)} cases are too many for a chart; compare fewer files")
                    continue
                if group.cells:
                    lines += save(seconds_chart(group), folder / f"seconds-{stem}")
                if group.comparisons:
                    lines += save(speedup_chart(group), folder / f"speedup-{stem}")
    except OSError as error:
        raise UserError(f"--charts {folder}: cannot write there ({error.strerror})") from None
    return lines


def _suite(group: Group) -> str:
    return str([*group.cells, *group.holes][0].suite)


def seconds_chart(group: Group) -> "Figure":
    """One bar per card and precision for each model: median seconds, and their multiple of the fastest."""
    best: dict[str, float] = {}
    for cell in group.cells:
        best[cell.model] = min(best.get(cell.model, math.inf), cell.median)
    axis = group.comparisons[0].axis if group.comparisons else "card"
    bars = []
    for cell in group.cells:
        text = f"{seconds_text(cell.median)}  ({cell.median / best[cell.model]:.2f}x)"
        extra = "" if axis in {"card", "precision"} else f"  {axis} {cell.row[axis]}"
        bars.append(
            Bar(cell.model, _name(cell), text + extra, cell.median, median_interval(cell.seconds, cell.adaptive))
        )
    bars += [Bar(cell.model, _name(cell), cell.status.replace("_", " ")) for cell in group.holes]
    panel = Panel("seconds of a whole run; in brackets relative to the model's fastest", bars)
    return _figure(group, f"{_suite(group)}: seconds of a whole run", [panel])


def speedup_chart(group: Group) -> "Figure":
    """One bar per comparison for each model, with its 95% interval and a line at 1; a panel per axis."""
    panels = []
    for axis in dict.fromkeys(c.axis for c in group.comparisons):
        along = [c for c in group.comparisons if c.axis == axis]
        bases = " or ".join(dict.fromkeys(c.other_name for c in along))
        if axis == "precision":
            label = f"seconds in {bases} / seconds in the precision shown; above 1: faster than {bases}"
        else:
            label = f"seconds / seconds of {bases}; above 1: slower than {bases}"
        panels.append(Panel(label, [_ratio_bar(c) for c in along], reference=True))
    return _figure(group, f"{_suite(group)}: relative speedup", panels)


def _ratio_bar(c: Comparison) -> Bar:
    ratio = shown(c)[0]
    interval = (ratio.low, ratio.high) if ratio.low is not None and ratio.high is not None else None
    text = f"{ratio.value:.{places(ratio)}f}"
    if c.axis not in {"card", "precision"}:
        text += f"  {c.axis} {c.subject_name}"
    elif c.verdict in {"same", "unsure"}:
        text += f"  {c.verdict}"
    return Bar(c.subject.model, _name(c.subject), text, ratio.value, interval)


def _name(cell: Cell) -> Name:
    return cell.label, f"{cell.precision}{policy_text(cell)}"


def _looks(group: Group) -> Callable[[Name], dict[str, object]]:
    """Colour by card, shade and hatch by precision: readable in grey as well."""
    names = [_name(cell) for cell in [*group.cells, *group.holes]]
    cards = list(dict.fromkeys(card for card, _ in names))
    kinds = list(dict.fromkeys(kind for _, kind in names))

    def look(name: Name) -> dict[str, object]:
        colour = COLOURS[cards.index(name[0]) % len(COLOURS)]
        kind = kinds.index(name[1]) % len(HATCHES)
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        shade = tuple(part + (1 - part) * SHADES[kind] for part in parts)
        return {"facecolor": shade, "hatch": HATCHES[kind], "edgecolor": "#ffffff", "linewidth": 0.5}

    return look


def _figure(group: Group, title: str, panels: Sequence[Panel]) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    look = _looks(group)
    names = list(dict.fromkeys(bar.name for panel in panels for bar in panel.bars if bar.value is not None))
    labels = [" ".join(name) for name in names]
    columns = max(1, min(3, len(labels), int((WIDTH - 0.3) * 72 / (max(map(len, labels)) * 6.7 + 44))))
    footer = [line for part in _footer(group) for line in textwrap.wrap(part, 86)]
    legend_height = LINE * 1.15 * math.ceil(len(labels) / columns) + 0.1
    below = 0.55  # ticks and the label of an axis
    height = sum(panel.height + below + 0.1 for panel in panels) + 0.5
    height += legend_height + LINE * len(footer) + 2 * EDGE
    figure = Figure(figsize=(WIDTH, height))
    models = dict.fromkeys(bar.model for panel in panels for bar in panel.bars)
    left = min(0.35, (0.3 + 0.095 * max(map(len, models))) / WIDTH)
    top = height - 0.5
    for panel in panels:
        bottom = top - panel.height
        place = (left, bottom / height, 1 - 2.5 * EDGE / WIDTH - left, panel.height / height)
        _draw_panel(figure.add_axes(place), panel, look)
        top = bottom - below - 0.1
    figure.text(EDGE / WIDTH, 1 - 0.12 / height, title, ha="left", va="top", fontsize=15, fontweight="bold")
    handles = [Patch(label=label, **look(name)) for label, name in zip(labels, names, strict=True)]  # type: ignore[arg-type]
    figure.legend(
        handles=handles,
        loc="upper left",
        ncols=columns,
        frameon=False,
        borderpad=0,
        columnspacing=1.2,
        bbox_to_anchor=(EDGE / WIDTH, (EDGE + LINE * len(footer) + legend_height) / height),
    )
    figure.text(EDGE / WIDTH, EDGE / height, "\n".join(footer), va="bottom", color="#444444", linespacing=1.25)
    return figure


def _draw_panel(axes: "Axes", panel: Panel, look: Callable[[Name], dict[str, object]]) -> None:
    ends = [end for bar in panel.bars if bar.value for end in (bar.value, *(bar.interval or ()))]
    low, high = min(ends), max(ends)
    logarithmic = high / low > LOG_FROM
    ticks, y = {}, 0.0
    origin = 1.0 if panel.reference else low / 2
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(min(origin, low) / (1.15 if panel.reference else 1), high * (high / low) ** 0.35)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    else:
        origin = 0.0
        axes.set_xlim(0, max(high, 1.0 if panel.reference else 0) * 1.28)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for model in dict.fromkeys(bar.model for bar in panel.bars):
        bars = [bar for bar in panel.bars if bar.model == model]
        ticks[y + (len(bars) - 1) / 2] = model
        for bar in bars:
            if bar.value is not None:
                axes.barh(y, bar.value - origin, left=origin, height=0.86, **look(bar.name))  # type: ignore[arg-type]
                _whisker(axes, y, bar)
            end = max(bar.value or origin, *(bar.interval or (0, 0)), origin)
            text = bar.text if bar.value is not None else f"{' '.join(bar.name)}: {bar.text}"
            axes.annotate(text, (end, y), xytext=(5, 0), textcoords="offset points", va="center")
            y += 1
        y += 0.7
    axes.set_ylim(y - 0.7 - 0.15, -0.85)
    axes.set_yticks(list(ticks), list(ticks.values()), fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(panel.label, loc="right" if len(panel.label) > 70 else "center")
    if panel.reference:
        axes.axvline(1, color="#333333", linewidth=1.2)


def _whisker(axes: "Axes", y: float, bar: Bar) -> None:
    if bar.interval and bar.value is not None:
        low, high = bar.interval
        error = [[bar.value - low], [high - bar.value]]
        axes.errorbar(bar.value, y, xerr=error, color="#222222", capsize=3, linewidth=1.2)


def _footer(group: Group) -> Iterator[str]:
    """What the figures are: recipe, batch policy, software, trials, interval, projected or measured."""
    cells = group.cells
    trials = sorted({cell.trials for cell in cells})
    counts = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    facts = [f"{'/'.join(dict.fromkeys(str(c.measured) for c in cells))}, {counts} trial(s) per bar"]
    facts += ["whiskers: 95% interval"] if trials[-1] > 1 else []
    facts.append(f"batch: {'/'.join(dict.fromkeys(str(cell.batch_policy) for cell in cells))}")
    stacks = "/".join(dict.fromkeys(str(c.torch) for c in cells if c.torch))
    facts += [f"torch {stacks}"] if stacks else []
    marks = Counter(mark for cell in cells for mark, count in cell.marks.items() for _ in range(count))
    facts += [f"{count} of {sum(cell.trials for cell in cells)} trials {mark}" for mark, count in sorted(marks.items())]
    yield group.title
    yield "; ".join([*facts, "gpubench"])


def save(figure: "Figure", stem: Path) -> list[str]:
    """Write a figure as PNG and SVG; returns their paths."""
    files = []
    for kind, metadata in (("png", {"Software": "gpubench"}), ("svg", {"Date": None, "Creator": "gpubench"})):
        path = stem.with_name(f"{stem.name}.{kind}")
        figure.savefig(path, metadata=metadata)
        files.append(str(path))
    return files
