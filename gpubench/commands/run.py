"""What `gpubench run` found, said at its end."""

from collections.abc import Iterator
from pathlib import Path

from gpubench.comparing.compare import Question, answer
from gpubench.errors import UserError
from gpubench.show.terminal import told, wrapped
from gpubench.studies.answer import findings_of

MOST = 4
"""Findings that are said."""


def found(path: Path) -> Iterator[str]:
    """Lines: the first findings of the rows in `path`, each as a sentence with what it rests on."""
    try:
        findings = findings_of(answer([path], Question()))
    except UserError:  # no row has a result
        return
    for each in findings[:MOST]:
        yield from wrapped(told(each))
