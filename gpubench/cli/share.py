"""Rows for others: the options of `gpubench export`, `site`, `submit` and `columns`."""

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
        verdict = "not yet" if report.missing else "ready for a pull request (CONTRIBUTING.md)"
        say(f"{path}: {verdict}")
        for line in [*report.missing, *(f"note: {note}" for note in report.notes)]:
            say(*WRAPPED.wrap(line))
        code = 4 if report.missing else code
    say(LICENCE)
    return code


COLUMNS_EXAMPLES = "Example: `gpubench columns`"


def columns() -> None:
    """Every column of the CSV and what it means, as Markdown."""
    from gpubench.rows.markdown import columns_markdown

    say(*columns_markdown().splitlines())
