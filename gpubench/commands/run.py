"""What `gpubench run` found, said at its end."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

MOST = 4
"""Findings that are said."""


def found(path: Path, sessions: Collection[str]) -> list[str]:
    """Lines: the first findings of these sessions' rows in `path`, each as a sentence with what it rests on.

    The rows are written and the run has its exit code: whatever goes wrong here, Ctrl-C too, costs the sentences alone.
    """
    try:
        # Here, because a run that begins has no use for them.
        from gpubench.analysis.compare import Question, load_rows
        from gpubench.show.terminal import wrapped
        from gpubench.studies.answer import answer_of

        rows = load_rows([path])
        own = replace(rows, frame=rows.frame[rows.frame["session"].isin(sessions)])
        findings = [each for each in answer_of(own, Question()).findings if not each.says_why]
        return [line for each in findings[:MOST] for line in wrapped(each.sentence)]
    except (Exception, KeyboardInterrupt):
        return []
