"""Starts `gpubench run` here or as a Slurm job, and prints at its end what its rows say."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from gpubench.console import Screen
from gpubench.plan.options import Options

MOST = 4
"""Findings that are said."""


def run_here_or_on_slurm(options: Options, slurm: str, arguments: Sequence[str]) -> int:
    """Measure what `options` ask for; returns the exit code.

    `slurm` are the wishes of --slurm, empty for a run here, and `arguments` the words of the whole command.
    """
    from gpubench.runner.cluster.slurm import parse_slurm, run_on_slurm
    from gpubench.runner.run import run

    if not slurm:
        return run(options, found=found)
    wishes = parse_slurm(slurm)
    rest = without(arguments, "--slurm", "--out")
    return run_on_slurm(wishes, rest, replace(options, nodes=wishes["nodes"]), Screen(stderr=True))


def without(arguments: Sequence[str], *options: str) -> list[str]:
    """The arguments but for these options and their values."""
    kept, skip = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if skip or name in options:
            skip = not skip and not equals
        else:
            kept.append(argument)
    return kept


def found(path: Path, sessions: Collection[str]) -> list[str]:
    """Lines: the first findings of these sessions' rows in `path`, each as a sentence with what it rests on.

    The rows are written and the run has its exit code: whatever goes wrong here, Ctrl-C too, costs the sentences alone.
    """
    try:
        # Here, because a run that begins has no use for them.
        from gpubench.analysis.compare import Question, load_rows
        from gpubench.show.terminal import wrapped
        from gpubench.studies.answer import answer_of
        from gpubench.studies.cards.placing import placed

        rows = load_rows([path])
        own = replace(rows, frame=rows.frame[rows.frame["session"].isin(sessions)])
        findings = [each for each in answer_of(own, Question()).findings if not each.says_why]
        said = [*(each.sentence for each in findings[:MOST]), *placed(own.frame)]
        return [line for sentence in said for line in wrapped(sentence)]
    except (Exception, KeyboardInterrupt):
        return []
