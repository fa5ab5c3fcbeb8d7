"""Compares two cards by published figures, and lists the figures of a card. `gpubench cards` prints both."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from gpubench.studies.cards.figures import CLASSES, SECONDS, TF32_NOTE, Figure, published
from gpubench.studies.cards.ranking import answer_with, chart, rank, rank_sentence, workloads_text
from gpubench.studies.cards.ratio import WORKLOADS_50, Pair, SpeedRatio, around, pairs_of, published_speeds
from gpubench.studies.section import Answer, Column, Table, Value
from gpubench.studies.words import gain, listed, times

REMARKS = ("modified memory", "vGPU", "max_lr")
"""Beginnings of notes that are caveats."""
BRIEF_LINES = 4
"""Lines at each end of the table of pairs on a terminal."""


def answer(cards: tuple[str, str], classes: Sequence[str], dollars: Mapping[str, float] | None = None) -> Answer:
    """Return the speed ratio of two cards, notes, and the figures behind it; `dollars` are per hour, by card."""
    card, other = cards
    ratios = {kind: published_speeds(kind).ratio(card, other) for kind in classes}
    pairs = [pair for pair in pairs_of(published().groups, card, other) if pair.one.kind in classes]
    pairs.sort(key=lambda pair: pair.ratio)
    first, ratio = next(iter(ratios.items()))
    headline = f"{card} trains {_span(ratio)} times as fast as {other} in {CLASSES[first]} (90% of workloads)."
    middle = " to ".join(map(gain, around(math.log(ratio.value), WORKLOADS_50)))
    remarks = [f"Typically {times(ratio.value)}; half of the workloads: {middle}."]
    for kind in classes[1:]:
        remarks.append(f"{CLASSES[kind]}: {_span(ratios[kind])} times, typically {gain(ratios[kind].value)}.")
    remarks += _evidence(ratios, pairs)
    for name in cards:
        lost = [CLASSES[kind] for kind in classes if name not in published_speeds(kind).cards]
        if lost:
            from_sheet = "estimated from peak TFLOP/s and memory bandwidth"
            remarks.append(f"{name}: no figure in {listed(lost)} in our data; {from_sheet}.")
    remarks += _per_dollar(ratio, CLASSES[first], cards, dollars or {})
    remarks += [TF32_NOTE] if "fp32" in ratios else []
    title = f"{card} / {other}"
    tables = [Table("answer", (Column("class"), Column(title, "ratio", "higher", level=90)), tuple(ratios.items()))]
    tables += [pair_table(pairs, card, other)] if pairs else []
    ranking = rank(other, classes).of(cards)
    return answer_with(headline, title, tables, remarks, charts=[chart(ranking, ranking.lines)])


def _span(ratio: SpeedRatio) -> str:
    return f"{gain(ratio.low)} to {gain(ratio.high)}"


def _evidence(ratios: Mapping[str, SpeedRatio], pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield per class how many sources have both cards, and the published ratios outside the interval."""
    if not pairs:
        yield "No source has both cards: estimated from comparisons with other cards, and from data sheets."
        return
    for kind, ratio in ratios.items():
        alike = [pair for pair in pairs if pair.one.kind == kind]
        if not alike:
            yield f"Measured on both in {CLASSES[kind]}: nothing."
            continue
        ends = " to ".join(dict.fromkeys((gain(alike[0].ratio), gain(alike[-1].ratio))))
        sources = f"{ratio.sources} source{'s' * (ratio.sources > 1)}"
        yield f"Measured on both in {CLASSES[kind]}: {ends}, {len(alike)} ratio{'s' * (len(alike) > 1)} of {sources}."
        outside = [pair for pair in alike if not ratio.low <= pair.ratio <= ratio.high]
        if outside:
            names = listed(dict.fromkeys(pair.one.source for pair in outside))
            yield f"Outside the interval in {CLASSES[kind]}: {len(outside)} of {len(alike)} ratios ({names})."


def _per_dollar(
    ratio: SpeedRatio, class_name: str, cards: tuple[str, str], dollars: Mapping[str, float]
) -> Iterator[str]:
    """Yield the ratio per dollar, or which cards have no price."""
    card, other = cards
    if card in dollars and other in dollars:
        value = ratio.scaled(dollars[other] / dollars[card])
        yield (
            f"At {dollars[card]:.3g} and {dollars[other]:.3g} dollars an hour {card} trains {times(value.value)} as"
            f" much for a dollar in {class_name} ({workloads_text(value)})."
        )
    elif dollars:
        yield f"No price for {listed(sorted({*cards} - {*dollars}))}, so no speed per dollar."


