"""Starts `gpubench run` here or as a Slurm job, and prints its results at the end."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gpubench.console import Screen
from gpubench.runner.options import Options
from gpubench.runner.summary import RunSummary

MOST_RESULTS = 4
"""How many results are printed at the end of a run."""


def run_here_or_on_slurm(options: Options, slurm: str, arguments: Sequence[str]) -> int:
    """Measure what `options` ask for; returns the exit code.

    `slurm` are the wishes of --slurm, empty for a run here, and `arguments` the words of the whole command.
    """
    from gpubench.runner.cluster.slurm import parse_slurm, run_on_slurm
    from gpubench.runner.run import run

    if not slurm:
        return print_results(run(options), Screen(stderr=True))
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


def print_results(summary: RunSummary, console: Console) -> int:
    """Print the results of a run, its file and the next command; returns the exit code of the run.

    The rows are complete by now. So an error here is printed as a line and leaves the exit code as it is.
    """
    if not summary.path or not summary.sessions:
        return summary.exit_code
    try:
        lines = results_of(summary.path, summary.sessions)
    except KeyboardInterrupt:
        lines = ["Stopped before the results were computed; the rows are complete."]
    except Exception as error:
        lines = [f"The results could not be computed ({type(error).__name__}: {error}); the rows are complete."]
    lines += [f"wrote {summary.path}", f"next: gpubench compare {summary.path} --charts charts"]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    return summary.exit_code


def results_of(path: Path, sessions: Collection[str]) -> list[str]:
    """Return the first results of these sessions' rows in `path`, as wrapped lines."""
    # Imported here because a run that begins does not need them.
    from gpubench.analysis.compare import Question, load_rows
    from gpubench.show.terminal import wrapped
    from gpubench.studies.answer import answer_of
    from gpubench.studies.cards.placing import reference_sentences

    rows = load_rows([path])
    of_this_run = replace(rows, frame=rows.frame[rows.frame["session"].isin(sessions)])
    findings = [finding for finding in answer_of(of_this_run, Question()).findings if not finding.says_why]
    sentences = [*(finding.sentence for finding in findings[:MOST_RESULTS]), *reference_sentences(of_this_run.frame)]
    return [line for sentence in sentences for line in wrapped(sentence)]
