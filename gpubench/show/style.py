"""How every chart looks: one style in a light and a dark theme, its footer, and the rows it is saved with."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.rows.embed import png_parts, svg_description

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

# Okabe and Ito (2008): told apart with any colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#808080")
MARKERS = "osD^vPX*"
STYLE = {
    "font.size": 11,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "savefig.dpi": 150,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.fonttype": "none",
    "svg.hashsalt": "gpubench",
}
INK = {
    "light": ("#ffffff", "#1b1f24", "#555555", "#dddddd", "#aab2bb"),
    "dark": ("#14181d", "#e6edf3", "#9aa5b1", "#343b44", "#56616d"),
    # An HTML page makes variables of these, which its reader's choice of light or dark sets.
    "page": ("#fffffe", "#1b1f25", "#555556", "#ddddde", "#aab2bc"),
}
"""Background, text, secondary text and lines, grid, and bars that are not in colour."""
BLUE = {"light": COLOURS[0], "dark": "#3296dc", "page": "#0072b3"}
"""The first colour: that of the light theme is too dark for the other one."""


def themed(theme: str) -> dict[str, object]:
    """The style in `light`, `dark` or `page`; `patch.facecolor` is that of bars that are not in colour."""
    from cycler import cycler

    paper, ink, soft, grid, bar = INK[theme]
    names = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    return {
        **STYLE,
        **dict.fromkeys(names, paper),
        "text.color": ink,
        "axes.labelcolor": ink,
        "xtick.color": soft,
        "ytick.color": soft,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "axes.edgecolor": soft,
        "grid.color": grid,
        "patch.facecolor": bar,
        "axes.prop_cycle": cycler(color=[BLUE[theme], *COLOURS[1:]]),
    }


def shortened(text: str, characters: int) -> str:
    """A long name with its middle left out: the end often tells cards apart."""
    if len(text) <= characters:
        return text
    head = (characters - 1) * 3 // 5
    return f"{text[:head].rstrip()}…{text[head - characters + 1 :].lstrip()}"


@contextmanager
def any_letter() -> Iterator[None]:
    """A name may hold signs that no font here has; they are drawn as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph", category=UserWarning)
        yield


@lru_cache(maxsize=4096)
def wide(text: str, size: float, weight: str = "normal") -> float:
    """Inches that a text takes."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    with any_letter():
        font = FontProperties(family=str(STYLE["font.family"]), size=size, weight=weight)
        return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 72


def fitted(text: str, inches: float, size: float, weight: str = "normal") -> str:
    """The text, `shortened` where it is wider than `inches`."""
    characters = len(text)
    while characters > 3 and wide(shortened(text, characters), size, weight) > inches:
        characters -= 1
    return shortened(text, characters)


def wrapped(text: str, inches: float, size: float, most: int, weight: str = "normal") -> list[str]:
    """At most `most` lines of at most `inches`."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and wide(longer, size, weight) > inches:
            lines.append(word)
        else:
            lines[-1] = longer
    lines = [*lines[: most - 1], " ".join(lines[most - 1 :])] if len(lines) > most else lines
    return [fitted(line, inches, size, weight) for line in lines if line]


def plain_numbers(axis: "Axis") -> None:
    """Numbers as they are, not powers of ten, along an axis whose scale is set."""
    if axis.get_scale() == "log":
        axis.set_major_locator(log_locator(*axis.get_view_interval()))
    axis.set_major_formatter(lambda value, _: f"{value:,.12g}")


def log_locator(low: float, high: float) -> "LogLocator":
    """Of the numbers along a logarithmic axis: less than two decades have 1, 2 and 5 of each."""
    from matplotlib.ticker import LogLocator

    return LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,), numticks=20)


def save(figure: "Figure", stem: Path, table: bytes, kinds: Sequence[str]) -> list[str]:
    """Write the figure as each of `kinds`; PNG and SVG carry `table`, the CSV of the rows behind them."""
    import matplotlib

    about = {
        "png": {"Software": "gpubench", **png_parts(table)},
        "svg": {"Date": None, "Creator": "gpubench", "Description": svg_description(table)},
        "pdf": {"Creator": "gpubench", "CreationDate": None},
    }
    lines = []
    for kind in kinds:
        path = stem.with_name(f"{stem.name}.{kind}")
        with any_letter():
            figure.savefig(path, metadata=about[kind], facecolor=matplotlib.rcParams["figure.facecolor"])
        lines.append(str(path))
    return lines
