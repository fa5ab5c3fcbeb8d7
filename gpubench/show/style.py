"""Colours and font of every chart (light, dark, HTML page); measures, shortens and wraps its texts, and saves it."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.printed import shortened
from gpubench.rows.embed import png_parts, svg_description
from gpubench.show import wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

# Okabe and Ito (2008): distinct with any colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#808080")
FONT = "DejaVu Sans"
STYLE = {
    "font.family": FONT,
    "savefig.dpi": 150,
    "text.parse_math": False,  # a dollar sign in a name begins no formula
    "svg.fonttype": "none",
    "svg.hashsalt": "gpubench",
}
INK = {
    "light": ("#ffffff", "#1b1f24", "#555555", "#dddddd", "#aab2bb", "#005a8d", "#a33b00"),
    "dark": ("#14181d", "#e6edf3", "#9aa5b1", "#343b44", "#56616d", "#6cc4f5", "#ff9d5c"),
    # An HTML page replaces these with CSS variables, which differ between light and dark.
    "page": ("#fffffe", "#1b1f25", "#555556", "#ddddde", "#aab2bc", "#005a8e", "#a33b01"),
}
"""Colours of the background, text, secondary text and lines, grid, grey bars, and texts of faster and slower ratios."""
FASTER, SLOWER = "axes.labelcolor", "axes.titlecolor"
"""Settings of matplotlib in which a theme has the text colours of faster and slower ratios."""
BLUE = {"light": COLOURS[0], "dark": "#3296dc", "page": "#0072b3"}
"""The first colour of each theme."""


def themed(theme: str) -> dict[str, object]:
    """Return the settings of the theme `light`, `dark` or `page`; `patch.facecolor` is the colour of grey bars."""
    from cycler import cycler

    names = ("figure.facecolor", "text.color", "axes.edgecolor", "grid.color", "patch.facecolor", FASTER, SLOWER)
    cycle = cycler(color=[BLUE[theme], *COLOURS[1:]])
    return {**STYLE, **dict(zip(names, INK[theme], strict=True)), "axes.prop_cycle": cycle}


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours by WCAG 2, from 1 to 21."""
    lights = []
    for colour in (one, other):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(lights) / min(lights)


@contextmanager
def style(theme: str) -> Iterator[None]:
    """Set the style in which charts are drawn and saved; characters without a glyph give no warning."""
    import matplotlib

    with matplotlib.rc_context(themed(theme)), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message=".*[Gg]lyph", category=UserWarning)
        yield


@lru_cache(maxsize=4096)
def wide(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a text, in inches; for a very long text, of its beginning."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=FONT, size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text[: wrap.LONGEST], font, ismath=False)[0]) / 72


def fitted(text: str, inches: float, size: float, weight: str = "normal") -> str:
    """Return the text, without its middle if it is wider than `inches`."""
    return wrap.fitted(text, inches, lambda part: wide(part, size, weight))


def wrapped(text: str, inches: float, size: float, most: int, weight: str = "normal") -> list[str]:
    """Return a text as at most `most` lines of at most `inches`; no line for an empty text."""
    lines = wrap.folded(shortened(text, wrap.LONGEST), inches, most, lambda part: wide(part, size, weight))
    return lines if text.strip() else []


def locator() -> "Locator":
    """Return the locator of an axis with few numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])


def save(figure: "Figure", stem: Path, table: bytes, kinds: Sequence[str]) -> list[str]:
    """Write the figure in each of `kinds` and return the paths; PNG and SVG contain `table`, the CSV of its rows."""
    about = {
        "png": {"Software": "gpubench", **png_parts(table)},
        "svg": {"Date": None, "Creator": "gpubench", "Description": svg_description(table)},
    }
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in kinds]
    for kind, path in zip(kinds, paths, strict=True):
        figure.savefig(path, metadata=about[kind])
    return list(map(str, paths))
