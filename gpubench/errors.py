"""Errors that end a command or a trial on purpose, and the text `did you mean` for a mistyped name."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """An error that the user can correct; the message says how."""

    exit_code = 2
    data = ""
    """The user's rows that are stored nowhere else. They are printed unchanged below the message."""


class Unsupported(Exception):
    """Raised if a machine cannot train a case. The row has the status `unsupported`, and the message as its reason."""


def did_you_mean(wrong: str, choices: Iterable[str]) -> str:
    """Return `; did you mean NAME?` with the choice most like `wrong`; empty if no choice is similar."""
    names = {name.lower(): name for name in choices}
    nearest = difflib.get_close_matches(wrong.lower(), names, n=1)
    return f"; did you mean {names[nearest[0]]}?" if nearest else ""


@contextmanager
def writing(name: str, path: Path) -> Iterator[None]:
    """Create the folder of a file that the block writes; an OSError becomes a UserError that begins with `name`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(f"{name}: cannot be written ({error.strerror or error})") from None
