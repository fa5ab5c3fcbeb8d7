"""Errors that end a command or a trial on purpose."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """An error that the user can correct; the message says how."""

    exit_code = 2
    data = ""
    """Lines of the user's that are stored nowhere else, to be printed unchanged below the message."""


class Unsupported(Exception):
    """Raised by a suite if a machine cannot do the case: its row is `unsupported`, with the message as the reason."""


def did_you_mean(wrong: str, choices: Iterable[str]) -> str:
    """Return the nearest choice as the end of a sentence; empty where none is near."""
    names = {name.lower(): name for name in choices}
    nearest = difflib.get_close_matches(wrong.lower(), names, n=1)
    return f"; did you mean {names[nearest[0]]}?" if nearest else ""


@contextmanager
def writing(name: str, path: Path) -> Iterator[None]:
    """Make the folder of a file that is written meanwhile; an OSError raises a UserError that begins with `name`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(f"{name}: cannot be written ({error.strerror})") from None
