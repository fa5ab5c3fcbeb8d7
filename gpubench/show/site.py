"""Makes the pages of a static site: the first one, one for each suite and one for each card.

No table has both rows and published figures. The command `site` calls it and writes the files.
"""

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from gpubench.analysis.groups import short
from gpubench.printed import shortened
from gpubench.show.charts import dated, figure_of, first_charts
from gpubench.show.html import Grid, HtmlCell, HtmlLine, cell_of, rendered
from gpubench.show.numbers import read_of
from gpubench.show.page import FIRST, inline, measured_on, page_of, rules_of
from gpubench.show.style import style
from gpubench.studies.answer import only
from gpubench.studies.cards.figures import CLASSES, Figure
from gpubench.studies.cards.ranking import MOST_DRAWN, RankedCard, Ranking, headline, rank_sentence
from gpubench.studies.cards.ranking import chart as chart_of
from gpubench.studies.cards.ratio import SpeedRatio, published_speeds
from gpubench.studies.cases import batch_text, estimate, known
from gpubench.studies.ranked_cases import Contents, RankedCase, SiteRow
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Result
from gpubench.studies.words import author, gain, notes_of, slug, times, without_author

WEB = re.compile(
    r"(?:https?://)?(?P<place>[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}/[\w./~%+-]+?)"
    r"(?:@(?P<commit>[0-9a-f]{7,40}))?(?:[,;\s].*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
"""Matches a source that begins with a host, a path and perhaps a commit, but no address with a user name or a query."""
NEIGHBOURS = 3
"""Number of cards before a card, and after it, in the chart of its page."""
BY_FIGURES = "By published figures: "
PREVIEW = "preview.png"
"""File of the picture that other sites show beside a link."""
LONGEST = 110
"""Maximum length of a recipe or a note, in characters; the suite's page and the rows have the whole text."""
CARD, SUITE, MODEL, PRECISION = map(Column, ("card", "suite", "model", "precision"))
SECONDS, RATE = Column("seconds", "s", "lower"), Column("samples/s", "samples/s", "higher")
NOTES = Column("notes", note=True)


@dataclass(frozen=True)
class Addresses:
    """The links to the pages and rows of a site."""

    cards: dict[str, str]
    """File name of each card's page, without suffix."""
    suites: dict[str, str]
    """File name of each suite's page, without suffix."""
    rows: dict[tuple[str, int], str]
    """Anchor of each row, by its file and line."""
    root: str = ""
    """Path from the page with the links to the folder of the first page."""

    def card(self, name: str, anchor: str = "") -> str:
        """Return the link to a card's page, or to an anchor in it."""
        return f"{self.root}card/{self.cards[name]}.html{'#' if anchor else ''}{anchor}"

    def suite(self, name: str, anchor: str = "") -> str:
        """Return the link to a suite's page, or to an anchor in it; empty for a suite without a page."""
        if name not in self.suites:
            return ""
        return f"{self.root}suite/{self.suites[name]}.html{'#' if anchor else ''}{anchor}"

    def row(self, row: SiteRow) -> str:
        """Return the link to a row in its card's page."""
        return self.card(row.card, self.anchor(row))

    def anchor(self, row: SiteRow) -> str:
        """Return the anchor of a row: its file and line. It does not change when files with other names are added."""
        return self.rows[row.file, row.line]


def addresses(cards: Iterable[str], suites: Iterable[str], rows: Iterable[SiteRow]) -> Addresses:
    """Return the links of a site with these pages and rows, with unique file names."""
    anchors = {(row.file, row.line): f"{PurePath(row.file).stem}-{row.line}" for row in rows}
    return Addresses(
        _unique({card: card for card in cards}), _unique({suite: suite for suite in suites}), _unique(anchors)
    )


def _unique(names: Mapping[Any, str]) -> dict[Any, str]:
    """Return the slug of each key's name, with a number where an earlier name has the same slug."""
    slugs: dict[Any, str] = {}
    taken = set[str]()
    for key, text in names.items():
        plain = slug(text) or "unnamed"
        numbered = (f"{plain}-{number}" for number in count(2))
        slugs[key] = next(name for name in chain([plain], numbered) if name not in taken)
        taken.add(slugs[key])
    return slugs


def source_link(source: str) -> str:
    """Return the https link to a source at its commit; empty if the source does not begin with an address."""
    match = WEB.fullmatch(source)
    if not match:
        return ""
    place, commit = match["place"], match["commit"]
    tree = f"/tree/{commit}" if commit and place.lower().startswith("github.com/") else ""
    return f"https://{place}{tree}"


def pages(contents: Contents, url: str = "") -> Iterator[tuple[str, str]]:
    """Return the path of each page in the site's folder, and its HTML; `url` is the address of that folder."""
    suites = {name: only(contents.answer, name) for name in dict.fromkeys(s.suite for s in contents.answer.sections)}
    cards = dict.fromkeys([*(row.card for row in contents.rows), *(line.card for line in contents.ranking.lines)])
    to = addresses(cards, suites, contents.rows)
    sections = {
        id(result): (name, f"section-{at}")
        for name, of_suite in suites.items()
        for at, section in enumerate(of_suite.sections, start=1)
        for result in section.results
    }
    home = f"{url.rstrip('/')}/" if url else ""
    site = _Site(contents, to, sections, f"{home}{PREVIEW}")
    yield "index.html", site.first_page(list(suites))
    below = replace(site, to=replace(to, root="../"), preview=f"{home or '../'}{PREVIEW}")
    table = contents.answer.table
    for suite, of_suite in suites.items():
        cases = frozenset[int]().union(*(section.cases for section in of_suite.sections))
        carried = replace(of_suite, table=lambda some, cases=cases: table(cases if some is None else some))  # type: ignore[misc]
        yield to.suite(suite), page_of(carried, home="../index.html", preview=below.preview)
    for card in cards:
        yield to.card(card), below.card_page(card)


@dataclass(frozen=True)
class _Site:
    """What the pages of a site are made of."""

    contents: Contents
    to: Addresses
    sections: Mapping[int, tuple[str, str]]
    """Suite and anchor of the section of each result, by the result's `id`."""
    preview: str
    """Address of the picture that other sites show."""

    def first_page(self, suites: Sequence[str]) -> str:
        """Return the first page: results, cases and the ranking by published figures."""
        contents, answer, classes = self.contents, self.contents.answer, dict[str, str]()
        charts = [dated(chart, answer) for chart in first_charts(answer.results)[:1]]
        with style("page"):
            lead = inline(charts, "lead", classes)
        measured = {ranked_case.card for ranked_case in contents.cases}
        return rendered(
            "site.html",
            rules_of(classes),
            title="gpubench: cards ranked by how fast they train",
            description=headline(contents.ranking),
            preview=self.preview, answer=answer, first=FIRST, lead=lead, licensed=contents.licensed,
            read=" ".join(read_of(answer)),
            results=self._linked(answer.comparisons),
            suites=[(name, self.to.suite(name)) for name in suites],
            filters={
                "suite": sorted({ranked_case.group.suite for ranked_case in contents.cases}),
                "precision": sorted({ranked_case.group.precision for ranked_case in contents.cases}),
                "card": [*sorted(measured), *sorted({line.card for line in contents.ranking.lines} - measured)],
            },
            cases=_cases_table(sorted(contents.cases, key=lambda case: (not case.rank, -case.ranked)), self.to),
            ranking=_ranking_table(contents.ranking, self.to),
            ranked=headline(contents.ranking),
        )  # fmt: skip

    def card_page(self, card: str) -> str:
        """Return the page of a card: its results, cases, rows and published figures."""
        contents, classes = self.contents, dict[str, str]()
        cases = [ranked_case for ranked_case in contents.cases if ranked_case.card == card]
        rows = {(row.file, row.line): row for case in cases for row in case.rows}
        rows |= {(row.file, row.line): row for row in contents.rows if row.card == card}
        measured = {row.facts["case"] for row in rows.values()}
        results = [result for result in contents.answer.results if not measured.isdisjoint(result.cases)]
        results.sort(key=lambda result: short(card) not in result.said)
        ranked = [line for line in contents.ranking.lines if line.is_measured or line.card == card]
        at = next((at for at, line in enumerate(ranked) if line.card == card), None)
        near = [] if at is None else ranked[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1]
        lead, title = "Published figures do not rank this card.", card
        if near:
            is_measured = any(line.card == card for line in contents.ranking.ranked)
            sentence = rank_sentence(contents.ranking, card)
            lead, title = f"{BY_FIGURES * is_measured}{sentence}", sentence.partition(",")[0].rstrip(".")
        elif results:
            lead, title = results[0].sentence, results[0].said
        charts = [dated(chart, contents.answer) for chart in first_charts(results)[:1]]
        with style("page"):
            pictures = inline([_beside(contents.ranking, card, near)] if near else charts, "beside", classes)
        speeds = published_speeds(contents.ranking.classes[0])
        groups = [group for group in contents.published.groups if group.card == card]
        used = [(group.kind, figure, "") for group in groups for figure in group.figures]
        unused = [("", figure, reason) for figure, reason in contents.published.left_out if figure.card == card]
        ratios = {line.card: speeds.ratio(card, line.card) for line in near if line.card != card}
        return rendered(
            "card.html",
            rules_of(classes),
            title=title, description=lead, preview=self.preview, charts=pictures, card=card, lead=lead, first=FIRST,
            others=[
                (other, self.to.card(other), f"{times(r.value)} as fast ({gain(r.low)} to {gain(r.high)})")
                for other, r in ratios.items()
            ],
            measured_on=measured_on(contents.answer.table(frozenset(measured)))[1:],
            results=self._linked(results),
            cases=_cases_table(cases, self.to, card),
            rows=Grid.of("rows", "One line per trial", [_row(row, self.to) for row in rows.values()]),
            figures=Grid.of("figures", "One line per published figure", [_figure(*line) for line in [*used, *unused]]),
        )  # fmt: skip

    def _linked(self, results: Sequence[Result]) -> list[tuple[str, str, str]]:
        """Return each result as the link to its section, its sentence, and its models, trials and caveats."""
        return [
            (self.to.suite(*self.sections[id(result)]), result.said, result.sentence.removeprefix(result.said))
            for result in results
        ]


def preview_of(ranking: Ranking) -> bytes:
    """Return the picture that other sites show beside a link to this one: the ranking, as PNG."""
    picture = io.BytesIO()
    with style("light"):
        figure_of(chart_of(ranking, ranking.well_known(MOST_DRAWN))).savefig(picture, metadata={"Software": "gpubench"})
    return picture.getvalue()


def _beside(ranking: Ranking, card: str, lines: Sequence[RankedCard]) -> Bars:
    """Return a chart of these cards, with `card` in colour."""
    kind = ranking.classes[0]
    ratios = [(line.card, line.ratios[kind]) for line in lines]
    return Bars(
        "beside",
        f"{card} and the cards next to it in the ranking",
        f"Times as fast as {ranking.reference} in {CLASSES[kind]}, with the interval of 90% of workloads",
        tuple(BarGroup(name, (Bar(name, ratio.value, (ratio.low, ratio.high)),)) for name, ratio in ratios),
        "ratio",
        winner=card,
    )


def _cases_table(ranked: Sequence[RankedCase], to: Addresses, page: str = "") -> Grid:
    """Return the table of these cases, with links from the seconds to the rows; `page` is the card of the page."""
    return Grid.of("cases", "One line per case", [_case(ranked_case, to, page) for ranked_case in ranked])


def _case(ranked_case: RankedCase, to: Addresses, page: str) -> HtmlLine:
    """Return the line of a case; on the `page` of its card, the card is no link."""
    group = ranked_case.group
    card = without_author(group.label, group.source)
    bar = () if math.isnan(ranked_case.share) else (round(100 * ranked_case.share),)
    rank = f"{ranked_case.rank} of {ranked_case.ranked}" if ranked_case.rank else ""
    link = "" if ranked_case.card == page else to.card(ranked_case.card)
    rows_of_case = to.row(ranked_case.rows[0]) if ranked_case.rows else ""
    cells = [
        HtmlCell(Column("rank", "count"), rank),
        cell_of(card, CARD, link, css_class="name", beside="imported" if group.source else ""),
        cell_of(estimate(group), SECONDS, rows_of_case, bar=bar),
        cell_of(group.precision, PRECISION),
        cell_of(known(group.samples_per_second), RATE),
        cell_of(group.suite, SUITE, to.suite(group.suite)),
        cell_of(group.model, MODEL),
        cell_of(batch_text(group), Column("batch")),
        cell_of(shortened(ranked_case.recipe, LONGEST), Column("recipe", note=True)),
        cell_of(group.trials or None, Column("trials", "count")),
        cell_of(author(group.source), Column("source"), source_link(group.source)),
        cell_of(shortened(notes_of(group), LONGEST), NOTES),
    ]
    return HtmlLine(cells, filters={"suite": group.suite, "precision": group.precision, "card": ranked_case.card})


def _ranking_table(ranked: Ranking, to: Addresses) -> Grid:
    """Return the ranking of cards by published figures, with links to the figures."""
    most = max((ratio.value for line in ranked.lines for ratio in line.ratios.values()), default=1.0)
    lines = []
    for line in ranked.lines:
        figures = to.card(line.card, "published")
        cells = [cell_of(line.card, CARD, to.card(line.card))]
        columns = [(kind, Column(CLASSES[kind], "ratio", "higher")) for kind in ranked.classes]
        cells += [_ratio(line.ratios[kind], column, figures, most) for kind, column in columns]
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


def _row(row: SiteRow, to: Addresses) -> HtmlLine:
    anchor, source = to.anchor(row), str(row.facts["source"])
    texts = {column: str(text) for column, text in row.facts.items()}
    cells = [
        HtmlCell(Column("row"), f"{row.file}, line {row.line}", css_class="row", href=f"#{anchor}"),
        *(cell_of(texts[column.name], column) for column in (SUITE, MODEL, PRECISION)),
        cell_of(known(row.facts["batch_size"]), Column("batch", "count")),
        cell_of(known(row.facts["seconds"]), SECONDS),
        cell_of(known(row.facts["samples_per_second"]), RATE),
        *(cell_of(texts[column], Column(column)) for column in ("torch", "status")),
        cell_of(source, Column("source", note=True), source_link(source)),
        cell_of("; ".join(filter(None, (texts["marks"], texts["reason"]))), NOTES),
    ]
    return HtmlLine(cells, id=anchor)


def _figure(kind: str, figure: Figure, reason: str) -> HtmlLine:
    """Return the line of a published figure; `reason` is why it is not used."""
    file = f"https://github.com/{quote(figure.source)}/blob/{quote(figure.commit)}/{quote(figure.file)}"
    cells = [
        cell_of(figure.workload, Column("workload"), css_class="long", beside=f"not used: {reason}" if reason else ""),
        cell_of(figure.figure, Column("figure", "x", "higher")),
        cell_of(figure.unit, Column("unit")),
        cell_of(kind, Column("class")),
        cell_of(figure.precision, PRECISION),
        cell_of(figure.batch, Column("batch")),
        cell_of(str(figure.year), Column("year")),
        cell_of(f"{figure.source}, line {figure.line}", Column("source"), file),
    ]
    return HtmlLine(cells)
