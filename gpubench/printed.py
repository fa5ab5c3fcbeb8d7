"""Prints text without characters that control a terminal, hide text or reverse it. Commands print through it.

It also formats durations, sizes and long names for every package.
"""

import re
import sys
from collections.abc import Callable

STEERING = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"  # controls, ends of lines, surrogates
    # Default ignorable in Unicode: zero-width characters, and those that change the direction of writing.
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "]"
)
DATA_NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet", "wikitext-2": "WikiText-2"}
"""Names of datasets as their authors write them; other data have the name that is in the rows."""
MARKED = {
    "shared": "shared with other programs",
    "clock_fell": "with a falling clock",
    "shared_peak": "with a peak measured beside other programs",
}
"""Words for marks of trials; other marks are shown as they are."""


def shown(text: str) -> str:
    """Return the text in one line, with U+FFFD in place of each character of STEERING."""
    return STEERING.sub("\ufffd", text)


def shown_lines(text: str) -> str:
    """Return a text of several lines with `shown` applied to each, and with tabs as blanks."""
    return "\n".join(map(shown, text.expandtabs().split("\n")))


Say = Callable[[str], None]
"""A function that prints a line: `say` with some options, or another one in tests."""


def say(*lines: str, err: bool = False, exact: bool = False) -> None:
    """Print each text as one safe line. With `exact`, a pipe or a file gets the text unchanged."""
    stream = sys.stderr if err else sys.stdout
    show = shown if not exact else shown_lines if stream.isatty() else str
    if lines:
        encoding = stream.encoding or "utf-8"  # of another locale, such as latin-1: it lacks most characters
        text = "\n".join(map(show, lines)).encode(encoding, "backslashreplace").decode(encoding)
        print(text, file=stream, flush=True)


def duration(seconds: float) -> str:
    """Return seconds as text: `2.1 s`, `1 min 40 s`, `35 min`, `1 h 45 min`, `6.2 days`."""
    if seconds < 90:
        return f"{seconds:.3g} s"
    if seconds < 570:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if seconds > 100 * 3600:
        return f"{seconds / 86_400:.3g} days"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes))


def size_text(size: float) -> str:
    """Return bytes as text in B, KiB, MiB or GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"


def shortened(text: str, characters: int) -> str:
    """Return the text without control characters; if too long, without its middle: the end of a name often matters."""
    text = shown(text)
    head = (characters - 2) * 3 // 5
    return text if len(text) <= characters else f"{text[:head].rstrip()}..{text[head + 2 - characters :].lstrip()}"
