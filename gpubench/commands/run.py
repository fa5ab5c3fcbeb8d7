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
        from gpubench.analysis.compare import Question, answer_of, asked
        from gpubench.show.terminal import told, wrapped
        from gpubench.studies.answer import findings_of
        from gpubench.studies.scaling import views_of

        rows = asked([path], Question())
        own = replace(rows, frame=rows.frame[rows.frame["session"].isin(sessions)])
        findings = findings_of(answer_of(own, Question()), views_of(own.frame))
        return [line for each in findings[:MOST] for line in wrapped(told(each))]
    except (Exception, KeyboardInterrupt):
        return []
