"""Compares two cards by published figures, and lists the figures of a card or a source. `gpubench cards` prints it."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpubench.studies.cards.figures import CLASSES, TF32_NOTE, Figure, FigureGroup, Published
from gpubench.studies.cards.model import Model, SpeedRatio
from gpubench.studies.cards.ranking import Ranking, answer_with, rank_sentence
from gpubench.studies.section import Answer, Column, Table, Value
from gpubench.studies.words import gain, listed, times

REMARKS = ("modified memory", "vGPU")
"""Beginnings of notes that are caveats."""
BRIEF_COLUMNS, BRIEF_LINES = 6, 8
"""Columns of the table of pairs on a terminal, and its lines at each end."""


@dataclass(frozen=True)
class Pair:
    """The figures of two cards with one recipe, from one source."""

    one: FigureGroup
    other: FigureGroup

    @property
    def ratio(self) -> float:
        """Return the speed of the first card over the second."""
        return self.one.speed / self.other.speed

    @property
    def remarks(self) -> list[str]:
        """Return the caveats of its figures, with the card."""
        versions = [group.software or "unknown" for group in (self.one, self.other)]
        differ = [f"{versions[0]} and {versions[1]}"] if versions[0] != versions[1] else []
        return differ + [
            f"{group.card}: {remark}"
            for group in (self.one, self.other)
            for remark in dict.fromkeys(part for figure in group.figures for part in figure.note.split("; "))
            if remark.startswith(REMARKS)
        ]


def pairs_of(groups: Sequence[FigureGroup], card: str, other: str) -> list[Pair]:
    """Return the pairs of all sources that measured both cards."""
    by_recipe: dict[tuple[str, ...], dict[str, list[FigureGroup]]] = {}
    for group in groups:
        if group.card in {card, other}:
            by_recipe.setdefault(group.recipe, {}).setdefault(group.card, []).append(group)
    return [
        Pair(one, two)
        for by_card in by_recipe.values()
        for one in by_card.get(card, ())
        for two in by_card.get(other, ())
    ]


def answer(
    model: Model,
    published: Published,
    cards: tuple[str, str],
    classes: Sequence[str],
    families: Sequence[str],
    dollars: Mapping[str, float] | None = None,
) -> Answer:
    """Return the speed ratio of the first card to the second, notes, and the pairs of figures behind it.

    `dollars`: per hour, by card.
    """
    card, other = cards
    kinds = [kind for kind in classes if any(model.has_figures(name, kind, families) for name in cards)]
    kinds.sort(key=lambda kind: not all(model.has_figures(name, kind, families) for name in cards))
    ratios = {kind: model.ratio(card, other, kind, families) for kind in kinds}
    pairs = [
        pair
        for pair in pairs_of(published.groups, card, other)
        if pair.one.kind in classes and pair.one.family in families
    ]
    pairs.sort(key=lambda pair: _agreement(pair, ratios))
    notes = [*_by_family(model, ratios, cards, families), *_worth(model, ratios, cards, families, dollars or {})]
    notes += [*_evidence(ratios, pairs, card, other), *_missing(model, ratios, cards, families)]
    notes += [TF32_NOTE] if "single" in ratios else []
    title = f"{card} / {other}"
    tables = [Table("answer", (Column("class"), Column(title, "ratio", "higher", level=90)), tuple(ratios.items()))]
    tables += [pair_table(pairs, card, other)] if pairs else []
    return answer_with(sentence(ratios, cards, classes, families), title, tables, notes)


def _agreement(pair: Pair, ratios: Mapping[str, SpeedRatio]) -> float:
    """Return the log ratio of a pair, with the sign changed if the model's ratio is below 1; below 0: they disagree."""
    return math.log(pair.ratio) * (1 if ratios[pair.one.kind].value >= 1 else -1)


