"""`gpubench report`: the comparison of some rows as one HTML file."""

from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli.options import Baseline, By, Files, MetricName, Price, Where
from gpubench.printed import say

EXAMPLES = "Example: `gpubench report results/*.csv -o report.html`"


def report(
    files: Files,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="HTML file to write; default a new report.html.")
    ] = None,
    by: By = None,
    baseline: Baseline = None,
    metric: MetricName = "seconds",
    price: Price = None,
    where: Where = None,
) -> None:
    """Write one HTML file that opens offline: tables, charts, the trials behind each verdict, and the rows."""
    from gpubench.analysis.compare import Question
    from gpubench.show.page import write
    from gpubench.studies.answer import answer

    question = Question(by, baseline, metric, price, tuple(where or ()))
    say(write(answer(files, question, keep=True), out or _unused(Path("report.html"))))


def _unused(path: Path) -> Path:
    """Return the path, or if it exists the first of `report-2.html`, `report-3.html` ... that does not."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return path if not path.exists() else next(other for other in numbered if not other.exists())
