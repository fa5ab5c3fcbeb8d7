"""One card against another: the answer as a sentence, and every published figure that speaks for it or against it."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpubench.studies.cards.figures import CLASSES, Cell, Figure, Published
from gpubench.studies.cards.model import Model, Ratio
from gpubench.studies.cards.ranking import Ranking, answered, scaled, standing
from gpubench.studies.section import Answer, Column, Estimate, Table, Value
from gpubench.studies.words import gain, listed, times

REMARKS = ("modified memory", "vGPU")
"""How notes begin that say why a figure may not be what the card does."""
BRIEF_COLUMNS, BRIEF_LINES = 6, 8
"""Of the table of pairs, what a screen shows: so many lines of either end."""


@dataclass(frozen=True)
class Pair:
    """Two cells of one recipe: what one source measured on both cards."""

    one: Cell
    other: Cell

    @property
    def ratio(self) -> float:
        """How many times as fast the first one was."""
        return self.one.speed / self.other.speed

    @property
    def remarks(self) -> list[str]:
        """What to know of its figures, with the card."""
        versions = [cell.software or "unsaid" for cell in (self.one, self.other)]
        differ = [f"{versions[0]} against {versions[1]}"] if versions[0] != versions[1] else []
        return differ + [
            f"{cell.card}: {remark}"
            for cell in (self.one, self.other)
            for remark in dict.fromkeys(part for each in cell.figures for part in each.note.split("; "))
            if remark.startswith(REMARKS)
        ]


def pairs_of(cells: Sequence[Cell], card: str, other: str) -> list[Pair]:
    """What sources measured on both."""
    by_recipe: dict[tuple[str, ...], dict[str, list[Cell]]] = {}
    for cell in cells:
        if cell.card in {card, other}:
            by_recipe.setdefault(cell.recipe, {}).setdefault(cell.card, []).append(cell)
    return [Pair(one, two) for own in by_recipe.values() for one in own.get(card, ()) for two in own.get(other, ())]


def answer(
    model: Model,
    published: Published,
    cards: tuple[str, str],
    classes: Sequence[str],
    families: Sequence[str],
    dollars: Mapping[str, float] | None = None,
) -> Answer:
    """The first card over the second: the answer, what it rests on, and the figures of both for it and against it.

    `dollars`: an hour, by card.
    """
    card, other = cards
    kinds = [kind for kind in classes if any(model.knows(each, kind, families) for each in cards)]
    kinds.sort(key=lambda kind: not all(model.knows(each, kind, families) for each in cards))
    ratios = {kind: model.ratio(card, other, kind, families) for kind in kinds}
    pairs = [
        pair
        for pair in pairs_of(published.cells, card, other)
        if pair.one.kind in classes and pair.one.family in families
    ]
    pairs.sort(key=lambda pair: _agreement(pair, ratios))
    said = [*_by_family(model, ratios, cards, families), *_worth(model, ratios, cards, families, dollars or {})]
    said += [*_evidence(ratios, pairs, card, other), *_missing(model, ratios, cards, families)]
    lines = [(kind, Estimate(ratio.value, ratio.low, ratio.high)) for kind, ratio in ratios.items()]
    what = f"{card} / {other}"
    tables = [Table("answer", (Column("class"), Column(what, "ratio", "higher", level=90)), tuple(lines))]
    tables += [pair_table(pairs, card, other)] if pairs else []
    return answered(sentence(ratios, cards, classes, families), what, tables, said)


def _agreement(pair: Pair, ratios: Mapping[str, Ratio]) -> float:
    """The logarithm of a pair's ratio in the direction of the model's; below 0 where they disagree."""
    return math.log(pair.ratio) * (1 if ratios[pair.one.kind].value >= 1 else -1)


def sentence(
    ratios: Mapping[str, Ratio], cards: tuple[str, str], classes: Sequence[str], families: Sequence[str]
) -> str:
    """`A trains 1.6 times as fast as B in half precision (90%: 1.4 to 1.9), and 1.7 times in ...`."""
    card, other = cards
    if not ratios:
        names = " or ".join(CLASSES[kind].called for kind in classes)
        models = " and ".join(families)
        return f"{card} and {other} cannot be compared: there are no figures of them on {models} models in {names}."
    told = {kind: ratio for kind, ratio in ratios.items() if ratio.told_apart}
    parts = [
        f"{times(ratio.value)}{'' if at else f' as fast as {other}'} in {CLASSES[kind].called} ({_span(ratio)})"
        for at, (kind, ratio) in enumerate(told.items())
    ]
    said = [f"{card} trains {', and '.join(parts)}."] if told else []
    unsure = [
        f"{CLASSES[kind].called} ({times(ratios[kind].value)}; {_span(ratios[kind])})"
        for kind in ratios
        if kind not in told
    ]
    who = "They" if told else f"{card} and {other}"
    said += [f"{who} cannot be told apart in {', nor in '.join(unsure)}."] if unsure else []
    return " ".join(said)


def _span(ratio: Ratio) -> str:
    return f"90%: {gain(ratio.low)} to {gain(ratio.high)}"


def _by_family(model: Model, ratios: Mapping[str, Ratio], cards: tuple[str, str], families: Sequence[str]) -> list[str]:
    """Where kinds of models differ, each of them: what is typical of both is typical of neither."""
    said = []
    for kind in ratios:
        own = {family: model.ratio(*cards, kind, [family]) for family in families}
        if max(ratio.low for ratio in own.values()) > min(ratio.high for ratio in own.values()):
            parts = [f"{times(ratio.value)} on {family} models ({_span(ratio)})" for family, ratio in own.items()]
            said.append(f"In {CLASSES[kind].called} that is the mean of two that differ: {listed(parts)}.")
    return said


def _worth(
    model: Model,
    ratios: Mapping[str, Ratio],
    cards: tuple[str, str],
    families: Sequence[str],
    dollars: Mapping[str, float],
) -> list[str]:
    """What that is in dollars, and how far a workload of one's own may be from it."""
    if not ratios:
        return []
    card, other = cards
    kind, ratio = min(ratios.items(), key=lambda item: not item[1].told_apart)
    alone = model.one_workload(card, other, kind, families)
    said, priced = [], card in dollars and other in dollars
    if priced:
        value = scaled(ratio, dollars[other] / dollars[card])
        said.append(
            f"At {dollars[card]:.3g} and {dollars[other]:.3g} dollars an hour {card}"
            f" {'trains' if value.told_apart else 'may train'} {times(value.value)} as much for a dollar"
            f" ({_span(value)}), in {CLASSES[kind].called}."
        )
    elif ratio.told_apart and not dollars:
        said.append(
            f"If speed is all that counts, {card} is worth {times(ratio.value)} the price of {other}"
            f" ({gain(ratio.low)} to {gain(ratio.high)}), in {CLASSES[kind].called}."
        )
    said.append(
        f"That is typical; on one workload of your own expect {gain(alone.low)} to {times(alone.high)} (9 of 10)."
    )
    if dollars and not priced:
        said.append(f"{listed(sorted({*cards} - {*dollars}))} has no price, so speed per dollar is not compared.")
    return said