def sentence(
    ratios: Mapping[str, SpeedRatio], cards: tuple[str, str], classes: Sequence[str], families: Sequence[str]
) -> str:
    """Return `A trains 1.6 times as fast as B in half precision (90%: 1.4 to 1.9), and 1.7 times in ...`."""
    card, other = cards
    if not ratios:
        names = " or ".join(CLASSES[kind].name for kind in classes)
        models = " and ".join(families)
        return f"{card} and {other} cannot be compared: no figures on {models} models in {names}."
    different = {kind: ratio for kind, ratio in ratios.items() if ratio.differs}
    parts = [
        f"{times(ratio.value)}{'' if at else f' as fast as {other}'} in {CLASSES[kind].name} ({ratio.interval_text})"
        for at, (kind, ratio) in enumerate(different.items())
    ]
    sentences = [f"{card} trains {', and '.join(parts)}."] if different else []
    close = [
        f"{CLASSES[kind].name} ({times(ratios[kind].value)}; {ratios[kind].interval_text})"
        for kind in ratios
        if kind not in different
    ]
    subject = "They" if different else f"{card} and {other}"
    sentences += [f"{subject} are too close to call in {', and in '.join(close)}."] if close else []
    return " ".join(sentences)


def _by_family(
    model: Model, ratios: Mapping[str, SpeedRatio], cards: tuple[str, str], families: Sequence[str]
) -> list[str]:
    """Return the ratio by family, for each class in which the families differ: their mean is typical of neither."""
    notes = []
    for kind in ratios:
        by_family = {family: model.ratio(*cards, kind, [family]) for family in families}
        if max(ratio.low for ratio in by_family.values()) > min(ratio.high for ratio in by_family.values()):
            parts = [
                f"{times(ratio.value)} on {family} models ({ratio.interval_text})"
                for family, ratio in by_family.items()
            ]
            notes.append(f"{CLASSES[kind].name} is the mean of two different ratios: {listed(parts)}.")
    return notes


def _worth(
    model: Model,
    ratios: Mapping[str, SpeedRatio],
    cards: tuple[str, str],
    families: Sequence[str],
    dollars: Mapping[str, float],
) -> list[str]:
    """Return notes on the ratio in dollars, and on one workload."""
    if not ratios:
        return []
    card, other = cards
    kind, ratio = min(ratios.items(), key=lambda item: not item[1].differs)
    workload = model.one_workload(card, other, kind, families)
    notes, priced = [], card in dollars and other in dollars
    if priced:
        value = ratio.scaled(dollars[other] / dollars[card])
        notes.append(
            f"At {dollars[card]:.3g} and {dollars[other]:.3g} dollars an hour {card}"
            f" {'trains' if value.differs else 'may train'} {times(value.value)} as much for a dollar"
            f" ({value.interval_text}), in {CLASSES[kind].name}."
        )
    elif ratio.differs and not dollars:
        notes.append(
            f"By speed alone, {card} is worth {times(ratio.value)} the price of {other}"
            f" ({ratio.interval_text}), in {CLASSES[kind].name}."
        )
    notes.append(f"That is typical; 90% of workloads are between {gain(workload.low)} and {times(workload.high)}.")
    if dollars and not priced:
        notes.append(f"{listed(sorted({*cards} - {*dollars}))} has no price, so no speed per dollar.")
    return notes


def _evidence(ratios: Mapping[str, SpeedRatio], pairs: Sequence[Pair], card: str, other: str) -> list[str]:
    """Return how many pairs agree with the ratio; `pairs` are in the order of their agreement."""
    if not ratios:
        return []
    if not pairs:
        return [f"No source has both: the ratio is computed over cards that were measured with {card} or {other}."]
    sources = {pair.one.source for pair in pairs}
    values = sorted(pair.ratio for pair in pairs)
    start = f"{len(sources)} source{'s have' if len(sources) > 1 else ' has'} both: "
    if len(pairs) == 1:
        start += f"1 ratio, {gain(values[0])}"
    else:
        median = gain(statistics.median(values))
        start += f"{len(pairs)} ratios from {gain(values[0])} to {gain(values[-1])}, median {median}"
    if not all(ratio.differs for ratio in ratios.values()):
        return [f"{start}; {sum(ratio < 1 for ratio in values)} of them are below 1."]
    disagreeing = [pair for pair in pairs if _agreement(pair, ratios) < 0]
    if not disagreeing:
        return [f"{start}. All {len(pairs)} agree; smallest gap first." if len(pairs) > 1 else f"{start}. It agrees."]
    names = listed(dict.fromkeys(pair.one.source for pair in disagreeing))
    return [f"{start}. Disagreeing: {len(disagreeing)} of {len(pairs)} ({names}); they are first."]


