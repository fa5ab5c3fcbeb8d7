"""One card against another: the answer as a sentence, and every published figure that speaks for it or against it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubench.studies.cards.figures import Cell, Figure, Published
from gpubench.studies.cards.model import Model, Ratio
from gpubench.studies.cards.ranking import CALLED, answered, dollars_of, scaled
from gpubench.studies.section import Answer, Column, Estimate, Table, Value
from gpubench.studies.words import gain, listed, times

REMARKS = ("modified memory", "vGPU")
"""How notes begin that say why a figure may not be what the card does."""
BRIEF_COLUMNS, BRIEF_LINES = 6, 16
"""Of the table of pairs, what a screen shows."""


@dataclass(frozen=True)
class Pair:
    """Two cells of one recipe: what one source measured on both cards."""

    one: Cell
    other: Cell

    @property
    def ratio(self) -> float:
        """How many times as fast the first one was."""
        return speed_of(self.one) / speed_of(self.other)

    @property
    def remarks(self) -> list[str]:
        """What to know of its figures, with the card."""
        return [
            f"{cell.card}: {remark}"
            for cell in (self.one, self.other)
            for remark in dict.fromkeys(part for each in cell.figures for part in each.note.split("; "))
            if remark.startswith(REMARKS)
        ]

    def twins(self, pairs: Sequence["Pair"]) -> bool:
        """Whether one of these differs from it by its framework alone."""
        own = self.one
        return any(
            (own.source, own.workload, own.kind) == (each.one.source, each.one.workload, each.one.kind)
            and own.framework != each.one.framework
            for each in pairs
        )


def speed_of(cell: Cell) -> float:
    """The median of its speeds."""
    return math.exp(cell.log_speed)


def pairs_of(cells: Sequence[Cell], card: str, other: str) -> list[Pair]:
    """What sources measured on both, the least favourable to the first one first."""
    by_recipe: dict[tuple[str, ...], dict[str, list[Cell]]] = {}
    for cell in cells:
        if cell.card in {card, other}:
            by_recipe.setdefault(cell.recipe, {}).setdefault(cell.card, []).append(cell)
    found = [Pair(one, two) for own in by_recipe.values() for one in own.get(card, ()) for two in own.get(other, ())]
    return sorted(found, key=lambda pair: pair.ratio)


def answer(
    model: Model,
    published: Published,
    cards: tuple[str, str],
    classes: Sequence[str],
    families: Sequence[str],
    prices: Mapping[str, float] | None = None,
) -> Answer:
    """The first card over the second: the answer, what it rests on, and the figures of both for it and against it."""
    card, other = cards
    both = [kind for kind in classes if all(_has(model, each, kind) for each in cards)]
    kinds = both or [kind for kind in classes if any(_has(model, each, kind) for each in cards)]
    ratios = {kind: model.ratio(card, other, kind, families) for kind in kinds}
    pairs = [
        pair
        for pair in pairs_of(published.cells, card, other)
        if pair.one.kind in classes and pair.one.family in families
    ]
    said = [*_worth(model, ratios, card, other, families, prices), *_evidence(ratios, pairs, card, other)]
    said += [
        f"{each} has no figure in {CALLED[kind]}: it is placed by its others and by its architecture."
        for kind in ratios
        for each in cards
        if not _has(model, each, kind)
    ]
    lines = [(kind, Estimate(ratio.value, ratio.low, ratio.high)) for kind, ratio in ratios.items()]
    what = f"{card} / {other}"
    tables = [Table("answer", (Column("class"), Column(what, "ratio", "higher")), tuple(lines))]
    tables += [pair_table(pairs, card, other)] if pairs else []
    return answered(sentence(ratios, card, other, classes), what, tables, said)


def _has(model: Model, card: str, kind: str) -> bool:
    return any(cell.card == card and cell.kind == kind for cell in model.cells)


def sentence(ratios: Mapping[str, Ratio], card: str, other: str, classes: Sequence[str]) -> str:
    """`A trains 1.6 times as fast as B in half precision (90%: 1.4 to 1.9), and 1.7 times in ...`."""
    if not ratios:
        names = " or ".join(CALLED[kind] for kind in classes)
        return f"{card} and {other} cannot be compared: there are no figures of both in {names}."
    parts: list[str] = []
    for kind, ratio in ratios.items():
        span = f"(90%: {gain(ratio.low)} to {gain(ratio.high)})"
        if not parts:
            verb = "trains" if ratio.told_apart else "may train"
            parts.append(f"{card} {verb} {times(ratio.value)} as fast as {other} in {CALLED[kind]} {span}")
        else:
            parts.append(f"{times(ratio.value)} in {CALLED[kind]} {span}")
    return f"{', and '.join(parts)}."


def _worth(
    model: Model,
    ratios: Mapping[str, Ratio],
    card: str,
    other: str,
    families: Sequence[str],
    prices: Mapping[str, float] | None,
) -> list[str]:
    """What that is in dollars, and how far a workload of one's own may be from it."""
    if not ratios:
        return []
    kind, ratio = next(iter(ratios.items()))
    alone = model.one_workload(card, other, kind, families)
    dollars = dollars_of([card, other], prices)
    if len(dollars) == 2:
        value = scaled(ratio, dollars[other] / dollars[card])
        said = (
            f"At {dollars[card]:.3g} and {dollars[other]:.3g} dollars an hour {card} trains {times(value.value)} as"
            f" much for a dollar (90%: {gain(value.low)} to {gain(value.high)})"
        )
    else:
        better = f"{gain(ratio.low)} to {gain(ratio.high)}"
        said = f"If speed is all that counts, {card} is worth {times(ratio.value)} the price of {other} ({better})"
    return [
        f"{said}, in {CALLED[kind]}.",
        f"That is typical; on one workload of your own expect {gain(alone.low)} to {times(alone.high)} (9 of 10).",
    ]


