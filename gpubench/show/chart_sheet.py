"""An empty chart: its size, fonts, title, subtitle, key and foot. `bars` and `network_chart` draw on it, in inches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpubench.show.style import fitted, wide, wrapped
from gpubench.studies.section import Bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (8.0, 4.5)
"""Width and height of a chart file, in inches: 1200 x 675 pixels at 150 dots per inch. `page` has its own WIDTH."""
SMALL, NORMAL = 9.6, 10.5
"""Font sizes, in points; SMALL is 20 pixels high."""
TITLES = (15.0, 14.0, 13.0)
"""Font sizes of the title, in points: the largest with which it fits into one line, else into two."""
TITLE_LINE, SUBTITLE_LINE, KEY_LINE, FOOT_LINE = 0.285, 0.215, 0.25, 0.19
"""Distance from line to line, in inches."""
EDGE, INSET = 0.27, 0.04
"""Width of the margin, in inches, with a frame and without."""


@dataclass(frozen=True)
class Key:
    """An entry of the key: its look (`box` or `mark`), colour and text."""

    look: str
    colour: str
    text: str


@dataclass(frozen=True)
class Sheet:
    """A figure to draw on, in inches from its upper left corner."""

    figure: "Figure"
    axes: "Axes"
    top: float
    """Upper end of the part to draw on."""
    bottom: float
    """Lower end of the part to draw on."""

    def text(self, x: float, y: float, text: str, size: float = SMALL, *, paper: bool = False, **look: Any) -> None:
        """Write a text beside (x, y). With `paper`, the text has a background, which hides the lines behind it."""
        if paper:
            look["bbox"] = {"facecolor": setting("figure.facecolor"), "linewidth": 0, "pad": 0.5}
        self.axes.text(x, y, text, **{"fontsize": size, "va": "center_baseline", **look})

    def line(self, xs: Sequence[float], ys: Sequence[float], colour: str, **look: Any) -> None:
        """Draw a line through points, or a `marker` at a point."""
        self.axes.plot(xs, ys, **{"color": colour, "linewidth": 1.0, "clip_on": False, **look})

    def box(self, x: float, y: float, width: float, height: float, **look: Any) -> None:
        """Draw a rectangle with its upper left corner at (x, y)."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, y), width, height, **{"linewidth": 0, **look}))

    def plot_axes(self, left: float, top: float, right: float, bottom: float) -> "Axes":
        """Return new axes on this part of the sheet, with horizontal grid lines and no frame."""
        width, height = self.figure.get_size_inches()
        shares = left / width, 1 - bottom / height, (right - left) / width, (bottom - top) / height
        axes = self.figure.add_axes(shares)
        axes.patch.set_visible(False)
        axes.tick_params(which="both", labelsize=SMALL, length=0, labelcolor=setting("axes.edgecolor"))
        axes.grid(axis="y")
        axes.spines[["left", "top", "right"]].set_visible(False)
        return axes


def setting(name: str) -> Any:
    """Return a setting of the current style, such as a colour."""
    import matplotlib

    return matplotlib.rcParams[name]  # type: ignore[index]


def palette() -> list[str]:
    """Return the colours of the current style, in order."""
    return list(setting("axes.prop_cycle").by_key()["color"])


def sheet_of(chart: Bars, width: float, keys: Sequence[Key], needed: float, *, framed: bool) -> Sheet:
    """Return a sheet with the key. If `framed`, it has texts and the height SIZE; else `needed` inches to draw on."""
    from matplotlib.figure import Figure

    edge, soft = EDGE if framed else INSET, setting("axes.edgecolor")
    room = width - 2 * edge
    sizes = [(lines, size) for lines in (1, 2) for size in TITLES]
    fits = (size for lines, size in sizes if len(wrapped(chart.title, room, size, 9, "bold")) <= lines)
    size = next(fits, TITLES[-1])
    title = wrapped(chart.title, room, size, 2, "bold") if framed else []
    subtitle = wrapped(chart.subtitle, room, NORMAL, 2) if framed else []
    foot = wrapped(chart.foot, room - 1.0, SMALL, 2) if framed else []
    places = _places(keys, room)
    rows = places[-1][1] + 1 if places else 0
    top = edge + TITLE_LINE * len(title) + SUBTITLE_LINE * len(subtitle) + KEY_LINE * rows
    top += 0.16 if framed else 0.06
    below = edge + FOOT_LINE * len(foot or [framed] * framed)
    height = SIZE[1] if framed else top + needed + below
    figure = Figure(figsize=(width, height))
    figure.patch.set_visible(framed)
    axes = figure.add_axes((0, 0, 1, 1), zorder=2)
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    sheet = Sheet(figure, axes, top, height - below)
    y = edge + TITLE_LINE * len(title) - 0.05
    sheet.text(edge, edge - 0.07, "\n".join(title), size, weight="bold", va="top")
    sheet.text(edge, y, "\n".join(subtitle), NORMAL, color=soft, va="top")
    y += SUBTITLE_LINE * len(subtitle) + 0.16
    for key, (x, row) in zip(keys, places, strict=True):
        left, middle = edge + x, y + row * KEY_LINE
        if key.look == "box":
            sheet.box(left, middle - 0.075, 0.26, 0.15, facecolor=key.colour)
        else:
            sheet.line([left + 0.1] * 2, [middle - 0.09, middle + 0.09], key.colour, linewidth=2.5)
        sheet.text(left + 0.34, middle, fitted(key.text, room - 0.4, SMALL))
    sheet.text(edge, height - edge + 0.1, "\n".join(foot), color=soft, va="bottom")
    if framed:
        sheet.text(width - edge, height - edge + 0.1, "gpubench", ha="right", va="bottom", weight="bold", color=soft)
    return sheet


def _places(keys: Sequence[Key], room: float) -> list[tuple[float, int]]:
    """Return the left end, in inches, and the row of each entry of the key; rows are at most `room` inches wide."""
    places: list[tuple[float, int]] = []
    x, row = 0.0, 0
    for key in keys:
        width = 0.34 + wide(key.text, SMALL)
        if x and x + width > room:
            x, row = 0.0, row + 1
        places.append((x, row))
        x += width + 0.28
    return places
