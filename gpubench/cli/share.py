"""Rows to and from others and elsewhere: `gpubench export`, `site`, `submit` and `columns`."""

from pathlib import Path
from textwrap import TextWrapper
from typing import Annotated

import typer

from gpubench.cli import completion
from gpubench.cli.options import Files
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
SUBMIT_EXAMPLES = "Example: `gpubench submit results/mine.csv`; nothing is sent"


def submit(
    files: Annotated[list[Path], typer.Argument(help="CSV files of `gpubench run`.")],
) -> int:
    """Check files for a pull request to results/: what is missing, and what speaks against rows.

    Rows of files that are passed together are held against each other. Exit code 4 if anything is missing; sends
    nothing.
    """
    from gpubench.submit.check import reports

    code = 0
    for path, report in reports(files).items():
        found = report.missing
        verdict = "not yet" if found else "ready for a pull request (docs/contributing-results.md)"
        say(f"{path}: {verdict}")
        for line in [*found, *(f"note: {note}" for note in report.notes)]:
            say(*WRAPPED.wrap(line))
        code = 4 if found else code
    say(LICENCE)
    return code


COLUMNS_EXAMPLES = "Example: `gpubench columns`"


def columns() -> None:
    """Every column of the CSV and what it means, as Markdown."""
    from gpubench.rows.row import columns_markdown

    say(*columns_markdown().splitlines())
