"""Wraps and shortens texts to the width of a terminal or chart, for `terminal`, `network`, `style` and the commands."""

import shutil
from bisect import bisect
from collections.abc import Callable, Iterator

from rich.cells import cell_len

from gpubench.printed import shortened, shown

WIDTH, LEAST_WIDTH = 79, 20
"""Maximum characters of a line: in a wide terminal, and in the narrowest one."""
LONGEST = 1000
"""Maximum length of a name, in characters: a field of a file may have millions."""
Measure = Callable[[str], float]
"""Returns the width of a text."""


def line_width() -> int:
    """Return the number of characters in a line: WIDTH, or fewer in a narrow terminal, but at least LEAST_WIDTH."""
    return max(min(WIDTH, shutil.get_terminal_size((WIDTH + 1, 25)).columns - 1), LEAST_WIDTH)


def wrapped(text: str, width: int | None = None) -> list[str]:
    """Return a text as lines of at most `width` characters, broken at words, without control characters."""
    width = width or line_width()
    return [cut(line, width) for line in _broken(text, width, cell_len)]


def _broken(text: str, width: float, measure: Measure) -> list[str]:
    """Return a text as lines that are broken at words; a word that is wider than `width` has its own line."""
    first, *words = shown(text).split() or [""]
    lines = [first]
    for word in words:
        longer = f"{lines[-1]} {word}"
        if measure(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def folded(text: str, width: float, most: int, measure: Measure = cell_len) -> list[str]:
    """Return a text as at most `most` lines of at most `width`; too long words and texts lose their middle."""
    lines = _broken(" ".join(fitted(word, width, measure) for word in text.split()), width, measure)
    return lines if len(lines) <= most else [*lines[: most - 1], fitted(" ".join(lines[most - 1 :]), width, measure)]


def indented(head: str, text: str, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a text after `head`, further lines indented as far as the first."""
    first, *more = wrapped(text, (width or line_width()) - len(head))
    yield head + first
    yield from (" " * len(head) + line for line in more)


def fitted(text: str, width: float, measure: Measure = cell_len) -> str:
    """Return a name in at most `width`: without control characters, and if too long without its middle."""
    lengths = range(4, min(len(text), LONGEST) + 1)
    return shortened(text, 3 + bisect(lengths, width, key=lambda kept: measure(shortened(text, kept))))


def cut(text: str, width: int) -> str:
    """Return the text in at most `width` characters; two dots mark a missing end."""
    if cell_len(text) <= width:
        return text
    text = text[: 4 * width]  # fast for texts of megabytes
    while cell_len(text) > width - 2:
        text = text[:-1]
    return text.rstrip() + ".."
