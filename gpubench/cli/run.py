"""`gpubench run`: its options, the run here or as a Slurm job, and the results that it prints at the end."""

import importlib.util
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from gpubench.cli.options import (
    FLAG,
    DataFolder,
    Devices,
    Precisions,
    examples,
    file_option,
    parse_duration,
    parse_processes,
    parse_session,
    parse_settings,
    parse_share,
    parse_size,
    time_option,
    what_option,
    where_option,
)
from gpubench.errors import UserError
from gpubench.printed import say
from gpubench.runner.options import RANKED_MODELS, RANKED_SUITE, Options

if TYPE_CHECKING:
    from gpubench.runner.session import RunSummary

MOST_RESULTS = 4
"""Most results that are printed at the end of a run."""
EXAMPLES = examples(
    "How fast is this card, in a minute: `gpubench run --quick`",
    "Several rounds, enough for a verdict: `gpubench run --suite resnet --models resnet18,resnet50 --batch max`",
    "Every epoch (the same command resumes it):"
    " `gpubench run --suite resnet --full --set epochs=30 --out results/mine.csv`",
    "Your suite, on two cards in turn: `gpubench run --suite my_suite.py --device cuda:0,cuda:1`",
    "How it scales to four cards: `gpubench run --suite resnet --processes 1,2,4`",
    "On each of two machines: `gpubench run --processes 8 --nodes 2 --rendezvous 10.0.0.1:29400`",
)


