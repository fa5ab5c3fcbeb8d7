"""The ranked table of all cards that anybody published a figure of, and its chart."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubench.errors import UserError
from gpubench.studies.cards.boards import architecture, boards
from gpubench.studies.cards.figures import CLASSES, Published, short_name
from gpubench.studies.cards.model import FAMILIES, Model, Ratio, checked, ratio_of
from gpubench.studies.section import Answer, Bar, BarGroup, Bars, Column, Estimate, Section, Table, Value
from gpubench.studies.words import gain, listed, times

REFERENCE = "A100-SXM4-80GB"
"""What speeds are relative to unless another is named."""
SHOWN = ("half", "single")
"""Classes in the table unless one is asked for; the first one orders it."""
MOST_LINES, MOST_DRAWN = 27, 12
"""Cards on the short table, and on a chart of 1200 x 675."""
LEAST_FIGURES = 6
"""A card with fewer is on the long table only."""
CALLED = {"half": "half precision", "single": "fp32 as the card does it", "strict": "fp32 without TF32"}
SHORT = {"half": "half precision", "single": "fp32", "strict": "fp32 without TF32"}
"""Where there is no room for more."""
HEADS = {"half": "half", "single": "fp32", "strict": "strict"}
"""Of columns: as few letters as say it."""


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
    """How many times as much it trains for a dollar as the reference."""


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
        """The reference, and of each architecture in turn the card with the most figures; no laptops."""
        waiting: dict[str, list[Line]] = defaultdict(list)
        for line in sorted(self.lines, key=lambda line: -line.figures):
            own = architecture(line.card)
            if line.figures >= LEAST_FIGURES and self.classes[0] in line.ratios and "laptop" not in own:
                waiting[own].append(line)
        turns = sorted((at, -line.figures, line.card) for own in waiting.values() for at, line in enumerate(own))
        kept = list(dict.fromkeys([self.reference, *(card for _, _, card in turns)]))[:most]
        return tuple(line for line in self.lines if line.card in kept)


def find_card(wish: str, cards: Sequence[str]) -> str:
    """The card that somebody calls `wish`: its name, that without its first words, or a part that no other card has.

    Raises UserError.
    """
    names = {_squashed(card): card for card in cards}
    wanted = _squashed(short_name(wish))
    for before in ("", "rtx", "gtx", "radeon", "radeonrx", "intel"):
        if before + wanted in names:
            return names[before + wanted]
    holding = [card for name, card in names.items() if wanted and wanted in name]
    if len(holding) == 1:
        return holding[0]
    if holding:
        raise UserError(f"{wish}: which one? There is {listed(sorted(holding))}")
    from gpubench.analysis.metrics import did_you_mean

    raise UserError(f"{wish}: nobody published a figure of that card{did_you_mean(wish, cards)} (gpubench cards --all)")


def _squashed(name: str) -> str:
    """Letters and digits alone."""
    return "".join(filter(str.isalnum, name.lower()))


def rank(
    model: Model,
    reference: str = REFERENCE,
    classes: Sequence[str] = SHOWN,
    families: Sequence[str] = FAMILIES,
    prices: Mapping[str, float] | None = None,
) -> Ranking:
    """Every card that has a figure in one of the classes, in the order of the first one."""
    cells = model.cells
    counts = Counter((cell.card, cell.kind) for cell in cells)
    cards = [card for card in dict.fromkeys(cell.card for cell in cells) if any(counts[card, kind] for kind in classes)]
    cards = list(dict.fromkeys([*cards, reference]))
    ratios = {kind: _to_reference(model, cards, reference, kind, families) for kind in classes}
    order = sorted(cards, key=lambda card: -ratios[classes[0]][card].value)
    ranked = [card for card in order if counts[card, classes[0]]]
    tiers = _tiers(model, ranked, classes[0], families)
    sources: dict[str, set[str]] = defaultdict(set)
    figures: Counter[str] = Counter()
    for cell in cells:
        sources[cell.card].add(cell.source)
        figures[cell.card] += len(cell.figures)
    dollars = dollars_of(cards, prices)
    lines = []
    for card in order:
        own = {kind: ratios[kind][card] for kind in classes if counts[card, kind]}
        hourly, speed = dollars.get(card), next(iter(own.values()), None)
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
    total = sum(len(cell.figures) for cell in cells)
    return Ranking(
        tuple(lines), reference, tuple(classes), tuple(families), total, len({cell.source for cell in cells})
    )


def dollars_of(cards: Sequence[str], prices: Mapping[str, float] | None) -> dict[str, float]:
    """Dollars an hour of the cards that have a price."""
    if not prices:
        return {}
    from gpubench.analysis.metrics import price_of

    found = {card: price_of(card, prices) for card in cards}
    return {card: hourly for card, hourly in found.items() if not math.isnan(hourly)}


def scaled(ratio: Ratio, factor: float) -> Ratio:
    """The ratio and its interval times a factor."""
    return Ratio(ratio.value * factor, ratio.low * factor, ratio.high * factor)


def _to_reference(
    model: Model, cards: Sequence[str], reference: str, kind: str, families: Sequence[str]
) -> dict[str, Ratio]:
    means, spread = model.speeds(cards, kind, families)
    at = cards.index(reference)
    variances = [spread[n, n] + spread[at, at] - 2 * spread[n, at] for n in range(len(cards))]
    return {
        card: ratio_of(float(means[n] - means[at]), math.sqrt(max(variances[n], 0.0))) for n, card in enumerate(cards)
    }


def _tiers(model: Model, ranked: Sequence[str], kind: str, families: Sequence[str]) -> dict[str, int]:
    """A card opens a tier where it can be told from the first card of the tier above."""
    means, spread = model.speeds(ranked, kind, families)
    tiers: dict[str, int] = {}
    first, tier = 0, 1
    for at, card in enumerate(ranked):
        variance = spread[at, at] + spread[first, first] - 2 * spread[at, first]
        if at != first and ratio_of(float(means[at] - means[first]), math.sqrt(max(variance, 0.0))).told_apart:
            first, tier = at, tier + 1
        tiers[card] = tier
    return tiers


def answer(ranking: Ranking, published: Published, drawn: Sequence[Line]) -> Answer:
    """All cards as a typed table, a chart of some, and what to know of both."""
    columns = [Column("tier", "count"), Column("card")]
    columns += [Column(kind, "ratio", "higher") for kind in ranking.classes]
    columns += [Column("sources", "count"), Column("figures", "count"), Column("year")]
    columns += [Column("memory", "GB"), Column("watts", "W"), Column("dollars an hour", "dollars")]
    columns += [Column("per dollar", "ratio", "higher")]
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
    """The same in so few columns that a terminal holds them beside each other."""
    priced = any(line.dollars is not None for line in lines)
    columns = [Column("#", "count"), Column("card")]
    for kind in ranking.classes:
        columns += [Column(HEADS[kind], "ratio", places=2), Column("90%", "range")]
    columns += [Column("src", "count")]
    # There is no room for all four.
    last = [Column("$/h", "$", places=2), Column("per $", "ratio", places=2)]
    columns += last if priced else [Column("GB", "GB", places=0), Column("W", "W")]
    rows = []
    for line in lines:
        board = boards()[line.card]
        cells: list[Value] = [line.tier or None, line.card]
        for kind in ranking.classes:
            ratio = line.ratios.get(kind)
            cells += [ratio.value if ratio else "-", _range(ratio)]
        cells.append(line.sources)
        worth = line.per_dollar.value if line.per_dollar else None
        rows.append(
            (*cells, line.dollars, worth)
            if priced
            else (*cells, board.memory_gb, f"{board.watts:.0f}" if board.watts else "")
        )
    name = f"times as fast as {ranking.reference}"
    return Table(name, tuple(columns), tuple(rows))


def _range(ratio: Ratio | None) -> str:
    return f"{gain(ratio.low)}-{gain(ratio.high)}" if ratio and _interval(ratio) else ""


def headline(ranking: Ranking) -> str:
    """What is repeated at lunch."""
    kind = ranking.classes[0]
    first = max((line for line in ranking.lines if kind in line.ratios), key=lambda line: line.ratios[kind].value)
    best = first.ratios[kind]
    what = "" if len(ranking.families) > 1 else f" of {ranking.families[0]} models"
    return (
        f"Of {len(ranking.lines)} cards {first.card} trains fastest in {CALLED[kind]}{what}: {times(best.value)} as"
        f" fast as {ranking.reference} (90%: {gain(best.low)} to {gain(best.high)}), by a model of {ranking.figures:,}"
        f" published figures of {ranking.sources} sources."
    )


def notes(ranking: Ranking, published: Published) -> list[str]:
    """What the figures of the table are worth."""
    check = checked()
    said = [
        "Cards of one tier (#) cannot be told from its first one; - is no figure. A published figure that the model"
        f" has not seen it misses by {check['median_error']:.0%} (median; {check['median_error_source']:.0%} where the"
        f" source is new to the card), and {check['in_interval']:.0%} lie in their 90% interval (--score)."
    ]
    if "single" in ranking.classes:
        said.append("fp32: as the card does it, so TF32 from Ampere on.")
    if len(ranking.families) > 1:
        said.append("Typical of convolution and matmul models alike; one kind: --family.")
    else:
        said.append(f"Of {ranking.families[0]} models only.")
    more = f"{len(published.left_out)} figures are left out: --sources. Every card: --all. "
    return [*said, f'{more}Two of them: gpubench cards "4090" "3090".']


def chart(ranking: Ranking, lines: Sequence[Line]) -> Bars:
    """Dots with whiskers."""
    kind = ranking.classes[0]
    kept = [line for line in lines if kind in line.ratios]
    bars = [Bar(line.card, line.ratios[kind].value, _interval(line.ratios[kind])) for line in kept]
    best = kept[0]
    return Bars(
        name=f"cards-{kind}",
        title=f"{best.card} trains {times(best.ratios[kind].value)} as fast as {ranking.reference} in {SHORT[kind]}",
        subtitle=f"Training speed relative to {ranking.reference} with 90% intervals; higher is better",
        groups=(BarGroup("", tuple(bars)),),
        unit="ratio",
        reference=1.0,
        foot=f"{ranking.figures:,} published figures of {ranking.sources} sources, by a model of cards and recipes",
    )


def _interval(ratio: Ratio) -> tuple[float, float] | None:
    """None for a card over itself."""
    return None if ratio.low == ratio.high else (ratio.low, ratio.high)


def classes_of(wish: str) -> tuple[str, ...]:
    """The classes that --precision names; raises UserError."""
    if not wish:
        return SHOWN
    if wish not in CLASSES:
        raise UserError(f"--precision {wish}: there is {', '.join(CLASSES)}")
    return (wish,)


def families_of(wish: str) -> tuple[str, ...]:
    """The kinds of models that --family names; raises UserError."""
    if not wish:
        return FAMILIES
    if wish not in FAMILIES:
        raise UserError(f"--family {wish}: there is {' and '.join(FAMILIES)}")
    return (wish,)