def _evidence(ratios: Mapping[str, Ratio], pairs: Sequence[Pair], card: str, other: str) -> list[str]:
    """How many figures say so, and how many say the contrary."""
    if not ratios:
        return []
    if not pairs:
        return [f"No source has both: the answer goes over other cards that were measured beside {card} and {other}."]
    sources = {pair.one.source for pair in pairs}
    faster = next(iter(ratios.values())).value >= 1
    against = [pair for pair in pairs if (pair.ratio >= 1) != faster]
    measured = f"{len(sources)} source{'s have' if len(sources) > 1 else ' has'} both, {len(pairs)} times on one recipe"
    if not against:
        return [f"{measured}; none says the contrary. The one that says least is first."]
    names = listed(dict.fromkeys(pair.one.source for pair in against))
    return [
        f"{measured}; {len(against)} of them say{'s' * (len(against) == 1)} the contrary ({names}). They are first."
    ]


def pair_table(pairs: Sequence[Pair], card: str, other: str) -> Table:
    """Each recipe that was measured on both."""
    says = sum(pair.ratio >= 1 for pair in pairs) * 2 >= len(pairs)
    columns = (
        Column("workload"),
        Column("class"),
        Column("ratio", "ratio", "higher", places=2),
        Column(card, "x"),
        Column(other, "x"),
        Column("source", note=True),
        Column("unit"),
        Column("files"),
    )
    lines: list[tuple[Value, ...]] = []
    for pair in pairs if says else reversed(pairs):
        one, two = pair.one.figures[0], pair.other.figures[0]
        figures = (_shown(pair.one), _shown(pair.other))
        where = " and ".join(dict.fromkeys((one.file, two.file)))
        recipe = f"{one.workload}, {one.framework}" if pair.twins(pairs) else one.workload
        source = "; ".join([f"{one.source}@{one.commit}", *pair.remarks])
        lines.append((recipe, pair.one.kind, pair.ratio, *figures, source, one.unit, where))
    return Table("measured on both", columns, tuple(lines))


def brief(table: Table, every: bool) -> Table:
    """The table of `pair_table` in as many columns, and unless `every` in as many lines, as a screen holds."""
    columns, lines = table.columns[:BRIEF_COLUMNS], tuple(line[:BRIEF_COLUMNS] for line in table.lines)
    if every or len(lines) <= BRIEF_LINES:
        return Table(table.name, columns, lines)
    return Table(f"{table.name}: the first {BRIEF_LINES} of {len(lines)} (--all)", columns, lines[:BRIEF_LINES])


def _shown(cell: Cell) -> float:
    """In the unit of its figures."""
    return 1 / speed_of(cell) if cell.figures[0].unit == "seconds" else speed_of(cell)


def one_card(published: Published, card: str) -> Answer:
    """Every figure of a card with the file that it stands in."""
    columns = (
        Column("workload"),
        Column("class"),
        Column("precision"),
        Column("figure", "x"),
        Column("unit"),
        Column("line", "count"),
        Column("file", note=True),
    )
    used = [(cell.kind, figure) for cell in published.cells if cell.card == card for figure in cell.figures]
    lines = [
        (each.workload, kind, each.precision, each.figure, each.unit, each.line, _where(each)) for kind, each in used
    ]
    left_out = [
        f"{each.workload}, {each.figure:g} {each.unit}, {each.where}: {reason}"
        for each, reason in published.left_out
        if each.card == card
    ]
    sources = len({each.source for _, each in used})
    said = f"{card}: {len(used)} figures of {sources} source{'s' * (sources > 1)}; line: in public_speeds.csv."
    return answered(said, card, (Table("figures", columns, tuple(lines)),), left_out=left_out)


def _where(figure: Figure) -> str:
    return f"{figure.where}, {figure.note}" if figure.note else figure.where


def by_source(published: Published, source: str) -> Answer:
    """What one source says, workload by workload, the fastest card first."""
    cells = [cell for cell in published.cells if cell.source == source]
    cells.sort(key=lambda cell: (cell.workload, cell.framework, cell.kind, -cell.log_speed))
    columns = (
        Column("workload"),
        Column("framework"),
        Column("class"),
        Column("card"),
        Column("figure", "x"),
        Column("unit"),
    )
    lines = tuple(
        (cell.workload, cell.framework, cell.kind, cell.card, _shown(cell), cell.figures[0].unit) for cell in cells
    )
    commit = cells[0].figures[0].commit if cells else ""
    said = f"{source}@{commit}: {len(cells)} figures of {len({cell.card for cell in cells})} cards."
    return answered(said, source, (Table("figures", columns, lines),))