class RunCommand(typer.core.TyperCommand):
    """The command `run`. If a name has no option before it, the error message shows how to give a suite or a model."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left; raises click's UsageError."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if "unexpected extra argument" in (message := getattr(error, "message", "")):
                error.message = f"{message}: write --suite NAME, or --models NAMES"  # type: ignore[attr-defined]
            raise


def run(
    suite: Annotated[
        list[str] | None,
        what_option(
            metavar="NAME|PATH",
            help="Built-in suite (`gpubench list`), or the path of yours; default resnet; with --quick: reference."
            " Repeatable.",
        ),
    ] = None,
    models: Annotated[
        list[str] | None, what_option(metavar="NAMES", help="Models, joined by commas; each suite has defaults.")
    ] = None,
    precision: Precisions = None,
    batch: Annotated[
        str | None,
        what_option(metavar="max|fastest|N", help="Samples per step and process: as many as fit, the fastest, or N."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        what_option("--set", metavar="KEY=VALUE", help="A parameter of the suite (`gpubench list NAME`). Repeatable."),
    ] = None,
    seed: Annotated[int, what_option(min=0, max=10**15, metavar="N", help="Seed of round 1; each adds one.")] = 42,
    session: Annotated[
        str | None, what_option(metavar="NAME", help="Name of runs that alternate: `compare` treats them as one run.")
    ] = None,
    quick: Annotated[
        bool, time_option("--quick", metavar=FLAG, help="One trial per case, of only a few steps: rough.")
    ] = False,
    no_rank: Annotated[
        bool,
        time_option(
            "--no-rank", metavar=FLAG, help="With --quick: do not rank the card (skips the trial of suite reference)."
        ),
    ] = False,
    full: Annotated[bool, time_option("--full", metavar=FLAG, help="Train every epoch, instead of a sample.")] = False,
    repeats: Annotated[
        int | None, time_option(min=1, metavar="N", help="Trials per case; default 3 to 6, 1 with --quick or --full.")
    ] = None,
    until: Annotated[
        str | None, time_option(metavar="SHARE", help="1%: add rounds until each 95% interval is within 1%.")
    ] = None,
    budget: Annotated[
        str | None, time_option(metavar="TIME", help="With --until: add rounds up to this time (90s, 2h); default 20m.")
    ] = None,
    time_limit: Annotated[
        str | None, time_option(metavar="TIME", help="End longer trials: 90s, 1h30m. Default 30m; none with --full.")
    ] = None,
    device: Devices = "auto",
    memory_limit: Annotated[
        str | None, where_option(metavar="SIZE", help="Most memory a trial may use: 11GiB, 2GB, 500MiB.")
    ] = None,
    processes: Annotated[
        str, where_option(metavar="N", help="Processes on each machine, one per device; 1,2,4: each number in turn.")
    ] = "1",
    nodes: Annotated[int, where_option(min=1, metavar="N", help="Machines; start the same command on each.")] = 1,
    rendezvous: Annotated[
        str, where_option(metavar="HOST:PORT", help="Where the machines connect. HOST writes the rows.")
    ] = "",
    slurm: Annotated[
        str | None, where_option(metavar="NAME=VALUE,...", help="Run as a Slurm job: partition=gpu,nodes=4,time=60.")
    ] = None,
    out: Annotated[
        Path, file_option(metavar="PATH", help="Folder for a new CSV file, or a CSV file to write or resume.")
    ] = Path("results"),
    data: DataFolder = None,
    weights: Annotated[Path | None, file_option(metavar="DIR", help="Folder with pretrained weights.")] = None,
    synthetic: Annotated[
        bool, file_option("--synthetic", metavar=FLAG, help="Generated data of the same shapes; rows are marked so.")
    ] = False,
    tensorboard: Annotated[
        Path | None, file_option(metavar="DIR", help="Folder for TensorBoard events of suite imagenet.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=FLAG, help="Print the plan and its time; measure nothing.")
    ] = False,
) -> int:
    """Benchmark this machine: train real models, one new process and one CSV row per trial."""
    from gpubench.runner import run as runner
    from gpubench.runner.slurm import parse_slurm, run_on_slurm

    if quick and full:
        raise UserError("--quick and --full exclude each other")
    if until and (quick or repeats):
        raise UserError(f"--until chooses the number of rounds; leave out {'--quick' if quick else '--repeats'}")
    if tensorboard and not importlib.util.find_spec("tensorboard"):
        raise UserError("--tensorboard needs TensorBoard: pip install -e '.[tensorboard]'")
    if budget is not None and not until:
        raise UserError("--budget is for --until; --time-limit limits a trial")
    named = tuple(filter(None, ",".join(models or ()).split(",")))
    suites = tuple(suite or (RANKED_SUITE if quick and not models else "resnet",))
    options = Options(
        suites=suites,
        precision=",".join(precision or ["both"]),
        models=RANKED_MODELS if quick and not (suite or models) else named,
        processes=parse_processes(processes),
        mode="quick" if quick else "full" if full else "sampled",
        memory_limit_bytes=None if memory_limit is None else parse_size(memory_limit),
        time_limit_seconds=None if time_limit is None else parse_duration(time_limit),
        until=None if until is None else parse_share("--until", until),
        budget_seconds=parse_duration("20m" if budget is None else budget, "--budget") if until else None,
        session="" if session is None else parse_session(session),
        settings=parse_settings(settings or ()),
        rank=quick and not no_rank and nodes == 1 and "resnet" in suites and RANKED_SUITE not in suites,
        batch=batch, device=device, nodes=nodes, rendezvous=rendezvous, repeats=repeats, seed=seed, dry_run=dry_run,
        out=out, data=data, weights=weights, synthetic=synthetic, tensorboard=tensorboard,
    )  # fmt: skip
    if slurm is not None:
        arguments = without(sys.argv[1:], "--slurm", "--out")
        return run_on_slurm(parse_slurm(slurm), arguments, out)
    return print_results(runner.run(options))


def without(arguments: Sequence[str], *options: str) -> list[str]:
    """Return the arguments without these options and their values."""
    kept, skip = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if skip or name in options:
            skip = not skip and not equals
        else:
            kept.append(argument)
    return kept


def print_results(summary: "RunSummary") -> int:
    """Print the results of a run, its file and the next command; returns the exit code of the run.

    The rows are complete by now. So an error here is printed as a line and leaves the exit code as it is.
    """
    if not summary.path or not summary.sessions:
        return summary.exit_code
    following = compare_command(summary.path)
    try:
        lines, following = results_of(summary.path, summary.sessions)
    except KeyboardInterrupt:
        lines = ["Stopped before the results were computed; the rows are complete."]
    except Exception as error:
        lines = [f"The results could not be computed ({type(error).__name__}: {error}); the rows are complete."]
    say(*lines, f"rows: {summary.path}", *[f"next: {following}"] * bool(following))
    return summary.exit_code


def compare_command(path: Path) -> str:
    """Return the command that compares the rows of a file."""
    return f"gpubench compare {quote(str(path))} --charts charts"


def results_of(path: Path, sessions: Collection[str]) -> tuple[list[str], str]:
    """Return the first results of these sessions' rows in `path`, as wrapped lines, and the next command, or ""."""
    from gpubench.analysis.compare import Question, compare_rows, load_rows
    from gpubench.cli.quick import SETUP, quick_lines
    from gpubench.show.terminal import cases_tables
    from gpubench.show.wrap import line_width, wrapped
    from gpubench.studies.answer import answer_to, in_units
    from gpubench.studies.cards.ranked_rates import reference_sentences
    from gpubench.suite.trial import TRAINED

    rows = load_rows([path])
    of_this_run = replace(rows, frame=rows.frame[rows.frame["session"].isin(sessions)])
    if not of_this_run.frame["status"].isin(TRAINED).any():
        nothing, reasons = ["Nothing was measured: the reason is above, and in each row."], of_this_run.frame["reason"]
        if len(reasons) and reasons.str.contains(r"UserError: |diverged: |give a smaller --batch|clock\.").all():
            return nothing, ""
        of_suite = reasons.str.contains(r"\(line \d+ of the suite") & ~reasons.str.contains("CUDA|cuDNN|HIP|NCCL")
        return nothing, f"GPUBENCH_TRACEBACK=1 gpubench {join(sys.argv[1:])}" if of_suite.any() else "gpubench doctor"
    lines, is_ranked = quick_lines(of_this_run.frame, path)
    is_whole = bool(lines) and len(of_this_run.frame[["suite", *SETUP]].drop_duplicates()) == 1
    following = "gpubench run --suite resnet --precision both"  # a first rate is followed by a comparison
    if is_whole and is_ranked:
        return lines, following
    answer = answer_to(compare_rows(of_this_run, Question()), of_this_run)
    results = [result for result in answer.results if not result.says_why]
    if not is_ranked:  # without results: published cards if there is a first rate, else a report
        alone = "gpubench cards RTX 4090 RTX 3090" if lines else f"gpubench report {quote(str(path))}"
        following = compare_command(path) if results else alone
    if is_whole:
        return lines, following
    sentences = [result.sentence for result in results[:MOST_RESULTS]]
    if not (results or lines):
        lines = ["", *cases_tables(in_units(answer), line_width())[0], ""]
        sentences = [answer.headline, *reference_sentences(of_this_run.frame)]
    return [line for sentence in sentences for line in wrapped(sentence)] + lines, following
