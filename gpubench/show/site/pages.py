"""Makes the pages of a site: the first one, one for each suite and one for each card. The command `site` calls it."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpubench.show.charts import dated, figure_of, first_charts
from gpubench.show.html import rendered
from gpubench.show.page import FIRST, inline, page_of, rules_of
from gpubench.show.site import tables
from gpubench.show.site.addresses import Addresses, addresses
from gpubench.show.style import style
from gpubench.studies import answer as answers
from gpubench.studies.cards.figures import CLASSES
from gpubench.studies.cards.ranking import MOST_DRAWN, RankedCard, Ranking, headline, rank_sentence
from gpubench.studies.cards.ranking import chart as chart_of
from gpubench.studies.cards.ratio import published_speeds
from gpubench.studies.ranked_cases import Contents
from gpubench.studies.section import Bar, BarGroup, Bars, Result
from gpubench.studies.words import gain, read_of, times

NEIGHBOURS = 3
"""Number of cards before and after a card, beside which its page shows it."""
BY_FIGURES = "By published figures: "
PREVIEW = "preview.png"
"""File of the picture that other sites show beside a link."""


def pages(contents: Contents, url: str = "") -> Iterator[tuple[str, str]]:
    """Return the path of each page in the site's folder, and its HTML; `url` is the address of that folder."""
    suites = {
        name: answers.only(contents.answer, name) for name in dict.fromkeys(s.suite for s in contents.answer.sections)
    }
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
    for name, of_suite in suites.items():
        cases = frozenset[int]().union(*(section.cases for section in of_suite.sections))
        carried = replace(of_suite, table=lambda _, cases=cases: contents.answer.table(cases))  # type: ignore[misc]
        yield to.suite(name), page_of(carried, home="../index.html", preview=below.preview)
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
            preview=self.preview,
            answer=answer,
            read=" ".join(read_of(answer)),
            results=self._linked(answer.comparisons),
            first=FIRST,
            lead=lead,
            suites=[(name, self.to.suite(name)) for name in suites],
            filters={
                "suite": sorted({ranked_case.group.suite for ranked_case in contents.cases}),
                "precision": sorted({ranked_case.group.precision for ranked_case in contents.cases}),
                "card": [*sorted(measured), *sorted({line.card for line in contents.ranking.lines} - measured)],
            },
            cases=tables.cases(sorted(contents.cases, key=lambda case: (not case.rank, -case.ranked)), self.to),
            ranking=tables.ranking(contents.ranking, self.to),
            ranked=headline(contents.ranking),
            licensed=contents.licensed,
        )

    def card_page(self, card: str) -> str:
        """Return the page of a card: its results, cases, rows and published figures."""
        contents, classes = self.contents, dict[str, str]()
        cases = [ranked_case for ranked_case in contents.cases if ranked_case.card == card]
        rows = {(row.file, row.line): row for case in cases for row in case.rows}
        rows |= {(row.file, row.line): row for row in contents.rows if row.card == card}
        measured = {row.facts["case"] for row in rows.values()}
        results = [result for result in contents.answer.results if not measured.isdisjoint(result.cases)]
        near = _neighbours(contents.ranking, card)
        lead = results[0].sentence if results else "Published figures do not rank this card."
        if any(line.card == card for line in contents.ranking.lines):
            lead = f"{BY_FIGURES}{rank_sentence(contents.ranking, card)}"
        charts = [dated(chart, contents.answer) for chart in first_charts(results)[:1]]
        with style("page"):
            pictures = inline([_beside(contents.ranking, card, near)] if near else charts, "beside", classes)
        speeds = published_speeds(contents.ranking.classes[0])
        ratios = {line.card: speeds.ratio(card, line.card) for line in near if line.card != card}
        return rendered(
            "card.html",
            rules_of(classes),
            title=lead.removeprefix(BY_FIGURES).partition(", ")[0].partition(" (")[0] if near or results else card,
            description=lead,
            preview=self.preview,
            charts=pictures,
            others=[
                (other, self.to.card(other), f"{times(r.value)} as fast ({gain(r.low)} to {gain(r.high)})")
                for other, r in ratios.items()
            ],
            card=card,
            lead=lead,
            results=self._linked(results),
            first=FIRST,
            cases=tables.cases(cases, self.to),
            rows=tables.rows(rows.values(), self.to),
            figures=tables.figures(contents.published, card),
        )

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


def _neighbours(ranking: Ranking, card: str) -> Sequence[RankedCard]:
    """Return the card with those before and after it in the ranking; none for a card without a rank."""
    cards = [line.card for line in ranking.ranked]
    if card not in cards:
        return ()
    at = cards.index(card)
    return ranking.ranked[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1]


def _beside(ranking: Ranking, card: str, lines: Sequence[RankedCard]) -> Bars:
    """Return a chart of these cards, with one of them in colour."""
    kind = ranking.classes[0]
    ratios = [(line.card, line.ratios[kind]) for line in lines]
    return Bars(
        "beside",
        f"{card} beside the cards next to it",
        f"Times as fast as {ranking.reference} in {CLASSES[kind]}, with the interval of 90% of workloads",
        tuple(BarGroup(name, (Bar(name, ratio.value, (ratio.low, ratio.high)),)) for name, ratio in ratios),
        "ratio",
        winner=card,
    )
