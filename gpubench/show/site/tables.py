"""The tables of a site: every case with its rank, published speeds, the rows and the published figures of a card.

Rows and published figures never share a table.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpubench.show.html import Cell, Grid, Line, cell_of, heads_of
from gpubench.show.site.addresses import Addresses, figure_link, source_link
from gpubench.studies.cards.figures import CLASSES, Figure, Published
from gpubench.studies.cards.model import SpeedRatio
from gpubench.studies.cards.ranking import Ranking
from gpubench.studies.ranked_cases import RankedCase, SiteRow
from gpubench.studies.section import Column, Value
from gpubench.studies.words import author, name

LONGEST = 110
"""Characters of a recipe or a note beside a case; the suite's page and the rows have all of it."""
IMPORTED = "imported"
"""The mark of a case that somebody published, which was not measured with gpubench."""
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
    Column("submissions"),
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
    """Every case; its figure leads to its rows."""
    return Grid("cases", heads_of(CASES), [_case(each, to) for each in ranked])


def _case(each: RankedCase, to: Addresses) -> Line:
    values: dict[str, Value] = {
        "card": each.label,
        "seconds": each.seconds,
        "precision": each.precision,
        "samples/s": each.rate,
        "suite": each.suite,
        "model": each.model,
        "batch": each.batch,
        "recipe": name(each.recipe, LONGEST),
        "runs": each.trials or None,
        "submissions": each.submissions,
        "source": author(each.source),
        "notes": name(each.notes, LONGEST),
    }
    cells = _cells(CASES, values)
    bar = () if math.isnan(each.share) else (round(100 * each.share),)
    row = to.row(each.rows[0]) if each.rows else ""
    rank = f"{each.rank} of {each.ranked}" if each.rank else ""
    cells["rank"] = Cell(rank, value=str(each.rank or ""), kind="number")
    cells["card"] = replace(cells["card"], kind="name", href=to.card(each.card), beside=IMPORTED if each.source else "")
    cells["seconds"] = replace(cells["seconds"], href=row, bar=bar)
    cells["suite"] = replace(cells["suite"], href=to.suite(each.suite))
    cells["source"] = replace(cells["source"], href=source_link(each.source), outside=True)
    if "agree, " in each.submissions:
        cells["submissions"] = replace(cells["submissions"], kind="agree")
    return Line(list(cells.values()), filters={"suite": each.suite, "precision": each.precision, "card": each.card})


def _cells(columns: Sequence[Column], values: Mapping[str, Value]) -> dict[str, Cell]:
    """A cell for each column by its name, empty where there is no value."""
    return {column.name: cell_of(values.get(column.name), column) for column in columns}


def ranking(found: Ranking, to: Addresses) -> Grid:
    """Cards by what others published; each leads to its figures."""
    columns = [Column("tier", "count"), Column("card")]
    columns += [Column(CLASSES[kind].head, "ratio", "higher") for kind in found.classes]
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


def _ratio(ratio: SpeedRatio | None, column: Column, href: str, most: float) -> Cell:
    if ratio is None:
        return cell_of(None, column)
    if ratio.low == ratio.high:  # a card over itself
        return cell_of(ratio.value, column, href, bar=(round(100 * ratio.value / most),))
    ends = [min(100, round(100 * end / most)) for end in (ratio.value, ratio.low, ratio.high)]
    return cell_of(ratio, column, href, bar=tuple(ends))


def rows(found: Iterable[SiteRow], to: Addresses) -> Grid:
    """Every row with its file and line."""
    return Grid("rows", heads_of(ROWS), [_row(each, to) for each in found])


def _row(each: SiteRow, to: Addresses) -> Line:
    facts, place, source = each.facts, to.anchor(each), str(each.facts["source"])
    values: dict[str, Value] = {
        **{column: str(facts[column]) for column in ("suite", "model", "precision", "torch", "status", "source")},
        "batch": _known(facts["batch_size"]),
        "seconds": _known(facts["seconds"]),
        "samples/s": _known(facts["samples_per_second"]),
        "notes": "; ".join(filter(None, (str(facts["marks"]), str(facts["reason"])))),
    }
    cells = _cells(ROWS, values)
    cells["row"] = Cell(f"{each.file}, line {each.line}", kind="row", href=f"#{place}")
    cells["source"] = replace(cells["source"], href=source_link(source), outside=True)
    return Line(list(cells.values()), id=place)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def figures(published: Published, card: str) -> Grid:
    """What others published of a card, each with the file it was read from; what is not used says why."""
    used = [(group.kind, each, "") for group in published.groups if group.card == card for each in group.figures]
    against = [("", each, reason) for each, reason in published.left_out if each.card == card]
    return Grid("figures", heads_of(FIGURES), [_figure(*each) for each in [*used, *against]])


def _figure(kind: str, each: Figure, reason: str) -> Line:
    values: dict[str, Value] = {
        "workload": each.workload,
        "figure": each.figure,
        "unit": each.unit,
        "class": kind,
        "precision": each.precision,
        "batch": each.batch,
        "year": str(each.year),
        "source": f"{each.source}, line {each.line}",
        "why it is not used": reason,
    }
    cells = _cells(FIGURES, values)
    cells["source"] = replace(cells["source"], href=figure_link(each), outside=True)
    return Line(list(cells.values()))