def _evidence(ratios: Mapping[str, Ratio], pairs: Sequence[Pair], card: str, other: str) -> list[str]:
    """How many figures agree with the answer, and how many do not; `pairs` in the order of their agreement."""
    if not ratios:
        return []
    if not pairs:
        return [f"No source has both: the answer goes over other cards that were measured beside {card} and {other}."]
    sources = {pair.one.source for pair in pairs}
    found = sorted(pair.ratio for pair in pairs)
    said = f"{len(sources)} source{'s have' if len(sources) > 1 else ' has'} both: "
    if len(pairs) == 1:
        said += f"1 ratio, {gain(found[0])}"
    else:
        said += (
            f"{len(pairs)} ratios from {gain(found[0])} to {gain(found[-1])}, median {gain(statistics.median(found))}"
        )
    if not all(ratio.told_apart for ratio in ratios.values()):
        return [f"{said}; {sum(ratio < 1 for ratio in found)} of them are below 1."]
    against = [pair for pair in pairs if _agreement(pair, ratios) < 0]
    if not against:
        return [f"{said}. All {len(pairs)} agree; smallest gap first." if len(pairs) > 1 else f"{said}. It agrees."]
    names = listed(dict.fromkeys(pair.one.source for pair in against))
    return [f"{said}. Disagreeing: {len(against)} of {len(pairs)} ({names}); they are first."]


