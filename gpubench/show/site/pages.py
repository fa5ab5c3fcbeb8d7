"""The pages of a site: the first one, one for each suite that has findings or tables, one for each card."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpubench.show.charts import worth_drawing
from gpubench.show.html import rendered
from gpubench.show.page import FIRST, inline, page_of, rules_of
from gpubench.show.site import tables
from gpubench.show.site.addresses import Addresses, addresses
from gpubench.show.style import style
from gpubench.studies import answer as answers
from gpubench.studies.cards.figures import CLASSES
from gpubench.studies.cards.ranking import Ranking, headline
from gpubench.studies.ranked_cases import Contents, RankedCase
from gpubench.studies.section import Answer, Finding
from gpubench.studies.words import read_of, times


@dataclass(frozen=True)
class Told:
    """A finding: what it says leads to its evidence, what it rests on follows."""

    said: str
    basis: str
    href: str


def pages(contents: Contents) -> Iterator[tuple[str, str]]:
    """Each page's place below the site's folder, and its text."""
    suites = {name: answers.only(contents.answer, name) for name in _suites(contents.answer)}
    cards = dict.fromkeys([*(row.card for row in contents.rows), *(line.card for line in contents.ranking.lines)])
    here = addresses(cards, suites, contents.rows)
    evidence = {
        id(finding): (name, f"section-{at}")
        for name, own in suites.items()
        for at, section in enumerate(own.sections, start=1)
        for finding in section.findings
    }
    yield "index.html", _index(contents, here, evidence, list(suites))
    for name, own in suites.items():
        cases = frozenset[int]().union(*(section.cases for section in own.sections))
        carried = replace(own, table=lambda _, cases=cases: contents.answer.table(cases))  # type: ignore[misc]
        yield here.suite(name), page_of(carried, home="../index.html")
    below = replace(here, root="../")
    for card in cards:
        yield here.card(card), _card(contents, card, below, evidence)


def _suites(answer: Answer) -> list[str]:
    return list(dict.fromkeys(section.suite for section in answer.sections))


def _told(findings: Sequence[Finding], to: Addresses, evidence: Mapping[int, tuple[str, str]]) -> list[Told]:
    return [Told(each.said, each.sentence[len(each.said) :], to.suite(*evidence[id(each)])) for each in findings]


def _index(contents: Contents, here: Addresses, evidence: Mapping[int, tuple[str, str]], suites: Sequence[str]) -> str:
    answer, looks = contents.answer, dict[str, str]()
    first = [chart for each in answer.findings for chart in worth_drawing(each.charts)][:1]
    with style("page"):
        lead = inline(first, "lead", looks)
    own = dict.fromkeys(each.card for each in contents.cases)
    return rendered(
        "site.html",
        rules_of(looks),
        title="gpubench: cards ranked by how fast they train",
        description=answer.headline,
        answer=answer,
        read=" ".join(read_of(answer)),
        told=_told([each for each in answer.compared if each.sentence != answer.headline], here, evidence),
        first=FIRST,
        lead=lead,
        suites=[(name, here.suite(name)) for name in suites],
        filters={
            "suite": sorted({each.suite for each in contents.cases}),
            "precision": sorted({each.precision for each in contents.cases}),
            "card": [*sorted(own), *sorted({line.card for line in contents.ranking.lines} - set(own))],
        },
        cases=tables.cases(_in_order(contents.cases, suites), here),
        ranking=tables.ranking(contents.ranking, here),
        ranked=headline(contents.ranking),
        licensed=contents.licensed,
    )


def _in_order(cases: Sequence[RankedCase], suites: Sequence[str]) -> list[RankedCase]:
    """Those of the suite with the first finding first."""
    order = {name: at for at, name in enumerate(suites)}
    return sorted(cases, key=lambda each: order.get(each.suite, len(order)))


def _card(contents: Contents, card: str, to: Addresses, evidence: Mapping[int, tuple[str, str]]) -> str:
    cases = [each for each in contents.cases if each.card == card]
    rows = {(row.file, row.line): row for each in cases for row in each.rows}
    rows |= {(row.file, row.line): row for row in contents.rows if row.card == card}
    measured = {row.facts["case"] for row in rows.values()}
    findings = [finding for finding in contents.answer.findings if not measured.isdisjoint(finding.cases)]
    return rendered(
        "card.html",
        title=f"{card}: gpubench",
        description=f"How fast {card} trains.",
        card=card,
        lead=_lead(contents.ranking, card),
        told=_told(findings, to, evidence),
        first=FIRST,
        cases=tables.cases(cases, to),
        rows=tables.rows(rows.values(), to),
        figures=tables.figures(contents.published, card),
    )


def _lead(ranking: Ranking, card: str) -> str:
    """What the published figures say of it, in a sentence."""
    line = next((line for line in ranking.lines if line.card == card), None)
    if line is None or not line.ratios:
        return "No figure that others published is used for it."
    said = [f"{card} is in tier {line.tier} of {max(each.tier for each in ranking.lines)}"] if line.tier else []
    for kind, each in line.ratios.items():
        than = f" as fast as {ranking.reference}" if kind == next(iter(line.ratios)) else ""
        sure = f" ({each.interval_text})" if each.low != each.high else ""
        said.append(f"{times(each.value)}{than} in {CLASSES[kind].name}{sure}")
    return f"By published figures: {', '.join(said)}."
