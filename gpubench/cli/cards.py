"""`gpubench cards`: ranks cards by published training speeds, compares some of them, and lists the sources."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.cli.options import (
    FLAG,
    FORMATS,
    THEMES,
    Format,
    Price,
    Theme,
    chart_option,
    check_choice,
    examples,
    shown_option,
    side_option,
)
from gpubench.errors import UserError
from gpubench.printed import say
from gpubench.show.wrap import indented, line_width, wrapped

if TYPE_CHECKING:
    from gpubench.studies.section import Answer, Table

EXAMPLES = examples(
    "Rank the best-known cards: `gpubench cards`",
    "Compare two cards: `gpubench cards RTX 4090 RTX 3090`",
    "Several cards, relative to the last one: `gpubench cards H100 SXM L40S RTX 4090`",
    'Per dollar: `gpubench cards --relative-to "RTX 3090" --price prices.toml`',
    "Who published the figures: `gpubench cards --sources`",
)


def cards(
    card: Annotated[
        list[str] | None, typer.Argument(help="One card: its figures. Several: their speeds relative to the last one.")
    ] = None,
    relative_to: Annotated[str, side_option(metavar="CARD", help="The card that counts as 1; default A100 SXM.")] = "",
    precision: Annotated[
        str, side_option(metavar="CLASS", help="One of half, fp32 (with TF32), strict (no TF32); default several.")
    ] = "",
    price: Price = None,
    every: Annotated[
        bool, shown_option("--all", metavar=FLAG, help="Every card, or every figure of one card.")
    ] = False,
    sources: Annotated[
        bool, shown_option("--sources", metavar=FLAG, help="Who published the figures, and what was left out.")
    ] = False,
    table: Format = "terminal",
    charts: Annotated[Path | None, chart_option(metavar="DIR", help="Folder for the chart.")] = None,
    theme: Theme = "light",
) -> None:
    """Rank cards by published speeds, with intervals, or compare some of them. Measures nothing."""
    from gpubench.studies.cards import REFERENCE, options, ranking, versus
    from gpubench.studies.cards.figures import CLASSES, data_sheets

    check_choice("--theme", theme, THEMES)
    check_choice("--precision", precision or "half", tuple(CLASSES))
    check_choice("--format", table, FORMATS)
    if sources and (card or precision or price or every or charts or relative_to):
        raise UserError("--sources takes no card and no option but --format")
    if sources:
        answer = _all_sources()
        return _print(answer, table, answer.sections[0].tables)
    names = list(data_sheets())
    chosen = options.cards_in(card or (), names)
    if twice := [name for name in chosen if chosen.count(name) > 1]:
        raise UserError(f"{twice[0]} is named twice; name different cards to compare them")
    if len(chosen) > 1 and relative_to:
        raise UserError(f"--relative-to {relative_to}: the last card is the reference; leave out --relative-to")
    if len(chosen) == 1 and (charts or price):
        raise UserError(f"{'--charts' if charts else '--price'}: only for the ranking, or for two cards or more")
    classes = (precision,) if precision else options.DEFAULT_CLASSES
    reference = options.find_card(relative_to or REFERENCE, names)
    dollars = _prices(price, names) if price else None
    if len(chosen) == 2:
        answer = versus.answer((chosen[0], chosen[1]), classes, dollars)
    elif len(chosen) == 1:
        answer = versus.one_card(chosen[0], reference, classes if precision else tuple(CLASSES))
    else:
        ranked = ranking.rank(chosen[-1] if chosen else reference, classes, dollars)
        ranked = ranked.of(chosen) if chosen else ranked
        lines = ranked.lines if chosen or every or table != "terminal" else ranked.well_known(ranking.MOST_LISTED)
        answer = ranking.answer(ranked, lines, are_chosen=bool(chosen))
    tables = answer.sections[0].tables
    if len(chosen) == 2:  # the ratios are in the headline and the notes
        tables = tables[1:] if every else tuple(map(versus.brief, tables[1:]))
    is_brief = len(chosen) == 1 and not every and bool(tables)
    _print(answer, table, tables[:1] if is_brief else tables, notes_first=0 < len(chosen) < 3, left_out=not is_brief)
    if table == "terminal" and not chosen and not every:
        say(*wrapped("All cards: --all. Two: gpubench cards RTX 4090 RTX 3090. Who published: --sources."))
    if table == "terminal" and is_brief:
        say("Every figure with its source: --all")
    if charts:
        from gpubench.show.charts import draw

        say(*draw(answer, charts, every=True, theme=theme), err=table != "terminal")


def _all_sources() -> "Answer":
    """Return every source with how many of its figures are used, and why the others are not."""
    from gpubench.studies.cards import ranking
    from gpubench.studies.cards.figures import published, sources
    from gpubench.studies.section import Column, Table
    from gpubench.studies.words import listed

    figures = published()
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


def _prices(path: Path, cards: Sequence[str]) -> dict[str, float]:
    """Return dollars per hour by card. Raises UserError if the file names none of the cards."""
    from gpubench.analysis.metrics import price_of, read_prices
    from gpubench.studies.cards.figures import short_name

    prices = {short_name(name): hourly for name, hourly in read_prices(path).items()}
    dollars = {card: hourly for card in cards if (hourly := price_of(card, prices)) > 0}
    if not dollars:
        raise UserError(f"--price {path}: it names no card that `gpubench cards --all` lists")
    return dollars


def _print(
    answer: "Answer", format_name: str, tables: Sequence["Table"], *, notes_first: bool = False, left_out: bool = True
) -> None:
    """Print the answer in a format. On the terminal, `tables` are printed instead of the answer's tables."""
    from gpubench.show.formats import rendered
    from gpubench.show.terminal import table_lines

    if format_name != "terminal":
        say(*rendered(answer, format_name).removesuffix("\n").split("\n"))
        return
    (section,) = answer.sections
    notes = [line for note in section.notes for line in wrapped(note)]
    say(*wrapped(answer.headline), *(notes if notes_first else ()))
    for table in tables:
        say("", *table_lines(table, line_width()))
    if notes and not notes_first:
        say("", *notes)
    if section.left_out and left_out:
        say("", "Left out:")
        for text in section.left_out:
            say(*indented("- ", text))
