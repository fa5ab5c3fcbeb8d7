"""A picture for each finding that compares models: the whole run's time of both sides, and the speedups.

1200 x 675 pixels, so that it is seen whole where links are previewed; the finding is its title.
"""

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench.analysis.cells import Cell
from gpubench.errors import UserError
from gpubench.show.style import COLOURS, save, themed
from gpubench.show.terminal import basis, number, sentence
from gpubench.studies.finding import Finding, Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (8.0, 4.5)
"""Inches: at 150 dots 1200 x 675 pixels, and 10 points are 21 of them."""
SMALL, NORMAL, LARGE = 10, 11, 14
FINDINGS = 6
"""The most that are drawn."""
MOST = 8
"""Models in a picture; of more, the others are in the tables."""
RATIO: dict[str, Any] = {
    "xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center", "ha": "right",
}  # fmt: skip
"""Where the ratio of a pair of bars stands: at the right edge."""
GREY = "#9aa5b1"
TITLE_CHARACTERS, FOOT_CHARACTERS = 72, 100
UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def draw(
    findings: Sequence[Finding],
    folder: Path,
    table: Callable[[Iterable[Cell]], bytes],
    kinds: Sequence[str],
    theme: str,
) -> list[str]:
    """Write two pictures for each of the first findings that have models; returns their paths.

    Each carries the rows of its finding, which `table` gives. Raises UserError where the folder cannot be written.
    """
    import matplotlib

    lines: list[str] = []
    chosen = [each for each in findings if each.parts and each.of_seconds and each.kind != "trick"][:FINDINGS]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(themed(theme)):  # type: ignore[arg-type]
            for each, stem in zip(chosen, names_of(chosen), strict=True):
                rows = table(each.cells)
                lines += save(seconds_chart(each), folder / f"{stem}-seconds", rows, kinds)
                if len(each.parts) > 1 or each.interval:  # of a single one the other picture says it
                    lines += save(speedup_chart(each), folder / f"{stem}-speedup", rows, kinds)
    except OSError as error:
        raise UserError(f"--charts {folder}: cannot write there ({error.strerror})") from None
    return lines


def names_of(findings: Sequence[Finding]) -> list[str]:
    """What each shows, as the beginning of a file's name; numbered where two would be the same."""
    found: list[str] = []
    for each in findings:
        words = f"{each.suite} {each.subject} over {each.baseline} {each.where}"
        name = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:80]
        again = sum(other == name or re.fullmatch(rf"{re.escape(name)}-\d+", other) is not None for other in found)
        found.append(f"{name}-{again + 1}" if again else name)
    return found


def unit_of(parts: Sequence[Part]) -> tuple[float, str]:
    """(seconds of one, its name) of the largest unit of which every time is at least one."""
    shortest = min(min(part.subject, part.baseline) for part in parts)
    return next((unit for unit in UNITS if shortest >= unit[0]), UNITS[-1])


def seconds_chart(each: Finding) -> "Figure":
    """A pair of bars for each model, the subject in colour; to their right how many times as fast it is."""
    parts = each.parts[:MOST]
    scale, unit = unit_of(parts)
    figure, axes = _frame(each, f"{unit.capitalize()} for {_recipe(each)}; lower is better")
    longest = max(max(part.subject, part.baseline) for part in parts) / scale
    places = []
    for index, part in enumerate(parts):
        top = index * 2.6
        places.append(top + 0.5)
        for at, (value, name, colour) in enumerate(
            ((part.baseline, each.baseline, GREY), (part.subject, each.subject, COLOURS[0]))
        ):
            axes.barh(top + at, value / scale, height=0.92, color=colour)
            text = f"{value / scale:,.3g}" + (f"  {name}" if index == 0 else "")
            axes.annotate(
                text, (value / scale, top + at), (5, 0), textcoords="offset points", va="center", fontsize=SMALL
            )
        axes.annotate(
            f"{number(part.value)}x",
            (1, top + 0.5),
            (-4, 0),
            **RATIO,
            fontsize=NORMAL,
        )
    names = [_labelled(part) for part in parts]
    if len(each.parts) > 1:
        places.append(2.6 * len(parts) + 0.1)
        names.append("mean")
        edge = (1.0, places[-1])
        axes.annotate(f"{number(each.value)}x", edge, (-4, 0), **RATIO, fontsize=NORMAL, weight="bold")
    _labels(axes, places, names)
    room = 0.13 + 0.011 * max(len(each.baseline), len(each.subject))
    axes.set_xlim(0, longest * (1 + room + 0.14))
    axes.set_ylim(2.6 * len(parts) - 1 + 1.7 * (len(each.parts) > 1), -0.7)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False)
    return figure