def _missing(
    model: Model, ratios: Mapping[str, SpeedRatio], cards: Sequence[str], families: Sequence[str]
) -> Iterator[str]:
    """Yield a note for each card and class without figures."""
    for kind in ratios:
        for card in cards:
            if missing := model.missing(card, kind, families):
                models = f" of {missing[0]} models" if len(missing) == 1 else ""
                yield (
                    f"{card} has no figure{models} in {CLASSES[kind].name}: estimated from its other figures and its"
                    " architecture."
                )


def pair_table(pairs: Sequence[Pair], card: str, other: str) -> Table:
    """Return a line for each pair, in the order of `pairs`."""
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
        files = " and ".join(dict.fromkeys((one.file, two.file)))
        recipe = f"{one.workload}, {one.framework}" if len(programs[_program(pair)]) > 1 else one.workload
        source = "; ".join([f"{one.source}@{one.commit}", *pair.remarks])
        lines.append((recipe, pair.one.kind, pair.ratio, pair.one.figure, pair.other.figure, source, one.unit, files))
    return Table("measured on both", columns, tuple(lines))


def _program(pair: Pair) -> tuple[str, ...]:
    """Return what identifies a pair apart from its framework."""
    return pair.one.source, pair.one.workload, pair.one.kind


def brief(table: Table, every: bool) -> Table:
    """Return the table of `pair_table` with the columns that fit a terminal, and without its middle unless `every`."""
    columns, lines = table.columns[:BRIEF_COLUMNS], tuple(line[:BRIEF_COLUMNS] for line in table.lines)
    if every or len(lines) <= 2 * BRIEF_LINES:
        return Table(table.name, columns, lines)
    name = f"{table.name}: the first and the last {BRIEF_LINES} of {len(lines)} (--all)"
    return Table(name, columns, lines[:BRIEF_LINES] + lines[-BRIEF_LINES:])


def one_card(published: Published, card: str, ranking: Ranking) -> Answer:
    """Return the rank of a card, and its figures in the ranking's classes with their files."""
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
        (group.kind, figure)
        for group in published.groups
        if (group.card == card and group.kind in ranking.classes and group.family in ranking.families)
        for figure in group.figures
    ]
    lines = [
        (figure.workload, kind, figure.precision, figure.figure, figure.unit, figure.line, _file_and_note(figure))
        for kind, figure in used
    ]
    left_out = [
        f"{figure.workload}, {figure.figure:g} {figure.unit}, {figure.where}: {reason}"
        for figure, reason in published.left_out
        if figure.card == card
    ]
    sources = len({figure.source for _, figure in used})
    count = f"{len(used)} figures of {sources} source{'s' * (sources > 1)}; line: the line in public_speeds.csv."
    return answer_with(
        f"{rank_sentence(ranking, card)} {count}", card, (Table("figures", columns, tuple(lines)),), left_out=left_out
    )


def _file_and_note(figure: Figure) -> str:
    return f"{figure.where}, {figure.note}" if figure.note else figure.where


def by_source(published: Published, source: str) -> Answer:
    """Return the figures of one source by workload, the fastest card first."""
    groups = [group for group in published.groups if group.source == source]
    groups.sort(key=lambda group: (group.workload, group.framework, group.kind, -group.log_speed))
    columns = (
        Column("workload"),
        Column("framework"),
        Column("class"),
        Column("card"),
        Column("figure", "x"),
        Column("unit"),
    )
    lines = tuple(
        (group.workload, group.framework, group.kind, group.card, group.figure, group.figures[0].unit)
        for group in groups
    )
    commit = groups[0].figures[0].commit if groups else ""
    figures = sum(len(group.figures) for group in groups)
    headline = f"{source}@{commit}: {figures} figures of {len({group.card for group in groups})} cards"
    headline += (
        f" in {len(groups)} lines; a line of several figures has their median." if len(groups) < figures else "."
    )
    return answer_with(headline, source, (Table("figures", columns, lines),))
