"""The ranking of all cards by published figures: its table, chart and notes. `gpubench cards` and the site show it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpubench.studies.cards import REFERENCE
from gpubench.studies.cards.figures import CLASSES, TF32_NOTE, data_sheets, published
from gpubench.studies.cards.options import DEFAULT_CLASSES
from gpubench.studies.cards.ratio import SpeedRatio, published_speeds
from gpubench.studies.section import Answer, Bar, BarGroup, Bars, Column, Section, Table, Value
from gpubench.studies.words import gain, times

WELL_KNOWN = (
    "A100-SXM4-80GB", "H100 80GB HBM3", "B200", "L40S", "RTX 5090", "RTX 4090", "RTX 3090", "V100-SXM2-16GB",
    "RTX 2080 Ti", "GTX 1080 Ti", "T4", "RTX 5080", "RTX 5070 Ti", "RTX 4080", "RTX 4070", "RTX 4060 Ti", "RTX 3080",
    "RTX 3070", "RTX 3060", "RTX A6000", "RTX 6000 Ada", "RTX PRO 6000 Workstation", "H200", "MI300X",
    "Radeon RX 7900 XTX",
)  # fmt: skip
"""Cards that many people know. The first MOST_LISTED fill a screen; the first MOST_DRAWN are in the chart."""
MOST_LISTED, MOST_DRAWN = 14, 11


@dataclass(frozen=True)
class RankedCard:
    """One line of the ranking."""

    card: str
    ratios: Mapping[str, SpeedRatio]
    """Speed relative to the reference, by class."""
    is_measured: bool
    """Whether it has a published figure in the first class; else it is estimated from its data sheet."""
    figures: int
    """Number of its published figures that are used."""
    dollars: float | None
    """Per hour."""
    per_dollar: SpeedRatio | None
    """Training per dollar relative to the reference, in the first class."""


@dataclass(frozen=True)
class Ranking:
    """Cards in order, the fastest first."""

    lines: tuple[RankedCard, ...]
    reference: str
    classes: tuple[str, ...]
    figures: int
    """Number of published figures in the first class, and of their `sources`."""
    sources: int

    def well_known(self, most: int) -> tuple[RankedCard, ...]:
        """Return the first `most` well-known cards, the reference, and cards with a price."""
        kept = {*WELL_KNOWN[:most], self.reference}
        return tuple(line for line in self.lines if line.card in kept or line.dollars is not None)

    def of(self, cards: Sequence[str]) -> "Ranking":
        """Return the ranking of these cards alone."""
        return replace(self, lines=tuple(line for line in self.lines if line.card in cards))

    @property
    def ranked(self) -> tuple[RankedCard, ...]:
        """Return the cards with a figure in the first class."""
        return tuple(line for line in self.lines if line.is_measured)


def rank(
    reference: str = REFERENCE, classes: Sequence[str] = DEFAULT_CLASSES, dollars: Mapping[str, float] | None = None
) -> Ranking:
    """Return all cards by their speed in the first class; `dollars` are per hour, by card."""
    first, dollars = classes[0], dollars or {}
    groups = [group for group in published().groups if group.kind == first]
    measured, figures = published_speeds(first).cards, Counter(figure.card for figure in published().used)
    lines = []
    for card in data_sheets():
        ratios = {kind: published_speeds(kind).ratio(card, reference) for kind in classes}
        hourly = dollars.get(card)
        share = dollars[reference] / hourly if hourly and reference in dollars else None
        per_dollar = ratios[first].scaled(share) if share else None
        lines.append(RankedCard(card, ratios, card in measured, figures[card], hourly, per_dollar))
    lines.sort(key=lambda line: line.ratios[first].value, reverse=True)
    count, sources = sum(len(group.figures) for group in groups), {group.source for group in groups}
    return Ranking(tuple(lines), reference, tuple(classes), count, len(sources))


def answer(ranking: Ranking, lines: Sequence[RankedCard], *, are_chosen: bool = False) -> Answer:
    """Return the headline, the table of these lines, a chart and notes.

    `are_chosen`: the user named these cards, so the headline and the chart are about them, not about all.
    """
    claim = _fastest_of(ranking, lines) if are_chosen else headline(ranking)
    drawn = chart(ranking, lines if are_chosen else ranking.well_known(MOST_DRAWN))
    title = f"speed relative to {ranking.reference}"
    return answer_with(claim, title, [table(ranking, lines)], notes(ranking), charts=[drawn])


def _fastest_of(ranking: Ranking, lines: Sequence[RankedCard]) -> str:
    first, kind = lines[0], ranking.classes[0]
    claim = f"The fastest of {len(lines)} cards in {CLASSES[kind]}: {first.card}"
    if first.card == ranking.reference:
        return f"{claim}."
    ratio = first.ratios[kind]
    return f"{claim}, {times(ratio.value)} as fast as {ranking.reference} ({workloads_text(ratio)})."


def workloads_text(ratio: SpeedRatio) -> str:
    """Return `90% of workloads: 1.36 to 1.85`."""
    return f"90% of workloads: {gain(ratio.low)} to {gain(ratio.high)}"


def table(ranking: Ranking, lines: Sequence[RankedCard]) -> Table:
    """Return a line per card: speed with its interval in the first class, other speeds, memory, power and price."""
    priced = any(line.dollars is not None for line in lines)
    first, *others = ranking.classes[:1] if priced else ranking.classes  # prices need the room
    rows = []
    for line in lines:
        sheet, speed = data_sheets()[line.card], line.ratios[first]
        row: dict[Column, Value] = {Column("card"): line.card, Column(first, "ratio", "higher", level=90): speed}
        row |= {Column(kind, "ratio", "higher"): line.ratios[kind].value for kind in others}
        row[Column("src")] = str(speed.sources) if line.is_measured else "-"
        row[Column("GiB", "GiB", places=0)] = sheet.memory_gb
        row[Column("W", "W", places=0)] = sheet.watts
        if priced:
            row[Column("$/h", "dollars", places=2)] = line.dollars
            row[Column("per $", "ratio", "higher")] = line.per_dollar.value if line.per_dollar else None
        rows.append(row)
    return Table.of(f"times as fast as {ranking.reference}", rows)


def answer_with(
    headline: str,
    title: str,
    tables: Sequence[Table],
    notes: Sequence[str] = (),
    *,
    charts: Sequence[Bars] = (),
    left_out: Sequence[str] = (),
) -> Answer:
    """Return an answer with one section."""
    section = Section(
        "cards", "", title, tables=tuple(tables), charts=tuple(charts), notes=tuple(notes), left_out=tuple(left_out)
    )
    return Answer(headline, results=(), sections=(section,), metric="speed", unit="ratio")


def headline(ranking: Ranking) -> str:
    """Return the one-sentence summary of the ranking."""
    kind, best = ranking.classes[0], next(line for line in ranking.ranked if line.card != ranking.reference)
    place = "first" if ranking.ranked[0] == best else "second"
    return (
        f"Of {len(ranking.ranked)} cards measured in {CLASSES[kind]}, {best.card} is {place}:"
        f" {times(best.ratios[kind].value)} as fast as {ranking.reference} ({workloads_text(best.ratios[kind])}),"
        f" from {ranking.figures:,} published figures ({ranking.sources} sources) and data sheets."
    )


def rank_sentence(ranking: Ranking, card: str) -> str:
    """Return `RTX 4090 has rank 17 of 65 measured cards in half precision, 0.69 times as fast as ... (90% of ...)`.

    A card without a figure in that class has no rank: `L4 is estimated from its data sheet in half precision, ...`.
    """
    cards = [line.card for line in ranking.ranked]
    line = next(line for line in ranking.lines if line.card == card)
    first = ranking.classes[0]
    estimated = f"{card} is estimated from its data sheet in {CLASSES[first]}"
    parts = [f"{card} is the reference" if card == ranking.reference else estimated]
    if card in cards:
        parts = [f"{card} has rank {cards.index(card) + 1} of {len(cards)} measured cards in {CLASSES[first]}"]
    for kind, ratio in line.ratios.items() if card != ranking.reference else ():
        where = f" as fast as {ranking.reference}" if kind == first else f" in {CLASSES[kind]}"
        parts.append(f"{times(ratio.value)}{where} ({workloads_text(ratio)})")
    return f"{', '.join(parts)}."


def notes(ranking: Ranking) -> list[str]:
    """Return the notes below the table: what its columns and signs mean, and why speeds per dollar are missing."""
    lines = [
        "90% interval: contains 90% of workloads. src: sources that measured both cards.",
        f"-: not measured in {CLASSES[ranking.classes[0]]}; estimated from its data sheet.",
    ]
    if "fp32" in ranking.classes:
        lines.append(TF32_NOTE)
    priced = {line.card for line in ranking.lines if line.dollars is not None}
    if priced and ranking.reference not in priced:
        lines.append(f"{ranking.reference} has no price, so no speed per dollar; compare with a card that has one.")
    if priced and len(ranking.classes) > 1:
        lines.append(f"Per dollar: in {CLASSES[ranking.classes[0]]} (--precision for another).")
    return lines


def chart(ranking: Ranking, lines: Sequence[RankedCard]) -> Bars:
    """Return a chart with a dot and an interval for each of these cards."""
    kind = ranking.classes[0]
    others = [line for line in lines if line.card != ranking.reference]
    best = min(others, key=lambda line: not line.is_measured, default=lines[0])  # fastest measured, else fastest
    bars = []
    for line in lines:
        ratio, note = line.ratios[kind], "" if line.is_measured else "estimated"
        interval = (ratio.low, ratio.high) if ratio.low < ratio.high else None
        bars.append(Bar(line.card, ratio.value, interval, note=note))
    return Bars(
        name=f"cards-{kind}",
        title=f"{best.card} trains {times(best.ratios[kind].value)} as fast as {ranking.reference} in {CLASSES[kind]}",
        subtitle=f"Speed relative to {ranking.reference}, with the interval of 90% of workloads; higher is better",
        groups=(BarGroup("", tuple(bars)),),
        unit="ratio",
        reference=1.0,
        foot=f"{ranking.figures:,} published figures from {ranking.sources} sources, and data sheets",
    )
