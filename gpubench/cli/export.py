"""`gpubench export`: rows in the format of another tool."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli.options import Files, examples
from gpubench.printed import say

EXAMPLES = examples(
    "For Go's benchstat: `gpubench export results/*.csv --format benchstat --out all.txt`",
    "One entry per full run: `gpubench export mine.csv --format dawnbench --out entries/`",
)


def export(
    files: Files,
    format_name: Annotated[str, typer.Option("--format", metavar="NAME", help="benchstat or dawnbench.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="File to write (dawnbench: folder); default the screen."),
    ] = None,
) -> None:
    """Write the rows with status ok in another tool's format."""
    from gpubench.show import exports

    say(*exports.export(files, format_name, out), exact=out is None)
