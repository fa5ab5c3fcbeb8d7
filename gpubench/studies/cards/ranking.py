"""The ranked table of all cards that anybody published a figure of, and its chart."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubench.studies.cards import REFERENCE
from gpubench.studies.cards.asked import SHOWN
from gpubench.studies.cards.boards import architecture, boards
from gpubench.studies.cards.figures import CLASSES, Published
from gpubench.studies.cards.model import FAMILIES, Model, Ratio, checked, over
from gpubench.studies.section import Answer, Bar, BarGroup, Bars, Column, Estimate, Section, Table, Value
from gpubench.studies.words import gain, times

MOST_LINES, MOST_DRAWN = 27, 12
"""Cards on the short table, and on a chart of 1200 x 675."""
LEAST_FIGURES = 6
"""A card with fewer is on the long table only."""
MOST_NAMED = 4
"""Cards of the first tier in a sentence."""


@dataclass(frozen=True)
class Line:
    """What is known of a card."""

    card: str
    tier: int
    """Cards of one tier cannot be told from its first; 0 without a figure in the class that orders."""
    ratios: Mapping[str, Ratio]
    """By class, how many times as fast as the reference; only classes in which it has a figure."""
    sources: int
    figures: int
    dollars: float | None
    """An hour."""
    per_dollar: Ratio | None
    """How many times as much it trains for a dollar as the reference, in the class that orders."""


@dataclass(frozen=True)
class Ranking:
    """All cards in order, the fastest first."""

    lines: tuple[Line, ...]
    reference: str
    classes: tuple[str, ...]
    families: tuple[str, ...]
    figures: int
    sources: int

    def best_known(self, most: int) -> tuple[Line, ...]:
        """The reference, the fastest, those with a price, and of each architecture in turn the best known one."""
        waiting: dict[str, list[Line]] = defaultdict(list)
        for line in sorted(self.lines, key=lambda line: -line.figures):
            own = architecture(line.card)
            if line.figures >= LEAST_FIGURES and self.classes[0] in line.ratios and "laptop" not in own:
                waiting[own].append(line)
        turns = sorted((at, -line.figures, line.card) for own in waiting.values() for at, line in enumerate(own))
        kept = list(dict.fromkeys([self.reference, self.best.card, *(card for _, _, card in turns)]))[:most]
        return tuple(line for line in self.lines if line.card in kept or line.dollars is not None)

    @property
    def ranked(self) -> tuple[Line, ...]:
        """The cards with a figure in the class that orders."""
        return tuple(line for line in self.lines if line.tier)

    @property
    def best(self) -> Line:
        """The fastest beside the reference."""
        return next(line for line in self.ranked if line.card != self.reference)


def rank(
    model: Model,
    reference: str = REFERENCE,
    classes: Sequence[str] = SHOWN,
    families: Sequence[str] = FAMILIES,
    dollars: Mapping[str, float] | None = None,
) -> Ranking:
    """Every card that has a figure in one of the classes and families, in the order of the first class.

    `dollars`: an hour, by card.
    """
    cells = [cell for cell in model.cells if cell.family in families]
    dollars = dollars or {}
    cards = list(dict.fromkeys([*(cell.card for cell in cells if cell.kind in classes), reference]))
    ratios = {}
    for kind in classes:
        means, spread = model.speeds(cards, kind, families)
        ratios[kind] = [over(means, spread, at, cards.index(reference)) for at in range(len(cards))]
    order = sorted(range(len(cards)), key=lambda at: -ratios[classes[0]][at].value)
    ranked = [cards[at] for at in order if model.knows(cards[at], classes[0], families)]
    tiers = _tiers(model, ranked, classes[0], families)
    sources: dict[str, set[str]] = defaultdict(set)
    figures: Counter[str] = Counter()
    for cell in cells:
        sources[cell.card].add(cell.source)
        figures[cell.card] += len(cell.figures)
    lines = []
    for at in order:
        card = cards[at]
        own = {kind: ratios[kind][at] for kind in classes if model.knows(card, kind, families)}
        hourly, speed = dollars.get(card), own.get(classes[0])
        share = dollars[reference] / hourly if hourly and reference in dollars else None
        lines.append(
            Line(
                card=card,
                tier=tiers.get(card, 0),
                ratios=own,
                sources=len(sources[card]),
                figures=figures[card],
                dollars=hourly,
                per_dollar=scaled(speed, share) if speed and share else None,
            )
        )
    total = sum(len(cell.figures) for cell in model.cells)
    every = {cell.source for cell in model.cells}
    return Ranking(tuple(lines), reference, tuple(classes), tuple(families), total, len(every))


def scaled(ratio: Ratio, factor: float) -> Ratio:
    """The ratio and its interval times a factor."""
    return Ratio(ratio.value * factor, ratio.low * factor, ratio.high * factor)


def _tiers(model: Model, ranked: Sequence[str], kind: str, families: Sequence[str]) -> dict[str, int]:
    """A card opens a tier where it can be told from the first card of the tier above."""
    means, spread = model.speeds(ranked, kind, families)
    tiers: dict[str, int] = {}
    first, tier = 0, 1
    for at, card in enumerate(ranked):
        if at != first and over(means, spread, at, first).told_apart:
            first, tier = at, tier + 1
        tiers[card] = tier
    return tiers


def answer(ranking: Ranking, published: Published, drawn: Sequence[Line]) -> Answer:
    """All cards as a typed table, a chart of some, and what to know of both."""
    columns = [Column("tier", "count"), Column("card")]
    columns += [Column(kind, "ratio", "higher", level=90) for kind in ranking.classes]
    columns += [Column("sources", "count"), Column("figures", "count"), Column("year")]
    columns += [Column("memory", "GB"), Column("watts", "W"), Column("dollars an hour", "dollars")]
    columns += [Column("per dollar", "ratio", "higher", level=90)]
    lines = []
    for line in ranking.lines:
        board = boards()[line.card]
        cells: list[Value] = [line.tier or None, line.card]
        cells += [_estimate(line.ratios.get(kind)) for kind in ranking.classes]
        cells += [line.sources, line.figures, str(board.year), board.memory_gb, board.watts, line.dollars]
        lines.append((*cells, _estimate(line.per_dollar)))
    return answered(
        headline(ranking),
        f"speed relative to {ranking.reference}",
        (Table("cards", tuple(columns), tuple(lines)),),
        notes(ranking, published),
        charts=(chart(ranking, drawn),),
    )


def answered(
    headline: str,
    title: str,
    tables: Sequence[Table],
    notes: Sequence[str] = (),
    *,
    charts: Sequence[Bars] = (),
    left_out: Sequence[str] = (),
) -> Answer:
    """What faces show: a sentence, and one section."""
    section = Section(
        "cards", "", title, tables=tuple(tables), charts=tuple(charts), notes=tuple(notes), left_out=tuple(left_out)
    )
    return Answer(headline, findings=(), sections=(section,), metric="speed", unit="ratio")


def _estimate(ratio: Ratio | None) -> Estimate | None:
    return None if ratio is None else Estimate(ratio.value, ratio.low, ratio.high)


def short_table(ranking: Ranking, lines: Sequence[Line]) -> Table:
    """The same in so few columns that a terminal holds them beside each other, or nearly so (`without`)."""
    priced = any(line.dollars is not None for line in lines)
    kinds = ranking.classes[:1] if priced else ranking.classes  # there is no room for a second class beside prices
    columns = [Column("card"), Column("#", "count")]
    for kind in kinds:
        columns += [Column(CLASSES[kind].head, "ratio"), Column("90%", "range")]
    columns += [Column("src", "count"), Column("GB", "GB", places=0), Column("W", "W")]
    columns += [Column("$/h", "$", places=2), Column("per $", "ratio")] if priced else []
    rows = []
    for line in lines:
        board = boards()[line.card]
        cells: list[Value] = [line.card, line.tier or None]
        for kind in kinds:
            ratio = line.ratios.get(kind)
            cells += [gain(ratio.value) if ratio else "-", _range(ratio)]
        cells += [line.sources, board.memory_gb, f"{board.watts:.0f}" if board.watts else ""]
        cells += [line.dollars, gain(line.per_dollar.value) if line.per_dollar else ""] if priced else []
        rows.append(tuple(cells))
    return Table(f"times as fast as {ranking.reference}", tuple(columns), tuple(rows))


def without(table: Table, name: str) -> Table:
    """The table without a column."""
    kept = [at for at, column in enumerate(table.columns) if column.name != name]
    columns = tuple(table.columns[at] for at in kept)
    return Table(table.name, columns, tuple(tuple(line[at] for at in kept) for line in table.lines))


def _range(ratio: Ratio | None) -> str:
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
        f"Of {len(ranking.ranked)} cards {who} trains fastest in {CLASSES[ranking.classes[0]].called}{what}."
        f" {best.card} is {times(ratio.value)} as fast as {ranking.reference} (90%: {gain(ratio.low)} to"
        f" {gain(ratio.high)}), by a model of {ranking.figures:,} published figures of {ranking.sources} sources."
    )


def standing(ranking: Ranking, card: str) -> str:
    """`RTX 4090 is number 15 of 65 cards in half precision, 0.80 times as fast as ... (90%: 0.68 to 0.95)`."""
    cards = [line.card for line in ranking.ranked]
    line = next(line for line in ranking.lines if line.card == card)
    said = [f"{card} is number {cards.index(card) + 1} of {len(cards)} cards in {CLASSES[ranking.classes[0]].called}"]
    for kind, ratio in line.ratios.items() if card != ranking.reference else ():
        where = f" in {CLASSES[kind].called}" if len(said) > 1 else f" as fast as {ranking.reference}"
        said.append(f"{times(ratio.value)}{where} (90%: {gain(ratio.low)} to {gain(ratio.high)})")
    return f"{', '.join(said)}."


def notes(ranking: Ranking, published: Published) -> list[str]:
    """What the figures of the table are worth."""
    check = checked()
    said = [
        "Same # (counted over all cards): too close to call. -: no data.",
        f"Typical prediction error: {check['median_error']:.0%}, or {check['median_error_source']:.0%} for a source"
        f" that is new to the card. {check['in_interval']:.0%} of left-out figures lie in their 90% interval.",
    ]
    if "single" in ranking.classes:
        said.append("fp32: TF32 where the card has it (from Ampere on).")
    priced = {line.card for line in ranking.lines if line.dollars is not None}
    if priced and ranking.reference not in priced:
        said.append(f"{ranking.reference} has no price, so none can be held against it: --relative-to one that has.")
    if priced and len(ranking.classes) > 1:
        said.append(f"Per dollar in {CLASSES[ranking.classes[0]].called}; another: --precision.")
    if len(ranking.families) > 1:
        said.append("Typical of convolution and matmul models alike; one kind: --family.")
    else:
        said.append(f"Of {ranking.families[0]} models only.")
    more = f"{len(published.left_out)} figures are left out: --sources. Every card: --all. "
    return [*said, f'{more}Two of them: gpubench cards "4090" "3090".']


def chart(ranking: Ranking, lines: Sequence[Line]) -> Bars:
    """Dots with whiskers."""
    kind = ranking.classes[0]
    bars = [
        Bar(line.card, line.ratios[kind].value, _interval(line.ratios[kind])) for line in lines if kind in line.ratios
    ]
    best, title = ranking.best, CLASSES[kind].title
    return Bars(
        name=f"cards-{kind}",
        title=f"{best.card} trains {times(best.ratios[kind].value)} as fast as {ranking.reference} in {title}",
        subtitle=f"Training speed relative to {ranking.reference} with 90% intervals; higher is better",
        groups=(BarGroup("", tuple(bars)),),
        unit="ratio",
        reference=1.0,
        foot=f"{ranking.figures:,} published figures of {ranking.sources} sources, by a model of cards and recipes",
    )


def _interval(ratio: Ratio) -> tuple[float, float] | None:
    """None for a card over itself."""
    return None if ratio.low == ratio.high else (ratio.low, ratio.high)
