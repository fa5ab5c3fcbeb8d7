"""`gpubench cards`: ranks cards by published training speeds, compares two of them, and lists the sources."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.cli.arguments import check_choice
from gpubench.cli.options import DRAWN, FLAG, FORMATS, SHOWN, SIDES, THEMES, Format, Price, Theme
from gpubench.errors import UserError
from gpubench.printed import say

if TYPE_CHECKING:
    from gpubench.studies.cards.figures import Published
    from gpubench.studies.section import Answer, Table

EXAMPLES = """
Examples:

Rank every card that others measured: `gpubench cards`

Compare two cards: `gpubench cards "RTX 4090" "RTX 3090"`

The same, for transformers: `gpubench cards "RTX 4090" "RTX 3090" --family matmul`

Per dollar: `gpubench cards --relative-to "RTX 3090" --price prices.toml`

Who published the figures: `gpubench cards --sources`
"""


def cards(
    card: Annotated[
        list[str] | None, typer.Argument(help="One card: all its figures. Two: the first compared with the second.")
    ] = None,
    relative_to: Annotated[
        str, typer.Option(metavar="CARD", help="The card with speed 1; default A100 SXM.", rich_help_panel=SIDES)
    ] = "",
    precision: Annotated[
        str,
        typer.Option(
            metavar="CLASS",
            help="half, single (FP32, or TF32 where the card has it) or strict (FP32 without TF32); default half and"
            " single.",
            rich_help_panel=SIDES,
        ),
    ] = "",
    family: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Only convolution, or only matmul (transformers, recurrent nets); default both, with equal weight.",
            rich_help_panel=SIDES,
        ),
    ] = "",
    price: Price = None,
    every: Annotated[
        bool, typer.Option("--all", metavar=FLAG, help="Every card, not only the best known.", rich_help_panel=SHOWN)
    ] = False,
    sources: Annotated[
        bool,
        typer.Option(
            "--sources", metavar=FLAG, help="Who published the figures, and what was left out.", rich_help_panel=SHOWN
        ),
    ] = False,
    source: Annotated[
        str, typer.Option(metavar="TEXT", help="The figures of one source, card by card.", rich_help_panel=SHOWN)
    ] = "",
    table: Format = "terminal",
    charts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the chart.", rich_help_panel=DRAWN)
    ] = None,
    theme: Theme = "light",
) -> None:
    """Rank cards by published speeds, with intervals, or compare two of them. Measures nothing."""
    from gpubench.show.terminal import WIDTH, table_lines
    from gpubench.studies.cards import REFERENCE, options, ranking, versus
    from gpubench.studies.cards.figures import CLASSES, published
    from gpubench.studies.cards.model import fitted_model

    check_choice("--theme", theme, THEMES)
    check_choice("--format", table, FORMATS)
    if sum((bool(card), sources, bool(source))) > 1:
        raise UserError("give cards, --sources or --source, only one of the three")
    if (sources or source) and (precision or family or price or every or charts or relative_to):
        raise UserError("--sources and --source take no option but --format")
    figures = published()
    if sources or source:
        answer = _figures_of(figures, source) if source else _all_sources(figures)
        return _print(answer, table, answer.sections[0].tables)
    model = fitted_model()
    names = sorted({group.card for group in figures.groups})
    chosen = [options.find_card(text, names) for text in card or ()]
    if len(chosen) > 2 or len(chosen) != len(set(chosen)):
        raise UserError("give no card for the ranking, one for its figures, or two different ones to compare them")
    if chosen and charts:
        raise UserError("--charts: only the ranking has a chart; leave out the cards")
    if len(chosen) == 2 and relative_to:
        raise UserError(f"--relative-to {relative_to}: the first card is relative to the second; leave it out")
    if len(chosen) == 1 and price:
        raise UserError("--price: for the ranking, or for two cards")
    classes, families = options.classes_of(precision), options.families_of(family)
    reference = options.find_card(relative_to or REFERENCE, names)
    dollars = _prices(price, names) if price else None
    if len(chosen) == 2:
        answer = versus.answer(model, figures, (chosen[0], chosen[1]), classes, families, dollars)
        tables = [versus.brief(details, every) for details in answer.sections[0].tables[1:]]
    elif chosen:
        kinds = [kind for kind in (classes if precision else CLASSES) if model.has_figures(chosen[0], kind, families)]
        if not kinds:
            raise UserError(f"{chosen[0]} has no such figure; all of its figures: gpubench cards {chosen[0]!r}")
        answer = versus.one_card(figures, chosen[0], ranking.rank(model, reference, kinds, families))
        tables = list(answer.sections[0].tables)
    else:
        ranked = ranking.rank(model, reference, classes, families, dollars)
        lines, drawn = (
            ranked.lines if every else ranked.best_known(most) for most in (ranking.MOST_LINES, ranking.MOST_DRAWN)
        )
        answer = ranking.answer(ranked, figures, drawn)
        tables = [ranking.short_table(ranked, lines)]
        for name in ("src", "W"):
            if len(table_lines(tables[0], WIDTH)) > len(lines) + 2:  # too wide, so it was split in two
                tables = [ranking.without(tables[0], name)]
    _print(answer, table, tables, notes_first=bool(chosen))
    if charts:
        from gpubench.show.charts import draw

        for path in draw(answer, charts, every=True, kinds=("png", "svg"), theme=theme):
            say(str(path), err=table != "terminal")


def _figures_of(figures: "Published", text: str) -> "Answer":
    """Return the figures of the source whose name contains `text`. Raises UserError if that is not exactly one."""
    from gpubench.studies.cards import versus
    from gpubench.studies.words import listed

    names = sorted({group.source for group in figures.groups if text.lower() in group.source.lower()})
    if len(names) != 1:
        raise UserError(f"--source {text}: {listed(names) if names else 'no such source'} (--sources lists them)")
    return versus.by_source(figures, names[0])


def _all_sources(figures: "Published") -> "Answer":
    """Return every source with how many of its figures are used, and why the others are not."""
    from gpubench.studies.cards import ranking
    from gpubench.studies.cards.figures import sources
    from gpubench.studies.section import Column, Table
    from gpubench.studies.words import listed

    columns = (Column("source"), Column("commit"), *(Column(name, "count") for name in ("cards", "used", "left out")))
    lines = [
        (source, commit, len({figure.card for figure in used}), len(used), len(unused))
        for source, commit, used, unused in sources(figures)
    ]
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for figure, reason in figures.left_out:
        reasons[reason][figure.source] += 1
    left_out = [
        f"{sum(counts.values())}: {reason} ({listed(f'{count} of {source}' for source, count in counts.items())})"
        for reason, counts in sorted(reasons.items())
    ]
    headline = f"{len(figures.figures):,} published training speeds, of which {len(figures.used):,} are used."
    return ranking.answer_with(headline, "sources", (Table("sources", columns, tuple(lines)),), left_out=left_out)


def _prices(path: Path, names: Sequence[str]) -> dict[str, float]:
    """Return dollars per hour by card, and print which entries match no card. Raises UserError."""
    from gpubench.analysis.metrics import read_prices
    from gpubench.studies.cards import options
    from gpubench.studies.words import listed

    dollars, unmatched = options.priced(read_prices(path), names)
    if unmatched:
        say(f"--price: {listed(unmatched)}: no such card, or several (gpubench cards --all has their names)", err=True)
    return dollars


def _print(answer: "Answer", format_name: str, tables: Sequence["Table"], *, notes_first: bool = False) -> None:
    """Print the answer in a format; for `terminal` these tables instead of the answer's."""
    from gpubench.show.terminal import WIDTH, table_lines, wrapped
    from gpubench.show.text import rendered

    if format_name != "terminal":
        say(*rendered(answer, format_name).removesuffix("\n").split("\n"))
        return
    (section,) = answer.sections
    notes = [line for note in section.notes for line in wrapped(note)]
    say(*wrapped(answer.headline), *(notes if notes_first else ()))
    for table in tables:
        say("", *table_lines(table, WIDTH))
    if notes and not notes_first:
        say("", *notes)
    if section.left_out:
        say("", "Left out:")
        for text in section.left_out:
            first, *more = wrapped(text, WIDTH - 2)
            say(f"- {first}", *(f"  {line}" for line in more))
