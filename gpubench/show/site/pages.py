"""Makes the pages of a site: the first one, one for each suite and one for each card. The command `site` calls it."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

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
from gpubench.studies.section import Answer, Bar, BarGroup, Bars, Result
from gpubench.studies.words import gain, read_of, times

NEIGHBOURS = 3
"""Number of cards before and after a card, beside which its page shows it."""
BY_FIGURES = "By published figures: "
PREVIEW = "preview.png"
"""File of the picture that other sites show beside a link."""


def pages(contents: Contents, url: str = "") -> Iterator[tuple[str, str]]:
    """Return the path of each page in the site's folder, and its HTML; `url` is the address of that folder."""
    suites = {name: answers.only(contents.answer, name) for name in _suites(contents.answer)}
    cards = dict.fromkeys([*(row.card for row in contents.rows), *(line.card for line in contents.ranking.lines)])
    here = addresses(cards, suites, contents.rows)
    evidence = {
        id(result): (name, f"section-{at}")
        for name, of_suite in suites.items()
        for at, section in enumerate(of_suite.sections, start=1)
        for result in section.results
    }
    preview = f"{url.rstrip('/')}/{PREVIEW}" if url else ""
    yield "index.html", _index(contents, here, evidence, list(suites), preview or PREVIEW)
    for name, of_suite in suites.items():
        cases = frozenset[int]().union(*(section.cases for section in of_suite.sections))
        carried = replace(of_suite, table=lambda _, cases=cases: contents.answer.table(cases))  # type: ignore[misc]
        yield here.suite(name), page_of(carried, home="../index.html", preview=preview or f"../{PREVIEW}")
    below = replace(here, root="../")
    for card in cards:
        yield here.card(card), _card(contents, card, below, evidence, preview or f"../{PREVIEW}")


def preview_of(ranking: Ranking) -> bytes:
    """Return the picture that other sites show beside a link to this one: the ranking, as PNG."""
    picture = io.BytesIO()
    with style("light"):
        figure_of(chart_of(ranking, ranking.well_known(MOST_DRAWN))).savefig(picture, metadata={"Software": "gpubench"})
    return picture.getvalue()


def _suites(answer: Answer) -> list[str]:
    """Return the names of the suites, in the order of their sections."""
    return list(dict.fromkeys(section.suite for section in answer.sections))


def _linked(
    results: Sequence[Result], to: Addresses, evidence: Mapping[int, tuple[str, str]]
) -> list[tuple[str, str, str]]:
    """Return each result as the link to its section, its sentence, and its models, trials and caveats."""
    return [
        (to.suite(*evidence[id(result)]), result.said, result.sentence.removeprefix(result.said)) for result in results
    ]


def _index(
    contents: Contents,
    here: Addresses,
    evidence: Mapping[int, tuple[str, str]],
    suites: Sequence[str],
    preview: str,
) -> str:
    """Return the first page."""
    answer, looks = contents.answer, dict[str, str]()
    first = [dated(chart, answer) for chart in first_charts(answer.results)[:1]]
    with style("page"):
        lead = inline(first, "lead", looks)
    measured = {ranked_case.card for ranked_case in contents.cases}
    return rendered(
        "site.html",
        rules_of(looks),
        title="gpubench: cards ranked by how fast they train",
        description=headline(contents.ranking),
        preview=preview,
        answer=answer,
        read=" ".join(read_of(answer)),
        results=_linked(answer.comparisons, here, evidence),
        first=FIRST,
        lead=lead,
        suites=[(name, here.suite(name)) for name in suites],
        filters={
            "suite": sorted({ranked_case.group.suite for ranked_case in contents.cases}),
            "precision": sorted({ranked_case.group.precision for ranked_case in contents.cases}),
            "card": [*sorted(measured), *sorted({line.card for line in contents.ranking.lines} - measured)],
        },
        cases=tables.cases(sorted(contents.cases, key=lambda case: (not case.rank, -case.ranked)), here),
        ranking=tables.ranking(contents.ranking, here),
        ranked=headline(contents.ranking),
        licensed=contents.licensed,
    )


def _card(contents: Contents, card: str, to: Addresses, evidence: Mapping[int, tuple[str, str]], preview: str) -> str:
    """Return the page of a card."""
    cases = [ranked_case for ranked_case in contents.cases if ranked_case.card == card]
    rows = {(row.file, row.line): row for case in cases for row in case.rows}
    rows |= {(row.file, row.line): row for row in contents.rows if row.card == card}
    measured = {row.facts["case"] for row in rows.values()}
    results = [result for result in contents.answer.results if not measured.isdisjoint(result.cases)]
    lead, looks = _lead(contents.ranking, card, results), dict[str, str]()
    near = _neighbours(contents.ranking, card)
    own = [dated(chart, contents.answer) for chart in first_charts(results)[:1]]
    with style("page"):
        charts = inline([_beside(contents.ranking, card, near)] if near else own, "beside", looks)
    return rendered(
        "card.html",
        rules_of(looks),
        title=lead.removeprefix(BY_FIGURES).partition(", ")[0].partition(" (")[0] if near or results else card,
        description=lead,
        preview=preview,
        charts=charts,
        others=[
            (line.card, to.card(line.card), _times_as_fast(contents, card, line)) for line in near if line.card != card
        ],
        card=card,
        lead=lead,
        results=_linked(results, to, evidence),
        first=FIRST,
        cases=tables.cases(cases, to),
        rows=tables.rows(rows.values(), to),
        figures=tables.figures(contents.published, card),
    )


def _lead(ranking: Ranking, card: str, results: Sequence[Result]) -> str:
    """Return a sentence with the rank and the speed of a card by published figures, or else its first result."""
    if any(line.card == card for line in ranking.lines):
        return f"{BY_FIGURES}{rank_sentence(ranking, card)}"
    return results[0].sentence if results else "Published figures do not rank this card."


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


def _times_as_fast(contents: Contents, card: str, other: RankedCard) -> str:
    """Return how many times as fast a card is as another, with the interval of 90% of workloads, in words."""
    ratio = published_speeds(contents.ranking.classes[0]).ratio(card, other.card)
    return f"{times(ratio.value)} as fast ({gain(ratio.low)} to {gain(ratio.high)})"
