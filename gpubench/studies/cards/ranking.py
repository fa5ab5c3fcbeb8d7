"""The ranking of all cards with published figures: the table, the chart and the notes. `gpubench cards` prints it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubench.studies.cards import REFERENCE
from gpubench.studies.cards.figures import CLASSES, TF32_NOTE, Published, architecture, data_sheets
from gpubench.studies.cards.model import FAMILIES, Model, SpeedRatio, prediction_errors, ratio_between
from gpubench.studies.cards.options import DEFAULT_CLASSES
from gpubench.studies.section import Answer, Bar, BarGroup, Bars, Column, Section, Table, Value
from gpubench.studies.words import gain, times

MOST_LINES, MOST_DRAWN = 27, 12
"""Cards in the short table, and in a chart of 1200 x 675."""
LEAST_FIGURES = 6
"""Cards with fewer figures are in the long table only."""
MOST_NAMED = 4
"""Most cards of the first tier that the headline names."""


@dataclass(frozen=True)
class RankedCard:
    """One line of the ranking."""

    card: str
    tier: int
    """Cards of one tier are too close to its first card to call; 0 without a figure in the first class."""
    ratios: Mapping[str, SpeedRatio]
    """Speed relative to the reference, by class; only classes in which the card has a figure."""
    sources: int
    figures: int
    dollars: float | None
    """Per hour."""
    per_dollar: SpeedRatio | None
    """Training per dollar relative to the reference, in the first class."""


@dataclass(frozen=True)
class Ranking:
    """All cards in order, the fastest first."""

    lines: tuple[RankedCard, ...]
    reference: str
    classes: tuple[str, ...]
    families: tuple[str, ...]
    figures: int
    sources: int

    def best_known(self, most: int) -> tuple[RankedCard, ...]:
        """Return `most` cards: the reference, the fastest, and by turns the best measured of each architecture.

        Cards with a price are added.
        """
        by_architecture: dict[str, list[RankedCard]] = defaultdict(list)
        for line in sorted(self.lines, key=lambda line: -line.figures):
            name = architecture(line.card)
            if line.figures >= LEAST_FIGURES and self.classes[0] in line.ratios and "laptop" not in name:
                by_architecture[name].append(line)
        turns = sorted(
            (turn, -line.figures, line.card) for lines in by_architecture.values() for turn, line in enumerate(lines)
        )
        kept = list(dict.fromkeys([self.reference, self.best.card, *(card for _, _, card in turns)]))[:most]
        return tuple(line for line in self.lines if line.card in kept or line.dollars is not None)

    @property
    def ranked(self) -> tuple[RankedCard, ...]:
        """Return the cards with a figure in the first class."""
        return tuple(line for line in self.lines if line.tier)

    @property
    def best(self) -> RankedCard:
        """Return the fastest card that is not the reference."""
        return next(line for line in self.ranked if line.card != self.reference)


def rank(
    model: Model,
    reference: str = REFERENCE,
    classes: Sequence[str] = DEFAULT_CLASSES,
    families: Sequence[str] = FAMILIES,
    dollars: Mapping[str, float] | None = None,
) -> Ranking:
    """Return all cards with a figure in one of the classes and families, by their speed in the first class.

    `dollars`: per hour, by card.
    """
    groups = [group for group in model.groups if group.family in families]
    dollars = dollars or {}
    cards = list(dict.fromkeys([*(group.card for group in groups if group.kind in classes), reference]))
    ratios = {}
    for kind in classes:
        means, spread = model.speeds(cards, kind, families)
        ratios[kind] = [ratio_between(means, spread, at, cards.index(reference)) for at in range(len(cards))]
    order = sorted(range(len(cards)), key=lambda at: -ratios[classes[0]][at].value)
    ranked = [cards[at] for at in order if model.has_figures(cards[at], classes[0], families)]
    tiers = _tiers(model, ranked, classes[0], families)
    sources: dict[str, set[str]] = defaultdict(set)
    figures: Counter[str] = Counter()
    for group in groups:
        sources[group.card].add(group.source)
        figures[group.card] += len(group.figures)
    lines = []
    for at in order:
        card = cards[at]
        card_ratios = {kind: ratios[kind][at] for kind in classes if model.has_figures(card, kind, families)}
        hourly, speed = dollars.get(card), card_ratios.get(classes[0])
        share = dollars[reference] / hourly if hourly and reference in dollars else None
        lines.append(
            RankedCard(
                card=card,
                tier=tiers.get(card, 0),
                ratios=card_ratios,
                sources=len(sources[card]),
                figures=figures[card],
                dollars=hourly,
                per_dollar=speed.scaled(share) if speed and share else None,
            )
        )
    total = sum(len(group.figures) for group in model.groups)
    source_count = len({group.source for group in model.groups})
    return Ranking(tuple(lines), reference, tuple(classes), tuple(families), total, source_count)


def _tiers(model: Model, ranked: Sequence[str], kind: str, families: Sequence[str]) -> dict[str, int]:
    """Return the tier of each card. A new tier starts at a card that differs from the first card of the tier."""
    means, spread = model.speeds(ranked, kind, families)
    tiers: dict[str, int] = {}
    first, tier = 0, 1
    for at, card in enumerate(ranked):
        if at != first and ratio_between(means, spread, at, first).differs:
            first, tier = at, tier + 1
        tiers[card] = tier
    return tiers


def answer(ranking: Ranking, published: Published, drawn: Sequence[RankedCard]) -> Answer:
    """Return the headline, the table of all cards, a chart of the `drawn` ones, and notes."""
    columns = [Column("tier", "count"), Column("card")]
    columns += [Column(kind, "ratio", "higher", level=90) for kind in ranking.classes]
    columns += [Column("sources", "count"), Column("figures", "count"), Column("year")]
    columns += [Column("memory", "GB"), Column("watts", "W"), Column("dollars an hour", "dollars")]
    columns += [Column("per dollar", "ratio", "higher", level=90)]
    lines = []
    for line in ranking.lines:
        sheet = data_sheets()[line.card]
        values: list[Value] = [line.tier or None, line.card]
        values += [line.ratios.get(kind) for kind in ranking.classes]
        values += [line.sources, line.figures, str(sheet.year), sheet.memory_gb, sheet.watts, line.dollars]
        lines.append((*values, line.per_dollar))
    return answer_with(
        headline(ranking),
        f"speed relative to {ranking.reference}",
        (Table("cards", tuple(columns), tuple(lines)),),
        notes(ranking, published),
        charts=(chart(ranking, drawn),),
    )


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


def short_table(ranking: Ranking, lines: Sequence[RankedCard]) -> Table:
    """Return the table with fewer columns, for a terminal."""
    priced = any(line.dollars is not None for line in lines)
    kinds = ranking.classes[:1] if priced else ranking.classes  # a second class and prices are too wide
    columns = [Column("card"), Column("#", "count")]
    for kind in kinds:
        columns += [Column(CLASSES[kind].head, "ratio"), Column("90%", "range")]
    columns += [Column("src", "count"), Column("GB", "GB", places=0), Column("W", "W")]
    columns += [Column("$/h", "$", places=2), Column("per $", "ratio")] if priced else []
    rows = []
    for line in lines:
        sheet = data_sheets()[line.card]
        values: list[Value] = [line.card, line.tier or None]
        for kind in kinds:
            ratio = line.ratios.get(kind)
            values += [gain(ratio.value) if ratio else "-", _range(ratio)]
        values += [line.sources, sheet.memory_gb, f"{sheet.watts:.0f}" if sheet.watts else ""]
        values += [line.dollars, gain(line.per_dollar.value) if line.per_dollar else ""] if priced else []
        rows.append(tuple(values))
    return Table(f"times as fast as {ranking.reference}", tuple(columns), tuple(rows))


def without(table: Table, name: str) -> Table:
    """Return the table without a column."""
    kept = [at for at, column in enumerate(table.columns) if column.name != name]
    columns = tuple(table.columns[at] for at in kept)
    return Table(table.name, columns, tuple(tuple(line[at] for at in kept) for line in table.lines))


def _range(ratio: SpeedRatio | None) -> str:
    return f"{gain(ratio.low)}-{gain(ratio.high)}" if ratio and _interval(ratio) else ""


def headline(ranking: Ranking) -> str:
    """Return the one-sentence summary of the ranking."""
    firsts, best = [line.card for line in ranking.ranked if line.tier == 1], ranking.best
    ratio = best.ratios[ranking.classes[0]]
    *others, last = firsts
    if len(firsts) > MOST_NAMED:
        who = f"one of {len(firsts)}, {firsts[0]} to {last},"
    else:
        who = f"{', '.join(others)} or {last}" if others else last
    what = "" if len(ranking.families) > 1 else f" of {ranking.families[0]} models"
    return (
        f"Of {len(ranking.ranked)} cards {who} trains fastest in {CLASSES[ranking.classes[0]].name}{what}."
        f" {best.card} is {times(ratio.value)} as fast as {ranking.reference} ({ratio.interval_text}),"
        f" by a model of {ranking.figures:,} published figures from {ranking.sources} sources."
    )


def rank_sentence(ranking: Ranking, card: str) -> str:
    """Return `RTX 4090 is number 15 of 65 cards in half precision, 0.80 times as fast as ... (90%: 0.68 to 0.95)`."""
    cards = [line.card for line in ranking.ranked]
    line = next(line for line in ranking.lines if line.card == card)
    parts = [f"{card} is number {cards.index(card) + 1} of {len(cards)} cards in {CLASSES[ranking.classes[0]].name}"]
    for kind, ratio in line.ratios.items() if card != ranking.reference else ():
        where = f" in {CLASSES[kind].name}" if len(parts) > 1 else f" as fast as {ranking.reference}"
        parts.append(f"{times(ratio.value)}{where} ({ratio.interval_text})")
    return f"{', '.join(parts)}."


def notes(ranking: Ranking, published: Published) -> list[str]:
    """Return the notes below the table: what its symbols mean, and how accurate it is."""
    errors, first = prediction_errors(), CLASSES[ranking.classes[0]].name
    lines = [
        "Same #: too close to call. -: no data.",
        f"Typical prediction error: {errors['median_error']:.0%}"
        f" ({errors['median_error_source']:.0%} for a new source)."
        f" The 90% intervals contain {errors['in_interval']:.0%} of left-out figures.",
    ]
    if "single" in ranking.classes:
        lines.append(TF32_NOTE)
    priced = {line.card for line in ranking.lines if line.dollars is not None}
    if priced and ranking.reference not in priced:
        lines.append(f"{ranking.reference} has no price, so no speed per dollar: --relative-to a card with a price.")
    if priced and len(ranking.classes) > 1:
        lines.append(f"Per dollar: in {first} (--precision for another).")
    if len(ranking.families) > 1:
        lines.append("Mean of convolution and matmul models (--family for one).")
    else:
        lines.append(f"Only {ranking.families[0]} models.")
    more = f"{len(published.left_out)} figures are left out: --sources. All cards: --all. "
    return [*lines, f'{more}Two cards: gpubench cards "4090" "3090".']


def chart(ranking: Ranking, lines: Sequence[RankedCard]) -> Bars:
    """Return a chart with a dot and an interval for each card."""
    kind = ranking.classes[0]
    bars = [
        Bar(line.card, line.ratios[kind].value, _interval(line.ratios[kind])) for line in lines if kind in line.ratios
    ]
    best, where = ranking.best, CLASSES[kind].name
    return Bars(
        name=f"cards-{kind}",
        title=f"{best.card} trains {times(best.ratios[kind].value)} as fast as {ranking.reference} in {where}",
        subtitle=f"Training speed relative to {ranking.reference} with 90% intervals; higher is better",
        groups=(BarGroup("", tuple(bars)),),
        unit="ratio",
        reference=1.0,
        foot=f"{ranking.figures:,} published figures from {ranking.sources} sources, by a model of cards and recipes",
    )


def _interval(ratio: SpeedRatio) -> tuple[float, float] | None:
    """Return the ends of the interval; None for a card relative to itself."""
    return None if ratio.low == ratio.high else (ratio.low, ratio.high)