def speedup_chart(each: Finding) -> "Figure":
    """A dot for each model with its interval, and their mean below in bold; 1 is marked."""
    import matplotlib

    soft = matplotlib.rcParams["axes.edgecolor"]
    parts = each.parts[:MOST]
    figure, axes = _frame(each, f"Speedup of {each.subject} over {each.baseline}; above 1 is faster")
    lines = [(_labelled(part), part.value, part.interval, False) for part in parts]
    if len(each.parts) > 1:
        lines.append(("mean", each.value, each.interval, True))
    for y, (_, value, interval, bold) in enumerate(lines):
        colour = COLOURS[0] if value >= 1 else COLOURS[5]
        if interval:
            axes.plot(interval, [y, y], color=colour, linewidth=2, alpha=0.6)
        axes.plot([value], [y], "D" if bold else "o", color=colour, markersize=9)
        axes.annotate(
            number(value),
            (value, y),
            (0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=NORMAL,
            weight="bold" if bold else "normal",
        )
    ends = [1.0, *(value for _, value, _, _ in lines), *(end for _, _, ends, _ in lines for end in ends or ())]
    low, high = min(ends), max(ends)
    margin = 0.08 * (high - low) or 0.1
    axes.set_xlim(low - margin, high + margin)
    axes.axvline(1, color=soft, linewidth=1.5)
    axes.set_ylim(len(lines) - 0.5, -0.8)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="x", labelsize=SMALL)
    _labels(axes, range(len(lines)), [name for name, _, _, _ in lines])
    if len(each.parts) > 1:
        axes.get_yticklabels()[-1].set_fontweight("bold")
    return figure


def _recipe(each: Finding) -> str:
    """What was run, as far as all of it is the same."""
    rows = [cell.row for cell in each.cells]
    epochs, data = {row["epochs"] for row in rows}, {str(row["data"]) for row in rows}
    known = len(epochs) == len(data) == 1 and all(epochs) and all(data) and not any(map(math.isnan, epochs))
    return f"{epochs.pop():.0f} epochs of {data.pop()}" if known else f"a whole run of {each.suite}"


def _labelled(part: Part) -> str:
    """The model, and its batches where they differ."""
    sizes = [size for size in (part.baseline_batch, part.subject_batch) if not math.isnan(size)]
    return part.model if len(set(sizes)) < 2 else f"{part.model}\nbatch {sizes[0]:.0f}, {sizes[1]:.0f}"


def _labels(axes: "Axes", places: Iterable[float], names: Sequence[str]) -> None:
    axes.set_yticks(list(places), list(names), fontsize=SMALL if any("\n" in name for name in names) else NORMAL)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _frame(each: Finding, subtitle: str) -> tuple["Figure", "Axes"]:
    """The finding above, what is drawn below it, and at the foot what it rests on."""
    import matplotlib
    from matplotlib.figure import Figure

    soft = matplotlib.rcParams["axes.edgecolor"]
    figure = Figure(figsize=SIZE, layout="constrained")
    title = textwrap.wrap(sentence(each).removesuffix("."), TITLE_CHARACTERS)[:2]
    top = 1 - 0.32 * len(title) / SIZE[1]
    figure.text(0.02, 0.98, "\n".join(title), va="top", fontsize=LARGE, weight="bold")
    figure.text(0.02, top - 0.02, subtitle, va="top", fontsize=NORMAL, color=soft)
    foot = textwrap.wrap(". ".join(filter(None, [basis(each), each.source, "gpubench"])), FOOT_CHARACTERS)[:2]
    figure.text(0.02, 0.02, "\n".join(foot), va="bottom", fontsize=SMALL, color=soft)
    below = 0.03 + 0.05 * len(foot)
    figure.get_layout_engine().set(rect=(0.012, below, 0.976, top - 0.09 - below))  # type: ignore[union-attr,call-arg]
    return figure, figure.subplots()
