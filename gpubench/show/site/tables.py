"""The tables of a site: every case in its place, published speeds, the rows and the published figures of a card.

Rows and published figures never share a table.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpubench.show.html import Cell, Grid, Line, cell_of, heads_of
from gpubench.show.site.addresses import Addresses, figure_link, source_link
from gpubench.studies.cards.figures import Figure, Published
from gpubench.studies.cards.model import Ratio
from gpubench.studies.cards.ranking import HEADS, Ranking
from gpubench.studies.section import Column, Estimate, Value
from gpubench.studies.standings.standings import Row, Standing
from gpubench.studies.words import author, name

LONGEST = 110
"""Characters of a recipe or a note beside a case; the suite's page and the rows have all of it."""
CASES = (
    Column("place", "count"),
    Column("card"),
    Column("seconds", "s", "lower"),
    Column("precision"),
    Column("samples/s", "samples/s", "higher"),
    Column("suite"),
    Column("model"),
    Column("batch"),
    Column("recipe", note=True),
    Column("runs", "count"),
    Column("machines"),
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
    Column("class"),
    Column("precision"),
    Column("batch"),
    Column("figure", "x", "higher"),
    Column("unit"),
    Column("year"),
    Column("source"),
    Column("why it is not used", note=True),
)


def cases(standings: Sequence[Standing], to: Addresses) -> Grid:
    """Every case; its figure leads to its rows."""
    return Grid("cases", heads_of(CASES), [_case(each, to) for each in standings])


def _case(each: Standing, to: Addresses) -> Line:
    row = to.row(each.rows[0]) if each.rows else ""
    bar = () if math.isnan(each.share) else (round(100 * each.share),)
    _, card, seconds, precision, rate, suite, model, batch, recipe, runs, machines, source, notes = CASES
    agree = cell_of(each.machines, machines)
    cells = [
        Cell(f"{each.place} of {each.of}" if each.place else "", value=str(each.place or ""), kind="number"),
        replace(cell_of(each.label, card, to.card(each.card)), kind="name"),
        cell_of(each.seconds, seconds, row, bar=bar),
        cell_of(each.precision, precision),
        cell_of(each.rate, rate),
        cell_of(each.suite, suite, to.suite(each.suite)),
        cell_of(each.model, model),
        cell_of(each.batch, batch),
        cell_of(name(each.recipe, LONGEST), recipe),
        cell_of(each.trials or None, runs),
        replace(agree, kind="agree") if " agree" in each.machines else agree,
        _source(each.source, source),
        cell_of(name(each.notes, LONGEST), notes),
    ]
    return Line(cells, filters={"suite": each.suite, "precision": each.precision, "card": each.card})


def _source(source: str, column: Column) -> Cell:
    """Who published it; rows of our own have none."""
    return cell_of(author(source), column, source_link(source), outside=True)


def ranking(found: Ranking, to: Addresses) -> Grid:
    """Cards by what others published; each leads to its figures."""
    columns = [Column("tier", "count"), Column("card")]
    columns += [Column(HEADS[kind], "ratio", "higher") for kind in found.classes]
    columns += [Column("sources", "count"), Column("figures", "count")]
    most = max((ratio.value for line in found.lines for ratio in line.ratios.values()), default=1.0)
    lines = []
    for line in found.lines:
        figures = to.card(line.card, "published")
        cells = [cell_of(line.tier or None, columns[0]), cell_of(line.card, columns[1], to.card(line.card))]
        for kind, column in zip(found.classes, columns[2:], strict=False):
            cells.append(_ratio(line.ratios.get(kind), column, figures, most))
        cells += [cell_of(line.sources, columns[-2]), cell_of(line.figures, columns[-1], figures)]
        lines.append(Line(cells, filters={"card": line.card}))
    return Grid("published", heads_of(columns), lines)


def _ratio(ratio: Ratio | None, column: Column, href: str, most: float) -> Cell:
    if ratio is None:
        return cell_of(None, column)
    if ratio.low == ratio.high:  # a card over itself
        return cell_of(ratio.value, column, href, bar=(round(100 * ratio.value / most),))
    ends = [min(100, round(100 * end / most)) for end in (ratio.value, ratio.low, ratio.high)]
    return cell_of(Estimate(ratio.value, ratio.low, ratio.high), column, href, bar=tuple(ends))


def rows(found: Iterable[Row], to: Addresses) -> Grid:
    """Every row with its file and line."""
    return Grid("rows", heads_of(ROWS), [_row(each, to) for each in found])


def _row(each: Row, to: Addresses) -> Line:
    facts, place = each.facts, to.anchor(each)
    texts = {key: str(facts[key]) for key in ("suite", "model", "precision", "torch", "status")}
    remark = "; ".join(filter(None, (str(facts["marks"]), str(facts["reason"]))))
    values: Mapping[str, Value] = {
        **texts,
        "batch": _known(facts["batch_size"]),
        "seconds": _known(facts["seconds"]),
        "samples/s": _known(facts["samples_per_second"]),
        "notes": remark,
    }
    cells = {column.name: cell_of(values.get(column.name), column) for column in ROWS}
    cells["row"] = Cell(f"{each.file}, line {each.line}", href=f"#{place}")
    source = str(facts["source"])
    cells["source"] = cell_of(source, ROWS[9], source_link(source), outside=True)
    return Line(list(cells.values()), id=place)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def figures(published: Published, card: str) -> Grid:
    """What others published of a card, each with the file it was read from; what is not used says why."""
    used = [(cell.kind, each, "") for cell in published.cells if cell.card == card for each in cell.figures]
    against = [("", each, reason) for each, reason in published.left_out if each.card == card]
    return Grid("figures", heads_of(FIGURES), [_figure(*each) for each in [*used, *against]])


def _figure(kind: str, each: Figure, reason: str) -> Line:
    values: tuple[Value, ...] = (
        each.workload,
        kind,
        each.precision,
        each.batch,
        each.figure,
        each.unit,
        str(each.year),
    )
    cells = [cell_of(value, column) for value, column in zip(values, FIGURES[: len(values)], strict=True)]
    source = f"{each.source}, line {each.line}"
    return Line([*cells, Cell(source, href=figure_link(each), outside=True), cell_of(reason, FIGURES[-1])])
