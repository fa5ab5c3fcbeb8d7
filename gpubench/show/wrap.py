"""Wraps and shortens texts to the width of the terminal. `terminal`, `network` and the commands call it."""

import shutil
from collections.abc import Iterator

from rich.cells import cell_len

from gpubench.printed import shortened, shown

WIDTH = 79
"""Maximum characters of a line."""


def line_width() -> int:
    """Return the number of characters in a line: WIDTH, or fewer in a narrow terminal."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH + 1, 25)).columns - 1)


def wrapped(text: str, width: int | None = None) -> list[str]:
    """Return a text as lines of at most `width` characters, broken at words, without control characters."""
    width = width or line_width()
    lines, line = [], ""
    for word in shown(text).split():
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [cut(line, width) for line in [*lines, line]]


def indented(head: str, text: str, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a text after `head`, further lines indented as far as the first."""
    first, *more = wrapped(text, (width or line_width()) - len(head))
    yield head + first
    yield from (" " * len(head) + line for line in more)


def fitted(text: str, width: int) -> str:
    """Return a name in at most `width` columns: without control characters, and if too long without its middle."""
    characters = width
    while cell_len(fit := shortened(text, characters)) > width:  # wide letters
        characters -= 1
    return fit


def cut(text: str, width: int) -> str:
    """Return the text in at most `width` characters; two dots mark a missing end."""
    if cell_len(text) <= width:
        return text
    text = text[: 4 * width]  # fast for texts of megabytes
    while cell_len(text) > width - 2:
        text = text[:-1]
    return text.rstrip() + ".."
