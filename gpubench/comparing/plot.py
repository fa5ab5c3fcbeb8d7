"""Comparisons as charts: seconds and relative speedup per model, as PNG and SVG, legible in a post."""

import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.comparing.compare import Cell, Comparison, Group, Result
from gpubench.comparing.stats import median_interval
from gpubench.comparing.table import seconds_text, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008): told apart with any colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
LOG_FROM = 20.0
"""Range of values from which a linear axis would hide the small ones."""
STYLE = {
    "font.size": 12,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "gpubench",
}


def draw(result: Result, folder: Path) -> list[Path]:
    """Write `seconds-*` and `speedup-*` charts of every group into `folder`; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for number, group in enumerate(result.groups):
        end = f"-{number + 1}" if len(result.groups) > 1 else ""
        name = re.sub(r"[^A-Za-z0-9_-]", "-", str(group.cells[0].suite)) + end
        with _style():
            written += _save(seconds_chart(group), folder / f"seconds-{name}")
            if group.comparisons:
                written += _save(speedup_chart(group), folder / f"speedup-{name}")
    return written


def seconds_chart(group: Group) -> "Figure":
    """One bar per card and precision for each model: median seconds, and how much slower than the fastest."""
    series = _series(group.cells)
    models = list(dict.fromkeys(str(cell.model) for cell in group.cells))
    unit, scale = _unit(max(cell.median for cell in group.cells))
    figure, axes, place = _canvas(len(models), len(series))
    for position, (name, cells) in enumerate(series.items()):
        for cell in cells:
            x = place(models.index(str(cell.model)), position)
            best = min(c.median for c in group.cells if c.model == cell.model)
            axes.bar(x, cell.median / scale, **_look(name, series))  # type: ignore[arg-type]
            interval = median_interval(cell.seconds)
            if interval:
                _whisker(axes, x, cell.median / scale, interval[0] / scale, interval[1] / scale)
            top = (interval[1] if interval else cell.median) / scale
            label = f"{seconds_text(cell.median / scale)}\n{cell.median / best:.2f}x"
            _label(axes, x, top, label, len(models) * len(series))
    values = [cell.median for cell in group.cells]
    _finish(figure, axes, models, series, group, f"Time of a whole run ({unit}; 1.00x = fastest)", values)
    axes.set_ylabel(unit)
    return figure


def speedup_chart(group: Group) -> "Figure":
    """One bar per comparison for each model, with its 95% interval and a line at 1."""
    rows: dict[str, list[Comparison]] = {}
    for comparison in group.comparisons:
        rows.setdefault(_speedup_name(comparison), []).append(comparison)
    models = list(dict.fromkeys(str(c.subject.model) for c in group.comparisons))
    figure, axes, place = _canvas(len(models), len(rows))
    values = []
    for position, (_name, comparisons) in enumerate(rows.items()):
        for c in comparisons:
            ratio = shown(c)[0]
            x = place(models.index(str(c.subject.model)), position)
            colour = COLOURS[position % len(COLOURS)]
            hatch = HATCHES[position // len(COLOURS) % len(HATCHES)]
            axes.bar(x, ratio.value, width=0.9, facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0.5)
            top = ratio.value
            if ratio.low is not None and ratio.high is not None:
                _whisker(axes, x, ratio.value, ratio.low, ratio.high)
                top = ratio.high
            _label(axes, x, top, f"{ratio.value:.2f}", len(models) * len(rows))
            values.append(ratio.value)
    axes.axhline(1, color="#333333", linewidth=1.2)
    series = {(name, ""): [] for name in rows}
    _finish(figure, axes, models, series, group, "Relative speedup (seconds of the first / seconds of the second)", values)
    axes.set_ylabel("ratio of seconds")
    return figure


def _speedup_name(c: Comparison) -> str:
    if c.axis == "precision":
        where = next((note for note in c.notes if "batch" in note), "")
        return f"{c.other_name} / {c.subject_name}, {c.subject.label}{f', {where}' if where == 'same batch' else ''}"
    return f"{c.subject_name} / {c.other_name}, {c.subject.precision}{_policy(c.subject)}"


def _policy(cell: Cell) -> str:
    """Policies that set one bar apart from its neighbour of the same precision."""
    return f" ({cell.batch_policy})" if cell.batch_policy in {"max-fp32", "author-doubled"} else ""


Series = dict[tuple[str, str], list[Cell]]


def _series(cells: list[Cell]) -> Series:
    series: Series = {}
    for cell in cells:
        series.setdefault((cell.label, f"{cell.precision}{_policy(cell)}"), []).append(cell)
    return series


def _look(name: tuple[str, str], series: Series) -> dict[str, object]:
    """Colour by card, hatch by precision: readable in grey as well."""
    cards = list(dict.fromkeys(card for card, _ in series))
    kinds = list(dict.fromkeys(kind for _, kind in series))
    return {
        "width": 0.9,
        "facecolor": COLOURS[cards.index(name[0]) % len(COLOURS)],
        "hatch": HATCHES[kinds.index(name[1]) % len(HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.5,
    }


def _canvas(models: int, bars: int) -> "tuple[Figure, Axes, Callable[[int, int], float]]":
    from matplotlib.figure import Figure

    width = min(24.0, max(8.0, 1.6 + models * (bars + 1) * 0.5))
    figure = Figure(figsize=(width, 6.5), dpi=150)
    axes = figure.add_subplot()

    def place(model: int, bar: int) -> float:
        return model * (bars + 1) + bar - (bars - 1) / 2

    axes.set_xticks([m * (bars + 1) for m in range(models)])
    axes.set_xlim(-(bars + 1) / 2, models * (bars + 1) - (bars + 1) / 2)
    return figure, axes, place


def _whisker(axes: "Axes", x: float, value: float, low: float, high: float) -> None:
    axes.errorbar(x, value, yerr=[[value - low], [high - value]], color="#222222", capsize=3, linewidth=1.2)


def _label(axes: "Axes", x: float, y: float, text: str, bars: int) -> None:
    size = 10 if bars <= 24 else 8
    axes.annotate(text, (x, y), xytext=(0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=size)


def _finish(
    figure: "Figure",
    axes: "Axes",
    models: list[str],
    series: Series,
    group: Group,
    title: str,
    values: list[float],
) -> None:
    from matplotlib.patches import Patch

    if max(values) / min(values) > LOG_FROM:
        axes.set_yscale("log")
    axes.margins(y=0.14)
    axes.tick_params(axis="x", length=0)
    axes.set_xticklabels(models)
    plain = all(not kind for _, kind in series)
    handles = []
    for position, name in enumerate(series):
        look = (
            {"facecolor": COLOURS[position % len(COLOURS)], "hatch": HATCHES[position // len(COLOURS)]}
            if plain
            else {k: v for k, v in _look(name, series).items() if k != "width"}
        )
        handles.append(Patch(label=" ".join(filter(None, name)), **{**look, "edgecolor": "white"}))  # type: ignore[arg-type]
    columns = 2 if len(handles) > 3 or max(len(h.get_label()) for h in handles) > 28 else max(1, len(handles))
    inches = figure.get_figwidth()
    lines = textwrap.wrap(_footer(group), int(inches * 12))
    legend_rows = -(-len(handles) // columns)
    below = 0.55 + 0.26 * legend_rows + 0.19 * len(lines)
    height = 5.2 + below
    figure.set_figheight(height)
    figure.suptitle(
        f"{group.cells[0].suite}: {title}", x=0.5, y=1 - 0.12 / height, fontsize=15, fontweight="bold"
    )
    figure.legend(
        handles=handles, loc="upper center", ncols=columns, frameon=False,
        bbox_to_anchor=(0.5, (below - 0.38) / height), fontsize=11,
    )  # fmt: skip
    figure.text(0.5, 0.1 / height, "\n".join(lines), ha="center", va="bottom", fontsize=9, color="#444444")
    figure.subplots_adjust(
        left=0.85 / inches, right=1 - 0.2 / inches, top=1 - 0.55 / height, bottom=below / height
    )


def _footer(group: Group) -> str:
    """What the figures are: recipe, batch policy, software, trials, interval, projected or measured."""
    cells = group.cells
    policies = "/".join(dict.fromkeys(str(cell.batch_policy) for cell in cells))
    trials = sorted({cell.trials for cell in cells})
    counts = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    stacks = "/".join(dict.fromkeys(str(c.torch) for c in cells if c.torch))
    whiskers = "; whiskers: 95% interval" if trials[-1] >= 6 else ""
    kinds = "/".join(dict.fromkeys(str(cell.measured) for cell in cells))
    software = f"; torch {stacks}" if stacks else ""
    return f"{group.title}; batch: {policies}; {kinds}, {counts} trial(s) per bar{whiskers}{software}; gpubench"


def _unit(longest: float) -> tuple[str, float]:
    if longest >= 7200:
        return "minutes", 60.0
    return "seconds", 1.0


def _save(figure: "Figure", stem: Path) -> list[Path]:
    files = []
    for kind, metadata in (("png", {"Software": "gpubench"}), ("svg", {"Date": None, "Creator": "gpubench"})):
        path = stem.with_name(f"{stem.name}.{kind}")
        figure.savefig(path, metadata=metadata)  # type: ignore[arg-type]
        files.append(path)
    return files


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        yield