def _missing(model: Model, ratios: Mapping[str, Ratio], cards: Sequence[str], families: Sequence[str]) -> Iterator[str]:
    """Where the answer goes beyond the figures of a card."""
    for kind in ratios:
        for card in cards:
            if none := model.missing(card, kind, families):
                which = f" of {none[0]} models" if len(none) == 1 else ""
                yield (
                    f"{card} has no figure{which} in {CLASSES[kind].called}: it is placed by its others and by its"
                    " architecture."
                )


def pair_table(pairs: Sequence[Pair], card: str, other: str) -> Table:
    """Each recipe that was measured on both, in the order of `pairs`."""
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
    programs: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for pair in pairs:
        programs[_program(pair)].add(pair.one.framework)
    lines: list[tuple[Value, ...]] = []
    for pair in pairs:
        one, two = pair.one.figures[0], pair.other.figures[0]
        where = " and ".join(dict.fromkeys((one.file, two.file)))
        recipe = f"{one.workload}, {one.framework}" if len(programs[_program(pair)]) > 1 else one.workload
        source = "; ".join([f"{one.source}@{one.commit}", *pair.remarks])
        lines.append((recipe, pair.one.kind, pair.ratio, pair.one.figure, pair.other.figure, source, one.unit, where))
    return Table("measured on both", columns, tuple(lines))


def _program(pair: Pair) -> tuple[str, ...]:
    """What pairs share that may differ by their framework alone."""
    return pair.one.source, pair.one.workload, pair.one.kind


def brief(table: Table, every: bool) -> Table:
    """The table of `pair_table` in as many columns, and unless `every` in as many lines, as a screen holds."""
    columns, lines = table.columns[:BRIEF_COLUMNS], tuple(line[:BRIEF_COLUMNS] for line in table.lines)
    if every or len(lines) <= 2 * BRIEF_LINES:
        return Table(table.name, columns, lines)
    name = f"{table.name}: the first and the last {BRIEF_LINES} of {len(lines)} (--all)"
    return Table(name, columns, lines[:BRIEF_LINES] + lines[-BRIEF_LINES:])


def one_card(published: Published, card: str, ranking: Ranking) -> Answer:
    """Where a card stands in the ranking, and its figures in the ranking's classes, with the files they stand in."""
    columns = (
        Column("workload"),
        Column("class"),
        Column("precision"),
        Column("figure", "x"),
        Column("unit"),
        Column("line", "count"),
        Column("file", note=True),
    )
    used = [
        (cell.kind, figure)
        for cell in published.cells
        if (cell.card == card and cell.kind in ranking.classes and cell.family in ranking.families)
        for figure in cell.figures
    ]
    lines = [
        (each.workload, kind, each.precision, each.figure, each.unit, each.line, _where(each)) for kind, each in used
    ]
    left_out = [
        f"{each.workload}, {each.figure:g} {each.unit}, {each.where}: {reason}"
        for each, reason in published.left_out
        if each.card == card
    ]
    sources = len({each.source for _, each in used})
    said = f"{len(used)} figures of {sources} source{'s' * (sources > 1)}; line: in public_speeds.csv."
    return answered(
        f"{standing(ranking, card)} {said}", card, (Table("figures", columns, tuple(lines)),), left_out=left_out
    )


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
        (cell.workload, cell.framework, cell.kind, cell.card, cell.figure, cell.figures[0].unit) for cell in cells
    )
    commit = cells[0].figures[0].commit if cells else ""
    figures = sum(len(cell.figures) for cell in cells)
    said = f"{source}@{commit}: {figures} figures of {len({cell.card for cell in cells})} cards"
    said += f" in {len(cells)} lines; of several a line has the median." if len(cells) < figures else "."
    return answered(said, source, (Table("figures", columns, lines),))
