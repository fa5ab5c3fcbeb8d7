"""Tables of a site: cases with their rank, the ranking by published figures, and the rows and figures of a card.

`pages` calls it. No table has both rows and published figures.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpubench.show.html import Grid, HtmlCell, HtmlLine, cell_of
from gpubench.show.site.addresses import Addresses, figure_link, source_link
from gpubench.studies.cards.figures import Figure, Published
from gpubench.studies.cards.ranking import Ranking
from gpubench.studies.cards.ratio import SpeedRatio
from gpubench.studies.cases import batch_text, estimate, known
from gpubench.studies.ranked_cases import RankedCase, SiteRow
from gpubench.studies.section import Column, Value
from gpubench.studies.words import author, name, notes_of, without_author

LONGEST = 110
"""Maximum length of a recipe or a note, in characters; the suite's page and the rows have the whole text."""
IMPORTED = "imported"
"""Mark of a case that was published elsewhere and not measured with gpubench."""
CASES = (
    Column("rank", "count"),
    Column("card"),
    Column("seconds", "s", "lower"),
    Column("precision"),
    Column("samples/s", "samples/s", "higher"),
    Column("suite"),
    Column("model"),
    Column("batch"),
    Column("recipe", note=True),
    Column("runs", "count"),
    Column("source"),
    Column("notes", note=True),
)
ROWS = (
    Column("row"),
    Column("suite"),
    Column("model"),
    Column("precision"),
    Column("batch", "count"),
    Column("seconds", "s", "lower"),
    Column("samples/s", "samples/s", "higher"),
    Column("torch"),
    Column("status"),
    Column("source", note=True),
    Column("notes", note=True),
)
FIGURES = (
    Column("workload"),
    Column("figure", "x", "higher"),
    Column("unit"),
    Column("class"),
    Column("precision"),
    Column("batch"),
    Column("year"),
    Column("source"),
    Column("why it is not used", note=True),
)


def cases(ranked: Sequence[RankedCase], to: Addresses) -> Grid:
    """Return the table of all cases, with links from the seconds to the rows."""
    return _grid("cases", "One line per case", CASES, [_case(ranked_case, to) for ranked_case in ranked])


def _grid(name: str, caption: str, columns: Sequence[Column], lines: Sequence[HtmlLine]) -> Grid:
    """Return the table without the columns that are empty in all lines."""
    kept = [at for at in range(len(columns)) if any(line.cells[at].text for line in lines)]
    lines = [replace(line, cells=[line.cells[at] for at in kept]) for line in lines]
    return Grid(name, caption, [columns[at] for at in kept], lines)


def _case(ranked_case: RankedCase, to: Addresses) -> HtmlLine:
    """Return the line of a case."""
    group = ranked_case.group
    values: dict[str, Value] = {
        **{column: getattr(group, column) for column in ("precision", "suite", "model")},
        "card": without_author(group.label, group.source),
        "seconds": estimate(group),
        "batch": batch_text(group),
        "samples/s": known(group.samples_per_second),
        "recipe": name(ranked_case.recipe, LONGEST),
        "runs": group.trials or None,
        "source": author(group.source),
        "notes": name(notes_of(group), LONGEST),
    }
    links = {
        "card": to.card(ranked_case.card),
        "seconds": to.row(ranked_case.rows[0]) if ranked_case.rows else "",
        "suite": to.suite(group.suite),
        "source": source_link(group.source),
    }
    cells = _cells(CASES, values, links)
    bar = () if math.isnan(ranked_case.share) else (round(100 * ranked_case.share),)
    cells["rank"] = HtmlCell(f"{ranked_case.rank} of {ranked_case.ranked}" if ranked_case.rank else "")
    cells["card"] = replace(cells["card"], kind="name", beside=IMPORTED if group.source else "")
    cells["seconds"] = replace(cells["seconds"], bar=bar)
    return HtmlLine(
        list(cells.values()),
        filters={"suite": group.suite, "precision": group.precision, "card": ranked_case.card},
    )


def _cells(columns: Sequence[Column], values: Mapping[str, Value], links: Mapping[str, str]) -> dict[str, HtmlCell]:
    """Return a cell for each column by its name, empty where there is no value."""
    return {column.name: cell_of(values.get(column.name), column, links.get(column.name, "")) for column in columns}


def ranking(ranked: Ranking, to: Addresses) -> Grid:
    """Return the ranking of cards by published figures, with links to the figures."""
    columns = [Column("card"), *(Column(kind, "ratio", "higher") for kind in ranked.classes)]
    columns += [Column("figures", "count")]
    most = max((ratio.value for line in ranked.lines for ratio in line.ratios.values()), default=1.0)
    lines = []
    for line in ranked.lines:
        figures = to.card(line.card, "published")
        cells = [cell_of(line.card, columns[0], to.card(line.card))]
        for kind, column in zip(ranked.classes, columns[1:], strict=False):
            cells.append(_ratio(line.ratios[kind], column, figures, most))
        cells.append(cell_of(line.figures, columns[-1], figures))
        lines.append(HtmlLine(cells, filters={"card": line.card}))
    caption = f"Speed relative to {ranked.reference} by published figures, with the interval of 90% of workloads"
    return Grid("published", caption, columns, lines)


def _ratio(ratio: SpeedRatio, column: Column, href: str, most: float) -> HtmlCell:
    """Return the cell of a ratio, with a bar relative to the largest ratio `most`."""
    if ratio.low == ratio.high:  # the reference card itself
        return cell_of(ratio.value, column, href, bar=(round(100 * ratio.value / most),))
    ends = [min(100, round(100 * end / most)) for end in (ratio.value, ratio.low, ratio.high)]
    return cell_of(ratio, column, href, bar=tuple(ends))


def rows(measured: Iterable[SiteRow], to: Addresses) -> Grid:
    """Return the table of rows with their files and lines."""
    return _grid("rows", "One line per trial", ROWS, [_row(row, to) for row in measured])


def _row(row: SiteRow, to: Addresses) -> HtmlLine:
    """Return the line of a row."""
    facts, anchor, source = row.facts, to.anchor(row), str(row.facts["source"])
    values: dict[str, Value] = {
        **{column: str(facts[column]) for column in ("suite", "model", "precision", "torch", "status", "source")},
        "batch": known(facts["batch_size"]),
        "seconds": known(facts["seconds"]),
        "samples/s": known(facts["samples_per_second"]),
        "notes": "; ".join(filter(None, (str(facts["marks"]), str(facts["reason"])))),
    }
    cells = _cells(ROWS, values, {"source": source_link(source)})
    cells["row"] = HtmlCell(f"{row.file}, line {row.line}", kind="row", href=f"#{anchor}")
    return HtmlLine(list(cells.values()), id=anchor)


def figures(published: Published, card: str) -> Grid:
    """Return the published figures of a card with their sources, and why some are not used."""
    used = [(group.kind, figure, "") for group in published.groups if group.card == card for figure in group.figures]
    unused = [("", figure, reason) for figure, reason in published.left_out if figure.card == card]
    return _grid("figures", "One line per published figure", FIGURES, [_figure(*line) for line in [*used, *unused]])


def _figure(kind: str, figure: Figure, reason: str) -> HtmlLine:
    """Return the line of a published figure; `reason` is why it is not used."""
    values: dict[str, Value] = {
        **{column: getattr(figure, column) for column in ("workload", "figure", "unit", "precision", "batch")},
        "class": kind,
        "year": str(figure.year),
        "source": f"{figure.source}, line {figure.line}",
        "why it is not used": reason,
    }
    return HtmlLine(list(_cells(FIGURES, values, {"source": figure_link(figure)}).values()))