def pair_table(pairs: Sequence[Pair], card: str, other: str) -> Table:
    """Return a line for each pair, in the order of `pairs`."""
    lines: list[dict[Column, Value]] = []
    for pair in pairs:
        one, two = pair.one.figures[0], pair.other.figures[0]
        line: dict[Column, Value] = {
            Column("workload"): f"{one.workload}, seconds" if one.unit in SECONDS else one.workload,
            Column("class"): pair.one.kind,
            Column("ratio", "ratio", "higher", places=2): pair.ratio,
            Column(card, "x"): pair.one.figure,
            Column(other, "x"): pair.other.figure,
            Column("source", note=True): "; ".join([f"{one.source}@{one.commit}, {one.framework}", *_remarks(pair)]),
            Column("unit", detail=True): one.unit,
            Column("files", detail=True): " and ".join(dict.fromkeys((one.file, two.file))),
        }
        lines.append(line)
    return Table.of("measured on both", lines)


def _remarks(pair: Pair) -> Iterator[str]:
    """Yield differing software versions, and the caveats of a pair's figures with their card."""
    versions = [group.software or "unknown" for group in (pair.one, pair.other)]
    if versions[0] != versions[1]:
        yield f"{versions[0]} and {versions[1]}"
    for group in (pair.one, pair.other):
        parts = dict.fromkeys(part for figure in group.figures for part in figure.note.split("; "))
        if remarks := [part for part in parts if part.startswith(REMARKS)]:
            yield f"{group.card}: {', '.join(remarks)}"


def brief(table: Table) -> Table:
    """Return the table of `pair_table` without its middle."""
    lines = table.lines
    if len(lines) <= 2 * BRIEF_LINES:
        return table
    name = f"{table.name}: the lowest and highest {BRIEF_LINES} of {len(lines)} ratios (--all)"
    return Table(name, table.columns, lines[:BRIEF_LINES] + lines[-BRIEF_LINES:])


def one_card(card: str, reference: str, classes: Sequence[str]) -> Answer:
    """Return the rank of a card, its medians by workload, and its figures in these classes with their files."""
    classes = [kind for kind in classes if card in published_speeds(kind).cards] or classes
    ranking = rank(reference, classes)
    used = [
        (group.kind, figure)
        for group in published().groups
        if group.card == card and group.kind in classes
        for figure in group.figures
    ]
    lines: list[dict[Column, Value]] = [
        {
            Column("workload"): figure.workload,
            Column("class"): kind,
            Column("precision"): figure.precision,
            Column("figure", "x"): figure.figure,
            Column("unit"): figure.unit,
            Column("line of public_speeds.csv", "count", detail=True): figure.line,
            Column("file", note=True): ", ".join(filter(None, (figure.where, figure.note))),
        }
        for kind, figure in used
    ]
    left_out = [
        f"{figure.workload}, {figure.figure:g} {figure.unit}, {figure.where}: {reason}"
        for figure, reason in published().left_out
        if figure.card == card
    ]
    sources = len({figure.source for _, figure in used})
    count = f"{len(used)} figure{'s' * (len(used) != 1)} of {sources} source{'s' * (sources != 1)}."
    if not used:
        names = listed(CLASSES[kind] for kind in classes)
        count = f"Our data has no figure of this card in {names}: estimated from peak TFLOP/s and memory bandwidth."
    tables = [_medians(used, classes), Table.of("figures", lines)] if lines else []
    return answer_with(f"{rank_sentence(ranking, card)} {count}", card, tables, left_out=left_out)


def _medians(used: Sequence[tuple[str, Figure]], classes: Sequence[str]) -> Table:
    """Return the median of each class by workload; the workload with most figures first."""
    figures: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for kind, figure in used:
        figures[figure.workload, figure.unit][kind].append(figure.figure)
    count = {workload: sum(map(len, of_class.values())) for workload, of_class in figures.items()}
    lines: list[dict[Column, Value]] = [
        {
            Column("workload"): workload,
            **{Column(kind, "x"): statistics.median(of_class[kind]) if of_class[kind] else None for kind in classes},
            Column("unit"): unit,
            Column("figures", "count"): count[workload, unit],
        }
        for (workload, unit), of_class in sorted(figures.items(), key=lambda item: -count[item[0]])
    ]
    return Table.of("median figures", lines)
