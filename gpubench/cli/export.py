"""`gpubench export`: complete trainings as entries of DAWNBench."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli.options import Files, examples
from gpubench.printed import say

EXAMPLES = examples("One entry per full run: `gpubench export mine.csv --out entries/`")


def export(
    files: Files, out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the entries.")]
) -> None:
    """Write a JSON and a TSV for each full run with an accuracy, as DAWNBench takes them."""
    from gpubench.show import exports

    say(*exports.export(files, out))
