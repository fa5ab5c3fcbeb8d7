"""`gpubench compare` and `gpubench report`: their options, as a question and the shape of its answer."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli import completion
from gpubench.cli.arguments import parse_share
from gpubench.cli.options import (
    DRAWN,
    FLAG,
    MODEL,
    SHOWN,
    AllowMismatch,
    Baseline,
    By,
    Files,
    Format,
    MetricName,
    Price,
    Theme,
    Where,
)
from gpubench.errors import UserError
from gpubench.printed import say

COMPARE_EXAMPLES = """
Examples:

Every card and precision, and what the ratios are worth: `gpubench compare results/*.csv`

Also as pictures: `gpubench compare mine.csv theirs.csv --by card --baseline "1080 Ti" --charts charts/`

The best card per dollar: `gpubench compare results/*.csv --metric value --price prices.toml`

As a gate, by its exit code: `gpubench compare *.csv --by torch --baseline 2.14 --fail-on-slower 5%`
"""


def compare(
    files: Files,
    by: By = None,
    baseline: Baseline = None,
    metric: MetricName = "seconds",
    price: Price = None,
    where: Where = None,
    table: Format = "terminal",
    every: Annotated[
        bool,
        typer.Option(
            "--all", metavar=FLAG, help="Every case and comparison, not only what was found.", rich_help_panel=SHOWN
        ),
    ] = False,
    only: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="A suite, a study (pairs, roofline ...) or part of a card's name: this alone, with its tables.",
            rich_help_panel=SHOWN,
        ),
    ] = "",
    charts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for charts of the first findings.", rich_help_panel=DRAWN)
    ] = None,
    all_charts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for these and every other chart.", rich_help_panel=DRAWN)
    ] = None,
    chart_format: Annotated[
        str,
        typer.Option(metavar="NAMES", help="png, svg and pdf, joined by commas.", rich_help_panel=DRAWN),
    ] = "png,svg",
    theme: Theme = "light",
    unit: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="seconds, minutes or hours on the charts; by default what reads best.",
            autocompletion=completion.one_of("seconds", "minutes", "hours"),
            rich_help_panel=DRAWN,
        ),
    ] = "",
    allow_mismatch: AllowMismatch = False,
    fail_on_slower: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="5%: exit 1 if a case is surely this much slower than --baseline, 0 if surely none is.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="With --beta: what a message takes.", rich_help_panel=MODEL),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="With --alpha: what a byte takes.", rich_help_panel=MODEL),
    ] = None,
    scale_to: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="With --alpha and --beta: processes that the model goes to (2048, say).",
            rich_help_panel=MODEL,
        ),
    ] = None,
) -> int:
    """Compare cards, precisions, or anything else the rows differ in."""
    from gpubench.analysis.compare import Question
    from gpubench.commands.compare import Shape, compare_files

    if (alpha is None) != (beta is None) or (scale_to is not None and alpha is None):
        raise UserError(
            "--alpha, --beta and --scale-to go together: the model needs both to go beyond what was measured"
        )
    kinds = tuple(kind.strip() for kind in chart_format.split(","))
    if not kinds or not set(kinds) <= {"png", "svg", "pdf"}:
        raise UserError(f"--chart-format {chart_format}: there is png, svg and pdf")
    if theme not in {"light", "dark"}:
        raise UserError(f"--theme {theme}: there is light and dark")
    if unit not in {"", "seconds", "minutes", "hours"}:
        raise UserError(f"--unit {unit}: there is seconds, minutes and hours")
    return compare_files(
        files,
        Question(by, baseline, allow_mismatch, metric, price, tuple(where or ())),
        Shape(
            table=table,
            every=every,
            only=only,
            charts=all_charts or charts,
            every_chart=all_charts is not None,
            chart_kinds=kinds,
            theme=theme,
            unit=unit,
            alpha_beta=None if alpha is None or beta is None else (alpha, beta),
            scale_to=scale_to,
            fail_on_slower=parse_share("--fail-on-slower", fail_on_slower) if fail_on_slower else None,
        ),
    )


REPORT_EXAMPLES = "Example: `gpubench report results/*.csv -o report.html`"


def report(
    files: Files,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The HTML file to write; without, a new report.html."),
    ] = None,
    by: By = None,
    baseline: Baseline = None,
    metric: MetricName = "seconds",
    price: Price = None,
    where: Where = None,
    allow_mismatch: AllowMismatch = False,
) -> None:
    """One HTML file that opens offline: tables, charts, the evidence of each verdict, and the rows to download."""
    from gpubench.analysis.compare import Question
    from gpubench.commands.compare import write_report

    question = Question(by, baseline, allow_mismatch, metric, price, tuple(where or ()))
    say(write_report(files, question, out))
