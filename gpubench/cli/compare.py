"""`gpubench compare`: compares the rows of CSV files, on the screen, as Markdown, CSV or JSON, and in charts."""

from pathlib import Path
from typing import Annotated

from gpubench.cli.options import (
    FLAG,
    FORMATS,
    THEMES,
    Baseline,
    By,
    Files,
    Format,
    MetricName,
    Price,
    Theme,
    Where,
    chart_option,
    check_choice,
    examples,
    parse_share,
    shown_option,
)
from gpubench.errors import UserError
from gpubench.printed import say

EXAMPLES = examples(
    "Every card and precision: `gpubench compare results/*.csv`",
    'Also as charts: `gpubench compare mine.csv theirs.csv --by card --baseline "1080 Ti" --charts charts/`',
    "The best card per dollar: `gpubench compare results/*.csv --metric value --price prices.toml`",
    "As a test in CI, by its exit code: `gpubench compare *.csv --by torch --baseline 2.14 --fail-on-slower 5%`",
)
NOTHING_COMPARABLE = 3
"""Exit code."""
EXIT_CODES = (
    "exit 1 if a case is over 5% slower, 0 if none is, 3 if unclear, 4 for failed trials, missed goals, bad files"
)


def compare(
    files: Files,
    by: By = None,
    baseline: Baseline = None,
    metric: MetricName = "seconds",
    price: Price = None,
    where: Where = None,
    table: Format = "terminal",
    every: Annotated[
        bool, shown_option("--all", metavar=FLAG, help="Every case and comparison, not only the main results.")
    ] = False,
    only: Annotated[
        str, shown_option(metavar="TEXT", help="Only this suite, study (roofline ...) or card; --all adds each trial.")
    ] = "",
    charts: Annotated[
        Path | None, chart_option(metavar="DIR", help="Folder for charts of the main results; with --all: every chart.")
    ] = None,
    theme: Theme = "light",
    fail_on_slower: Annotated[str | None, shown_option(metavar="SHARE", help=f"5%: {EXIT_CODES}.")] = None,
) -> int:
    """Compare cards, precisions, or anything else in which the rows differ."""
    from gpubench.analysis.compare import Question, compare_rows, load_rows
    from gpubench.analysis.gate import gate
    from gpubench.analysis.metrics import metric_named
    from gpubench.show.formats import rendered
    from gpubench.show.terminal import everything, screen
    from gpubench.studies import answer as answers

    check_choice("--theme", theme, THEMES)
    check_choice("--format", table, FORMATS)
    limit = parse_share("--fail-on-slower", fail_on_slower) if fail_on_slower is not None else None
    if limit and baseline is None:
        raise UserError("--fail-on-slower needs --baseline (and --by)")
    if limit and only:
        raise UserError("--fail-on-slower judges every case: choose rows with --where, not with --only")
    if limit and metric_named(metric).by_loss:
        raise UserError("--fail-on-slower cannot judge accuracy")
    loaded = load_rows(files, keep=charts is not None)
    compared = compare_rows(loaded, Question(by, baseline, metric, price, tuple(where or ())))
    answer = answers.answer_to(compared, loaded, files=answers.count_files(files))
    answer = answers.only(answer, only) if only else answer
    say(*answer.problems, err=True)
    read = answers.in_units(answer)
    if table == "terminal":
        in_full = every or bool(only)
        say(*screen(read, in_full=in_full))
        say(*everything(read, every_table=every) if in_full else ())
    else:
        say(*rendered(read if table == "markdown" else answer, table).removesuffix("\n").split("\n"))
    if charts is not None:
        from gpubench.show.charts import draw

        say(*draw(answer, charts, every=every, theme=theme), err=table != "terminal")
    if limit:
        code, lines = gate(compared, limit)
        say(*lines, err=True)
        return code
    by_study = only.lower() in answers.STUDIES
    return 0 if any(by_study or not result.says_why for result in answer.results) else NOTHING_COMPARABLE
