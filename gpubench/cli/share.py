"""Rows to and from others and elsewhere: `gpubench export`, `import`, `site`, `submit`, `fleet` and `columns`."""

from pathlib import Path
from textwrap import TextWrapper
from typing import Annotated

import typer

from gpubench.cli import completion
from gpubench.cli.arguments import parse_processes
from gpubench.cli.options import Files
from gpubench.cli.run import run
from gpubench.errors import UserError
from gpubench.printed import say

EXPORT_EXAMPLES = """
Examples:

For Go's benchstat: `gpubench export results/*.csv --format benchstat --out all.txt`

An entry per full run: `gpubench export mine.csv --format dawnbench --out entries/`
"""


def export(
    files: Files,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="benchstat, pyperf, timm, mllog or dawnbench.",
            autocompletion=completion.one_of(*completion.EXPORTS),
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="File to write (dawnbench: folder); printed by default."),
    ] = None,
) -> None:
    """Write the ok rows in another tool's format."""
    from gpubench.interop import exports

    say(*exports.export(files, format_name, out), exact=out is None)


IMPORT_EXAMPLES = """
Examples:

timm's table: `gpubench import train.csv --format timm --card "RTX 3090" --precision fp16 --source URL --out timm.csv`

A DAWNBench entry: `gpubench import entry.json --format dawnbench --out dawnbench.csv`
"""


def import_(
    files: Annotated[list[Path], typer.Argument(help="Other people's files.")],
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="timm, lambda, dawnbench or notebooks.",
            autocompletion=completion.one_of(*completion.IMPORTS),
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="CSV to append the rows to.")],
    source: Annotated[str, typer.Option(metavar="TEXT", help="Where the figures come from, best with a commit.")] = "",
    card: Annotated[str, typer.Option(metavar="NAME", help="The card, where the files do not name it.")] = "",
    precision: Annotated[str, typer.Option(metavar="NAME", help="The precision, where the files do not name it.")] = "",
    data: Annotated[str, typer.Option(metavar="NAME", help="The dataset, where the files do not name it.")] = "",
    torch: Annotated[str, typer.Option(metavar="VERSION", help="The version of torch, where known.")] = "",
    params: Annotated[
        str, typer.Option(metavar="TEXT", help="What else belongs to the recipe: 'name=value name=value'.")
    ] = "",
    batches: Annotated[Path | None, typer.Option(metavar="FILE", help="Lambda's table of batch sizes.")] = None,
) -> None:
    """Append published figures of other tools as rows that keep their source and recipe."""
    from gpubench.interop.imports import Facts, import_files

    facts = Facts(source, card, precision, data, torch, params, batches)
    say(f"{out}: {import_files(files, format_name, facts, out)} row(s) added")


SITE_EXAMPLES = "Example: `gpubench site results -o site`, then open site/index.html"


def site(
    files: Files,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the pages go.")] = Path("site"),
) -> None:
    """A static site: findings, cards ranked by rows and by published figures, a page for each card and suite.

    It opens from disk, asks nothing of any network, and links each figure to its rows and their source.
    """
    from gpubench.commands.compare import write_site

    say(write_site(files, out))


LICENCE = "Rows that you send are published under CC0 1.0: free for everybody, for every use (results/LICENSE)."
WRAPPED = TextWrapper(80, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
SUBMIT_EXAMPLES = "Example: `gpubench submit results/mine.csv --against results`; nothing is sent"


def submit(
    files: Annotated[list[Path], typer.Argument(help="CSV files of `gpubench run`.")],
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", exists=True, file_okay=False, help="Folder of published rows: find copies of them."
        ),
    ] = None,
) -> int:
    """Check files for a pull request to results/: what is missing, and which rows cannot be right.

    Rows of files that are passed together are compared with each other. Exit code 4 if anything is missing; sends
    nothing.
    """
    from gpubench.submit.check import reports

    code = 0
    for path, report in reports(files, [against] if against else []).items():
        verdict = "not yet" if report.missing else "ready for a pull request (docs/contributing-results.md)"
        say(f"{path}: {verdict}")
        for line in [*report.missing, *(f"note: {note}" for note in report.notes)]:
            say(*WRAPPED.wrap(line))
        code = 4 if report.missing else code
    say(LICENCE)
    return code


FLEET_EXAMPLES = """
Example: `gpubench fleet --cards H100,L40S,RTX4090 --engine skypilot --max-cost 5 --max-hourly 4 -- --suite resnet`
"""
SET_BY_THE_FILES = ("out", "rendezvous", "slurm", "dry_run")
ONLY_HERE = ("data", "weights", "tensorboard")


def fleet(
    cards: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Cards joined by commas, as `sky gpus list` calls them; for k8s also values of the node label"
            " nvidia.com/gpu.product.",
        ),
    ],
    engine: Annotated[
        str,
        typer.Option(metavar="NAME", help="skypilot or k8s.", autocompletion=completion.one_of("skypilot", "k8s")),
    ],
    max_cost: Annotated[
        float, typer.Option(min=0.01, metavar="DOLLARS", help="Most that each kind of card may cost: sets its time.")
    ],
    max_hourly: Annotated[
        float,
        typer.Option(
            min=0.01,
            metavar="DOLLARS",
            help="Most that a machine may cost an hour. SkyPilot keeps to it; for k8s it is your word.",
        ),
    ],
    run_options: Annotated[
        list[str] | None, typer.Argument(metavar="-- OPTIONS", help="Options of `gpubench run`, after two dashes.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the files go.")] = Path("fleet"),
) -> None:
    """Files for SkyPilot or Kubernetes that run one benchmark on many cards, with a cap on cost, and the next steps.

    One task file for each card. Rents and starts nothing.
    """
    from gpubench.interop.fleet import Fleet, write

    words = tuple(run_options or ())
    gpus, nodes = _machines_of(words)
    names = tuple(card.strip() for card in cards.split(",") if card.strip())
    say(*write(Fleet(engine, names, words, gpus, nodes, max_cost, max_hourly), out))


def _machines_of(words: tuple[str, ...]) -> tuple[int, int]:
    """Cards of a machine, and machines, that a run with these options needs; raises UserError, and as `run` does."""
    from gpubench.suite.files import built_in_names

    parser = typer.Typer()
    parser.command()(run)
    asked = typer.main.get_command(parser).make_context("gpubench run", list(words))
    given = {name for name in asked.params if getattr(asked.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    for name in (*SET_BY_THE_FILES, *ONLY_HERE):
        if name in given:
            reason = "the files set it" if name in SET_BY_THE_FILES else "the rented machine does not have that folder"
            raise UserError(f"--{name.replace('_', '-')} cannot be given after --: {reason}")
    for suite in asked.params["suite"] or ():
        if suite not in built_in_names():
            raise UserError(f"--suite {suite}: a rented machine has {', '.join(built_in_names())}")
    return max(parse_processes(asked.params["processes"])), asked.params["nodes"]


COLUMNS_EXAMPLES = "Example: `gpubench columns`"


def columns() -> None:
    """Every column of the CSV and what it means, as Markdown."""
    from gpubench.rows.row import columns_markdown

    say(*columns_markdown().splitlines())
