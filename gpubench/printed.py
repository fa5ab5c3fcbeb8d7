"""Prints text without characters that control a terminal, hide text or reverse it. All output passes through here."""

import re
import sys

STEERING = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"  # controls, ends of lines, surrogates
    # Default ignorable in Unicode: zero-width characters, and those that change the direction of writing.
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "]"
)


def shown(text: str) -> str:
    """Return the text in one line, with U+FFFD in place of each such character."""
    return STEERING.sub("\ufffd", text)


def shown_lines(text: str) -> str:
    """Return the text with its lines, each as from `shown`."""
    return "\n".join(map(shown, text.expandtabs().split("\n")))


def say(*lines: str, err: bool = False, exact: bool = False) -> None:
    """Print each text as one safe line. With `exact`, a pipe or a file gets the text unchanged."""
    stream = sys.stderr if err else sys.stdout
    show = shown if not exact else shown_lines if stream.isatty() else str
    if lines:
        print("\n".join(map(show, lines)), file=stream, flush=True)
