"""`gpubench submit`: checks CSV files before they are published."""

from pathlib import Path
from textwrap import TextWrapper
from typing import Annotated

import typer

from gpubench.printed import say
from gpubench.show.wrap import wrapped

LICENCE = "Rows that you send are published under CC0 1.0: free for everybody, for every use (results/LICENSE)."
WRAPPED = TextWrapper(80, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
EXAMPLES = "Example: `gpubench submit results/mine.csv --against results`; nothing is sent"


def submit(
    files: Annotated[list[Path], typer.Argument(help="CSV files of `gpubench run`.")],
    against: Annotated[
        Path | None, typer.Option(metavar="DIR", exists=True, file_okay=False, help="Published rows, to find copies.")
    ] = None,
) -> int:
    """Check files for a pull request to results/: what is missing, and which rows cannot be right.

    Rows of several files are also compared with each other. Exit code 4 if anything is missing. Sends nothing.
    """
    from gpubench.submit.check import reports

    code = 0
    for path, report in reports(files, [against] if against else []).items():
        verdict = "not yet" if report.missing else "ready for a pull request (CONTRIBUTING.md)"
        say(f"{path}: {verdict}")
        for line in [*report.missing, *(f"note: {note}" for note in report.notes)]:
            say(*WRAPPED.wrap(line))
        code = 4 if report.missing else code
    say(*wrapped(LICENCE))
    return code
