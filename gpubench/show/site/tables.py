"""Tables of a site: cases with their rank, the ranking by published figures, and the rows and figures of a card.

`pages` calls it. No table has both rows and published figures.
"""

import math
from collections.abc import Iterable, Sequence

from gpubench.show.html import Grid, HtmlCell, HtmlLine, cell_of
from gpubench.show.site.addresses import Addresses, figure_link, source_link
from gpubench.studies.cards.figures import Figure, Published
from gpubench.studies.cards.ranking import Ranking
from gpubench.studies.cards.ratio import SpeedRatio
from gpubench.studies.cases import batch_text, estimate, known
from gpubench.studies.ranked_cases import RankedCase, SiteRow
from gpubench.studies.section import Column
from gpubench.studies.words import author, name, notes_of, without_author

LONGEST = 110
"""Maximum length of a recipe or a note, in characters; the suite's page and the rows have the whole text."""
IMPORTED = "imported"
"""Mark of a case that was published elsewhere and not measured with gpubench."""
CARD, SUITE, MODEL, PRECISION = map(Column, ("card", "suite", "model", "precision"))
SECONDS, RATE = Column("seconds", "s", "lower"), Column("samples/s", "samples/s", "higher")
NOTES = Column("notes", note=True)


def cases(ranked: Sequence[RankedCase], to: Addresses) -> Grid:
    """Return the table of all cases, with links from the seconds to the rows."""
    return Grid.of("cases", "One line per case", [_case(ranked_case, to) for ranked_case in ranked])


def _case(ranked_case: RankedCase, to: Addresses) -> HtmlLine:
    """Return the line of a case."""
    group = ranked_case.group
    card = without_author(group.label, group.source)
    bar = () if math.isnan(ranked_case.share) else (round(100 * ranked_case.share),)
    rank = f"{ranked_case.rank} of {ranked_case.ranked}" if ranked_case.rank else ""
    rows_of_case = to.row(ranked_case.rows[0]) if ranked_case.rows else ""
    cells = [
        HtmlCell(Column("rank", "count"), rank),
        cell_of(card, CARD, to.card(ranked_case.card), kind="name", beside=IMPORTED if group.source else ""),
        cell_of(estimate(group), SECONDS, rows_of_case, bar=bar),
        cell_of(group.precision, PRECISION),
        cell_of(known(group.samples_per_second), RATE),
        cell_of(group.suite, SUITE, to.suite(group.suite)),
        cell_of(group.model, MODEL),
        cell_of(batch_text(group), Column("batch")),
        cell_of(name(ranked_case.recipe, LONGEST), Column("recipe", note=True)),
        cell_of(group.trials or None, Column("runs", "count")),
        cell_of(author(group.source), Column("source"), source_link(group.source)),
        cell_of(name(notes_of(group), LONGEST), NOTES),
    ]
    return HtmlLine(cells, filters={"suite": group.suite, "precision": group.precision, "card": ranked_case.card})


def ranking(ranked: Ranking, to: Addresses) -> Grid:
    """Return the ranking of cards by published figures, with links to the figures."""
    most = max((ratio.value for line in ranked.lines for ratio in line.ratios.values()), default=1.0)
    lines = []
    for line in ranked.lines:
        figures = to.card(line.card, "published")
        cells = [cell_of(line.card, CARD, to.card(line.card))]
        cells += [_ratio(line.ratios[kind], Column(kind, "ratio", "higher"), figures, most) for kind in ranked.classes]
        cells.append(cell_of(line.figures, Column("figures", "count"), figures))
        lines.append(HtmlLine(cells, filters={"card": line.card}))
    caption = f"Speed relative to {ranked.reference} by published figures, with the interval of 90% of workloads"
    return Grid("published", caption, lines)


def _ratio(ratio: SpeedRatio, column: Column, href: str, most: float) -> HtmlCell:
    """Return the cell of a ratio, with a bar relative to the largest ratio `most`."""
    if ratio.low == ratio.high:  # the reference card itself
        return cell_of(ratio.value, column, href, bar=(round(100 * ratio.value / most),))
    ends = [min(100, round(100 * end / most)) for end in (ratio.value, ratio.low, ratio.high)]
    return cell_of(ratio, column, href, bar=tuple(ends))


def rows(measured: Iterable[SiteRow], to: Addresses) -> Grid:
    """Return the table of rows with their files and lines."""
    return Grid.of("rows", "One line per trial", [_row(row, to) for row in measured])


def _row(row: SiteRow, to: Addresses) -> HtmlLine:
    """Return the line of a row."""
    anchor, source = to.anchor(row), str(row.facts["source"])
    texts = {column: str(text) for column, text in row.facts.items()}
    cells = [
        HtmlCell(Column("row"), f"{row.file}, line {row.line}", kind="row", href=f"#{anchor}"),
        *(cell_of(texts[column.name], column) for column in (SUITE, MODEL, PRECISION)),
        cell_of(known(row.facts["batch_size"]), Column("batch", "count")),
        cell_of(known(row.facts["seconds"]), SECONDS),
        cell_of(known(row.facts["samples_per_second"]), RATE),
        *(cell_of(texts[column], Column(column)) for column in ("torch", "status")),
        cell_of(source, Column("source", note=True), source_link(source)),
        cell_of("; ".join(filter(None, (texts["marks"], texts["reason"]))), NOTES),
    ]
    return HtmlLine(cells, id=anchor)


def figures(published: Published, card: str) -> Grid:
    """Return the published figures of a card with their sources, and why some are not used."""
    used = [(group.kind, figure, "") for group in published.groups if group.card == card for figure in group.figures]
    unused = [("", figure, reason) for figure, reason in published.left_out if figure.card == card]
    return Grid.of("figures", "One line per published figure", [_figure(*line) for line in [*used, *unused]])


def _figure(kind: str, figure: Figure, reason: str) -> HtmlLine:
    """Return the line of a published figure; `reason` is why it is not used."""
    cells = [
        cell_of(figure.workload, Column("workload")),
        cell_of(figure.figure, Column("figure", "x", "higher")),
        cell_of(figure.unit, Column("unit")),
        cell_of(kind, Column("class")),
        cell_of(figure.precision, PRECISION),
        cell_of(figure.batch, Column("batch")),
        cell_of(str(figure.year), Column("year")),
        cell_of(f"{figure.source}, line {figure.line}", Column("source"), figure_link(figure)),
        cell_of(reason, Column("why it is not used", note=True)),
    ]
    return HtmlLine(cells)
