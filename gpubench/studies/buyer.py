"""The study `buyer`: a card in mixed precision over another in fp32, and both in both precisions. `answer` calls it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gpubench.analysis import stats
from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import CONFLICT, Group, text_of
from gpubench.analysis.matching import TWIN_POLICIES
from gpubench.analysis.metrics import SECONDS
from gpubench.analysis.verdicts import Comparison
from gpubench.studies import words
from gpubench.studies.pair_charts import recipe_of
from gpubench.studies.pairs import differences_of, precision_name, wide_range
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Part, Result, Section, Table, Value
from gpubench.suite.precisions import FULL

Side = tuple[str, str]
"""A card's label and a precision."""


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section for each pair of cards and each mixed precision of the subject; only if `compared.is_usual`."""
    for workload in compared.workloads if compared.is_usual else []:
        usual = [c for c in workload.comparisons if c.subject.batch_policy not in TWIN_POLICIES]
        mixed = {
            (_case(c.other), c.subject.precision): c
            for c in usual
            if c.axis == "precision" and c.other.precision == "fp32" and c.subject.precision not in FULL
        }
        pairs: dict[tuple[str, ...], list[tuple[Comparison, Comparison]]] = defaultdict(list)
        for c in usual:
            for (case, precision), gain in mixed.items() if c.axis == "card" and c.subject.precision == "fp32" else ():
                if case == _case(c.subject):
                    pairs[c.subject_name, c.other_name, precision, *_batch(c.subject)].append((c, gain))
        for alike in pairs.values():
            yield _section(alike, mixed)


def _case(group: Group) -> tuple[str, ...]:
    """Return what identifies a group except its precision."""
    return group.label, group.model, *_batch(group)


def _batch(group: Group) -> tuple[str, str]:
    """Return the batch policy, and the batch if it is fixed."""
    return group.batch_policy, text_of(group.row["fixed_batch"])


def _section(
    pairs: Sequence[tuple[Comparison, Comparison]], mixed: Mapping[tuple[tuple[str, ...], str], Comparison]
) -> Section:
    models: dict[str, dict[Side, Group]] = {}
    for card, gain in pairs:
        other_gain = mixed.get((_case(card.other), gain.subject.precision))
        groups = (card.other, other_gain.subject if other_gain else None, gain.other, gain.subject)
        models[card.subject.model] = {_side(group): group for group in groups if group}
    sides = list(dict.fromkeys(side for groups in models.values() for side in groups))
    base, best = _side(pairs[0][0].other), _side(pairs[0][1].subject)
    result = _result(pairs, models, base, best)
    result = replace(result, charts=tuple(_charts(result, models, sides)))
    every = [group for groups in models.values() for group in groups.values()]
    title = f"{words.title_of(every)}; both cards in both precisions"
    table = _table(result, models, sides, base, best)
    return Section("buyer", result.suite, title, (result,), (table,), cases=result.cases)


def _side(group: Group) -> Side:
    return words.without_author(group.label, group.source), precision_name(group.precision)


def _name(side: Side) -> str:
    return " ".join(side)


def _result(
    pairs: Sequence[tuple[Comparison, Comparison]], models: Mapping[str, Mapping[Side, Group]], base: Side, best: Side
) -> Result:
    """Return the result of the subject in mixed precision over the other card in fp32, for all models together."""
    groups = [group for card, gain in pairs for group in (gain.subject, card.other)]
    batch = " ".join(_batch(groups[1])).removesuffix(" 0")
    parts = tuple(
        Part(model, sides[best].median, sides[base].median, sides[base].median / sides[best].median)
        for model, sides in models.items()
    )
    value = stats.geometric_mean([part.value for part in parts])
    trials = min(sides[best].trials for sides in models.values()), min(sides[base].trials for sides in models.values())
    ends = wide_range([part.value for part in parts])
    subject = f"{words.name(best[0])} in {best[1]}{' precision' * (best[1] == 'mixed')}"
    # If one of the comparisons cannot be judged, the reason replaces the verdict of this result.
    unlike = next((c.verdict for pair in pairs for c in pair if c.verdict == CONFLICT or c.is_unlike), "")
    baseline, may = f"{words.name(base[0])} in {base[1]}", "undecided" if unlike else ""
    claim = words.better(subject, baseline, ends or value, may, SECONDS, verb="train")
    return words.result_of(
        groups,
        "buyer",
        _name(best),
        value,
        claim + ", depending on the model" * bool(ends),
        baseline=_name(base),
        verdict=unlike or words.without_test(trials),
        models=tuple(models),
        trials=trials,
        figure=words.range_text(ends) if ends else "",
        facts=words.facts_of(groups[0]) | {"batch": batch, "precision": groups[0].precision},
        differences=tuple(dict.fromkeys(differences_of([comparison for pair in pairs for comparison in pair]))),
        caveats=(*[f"the mean is {words.gain(value)}"] * bool(ends), *words.caveats_of(groups)),
        parts=parts,
        cases=words.behind(group for sides in models.values() for group in sides.values()),
    )


def _table(
    result: Result, models: Mapping[str, Mapping[Side, Group]], sides: Sequence[Side], base: Side, best: Side
) -> Table:
    """Return the minutes of all sides by model; the last line has mean ratios: how many times as fast as the base."""
    short_names = [_name(side).removeprefix("RTX ").removeprefix("GTX ") for side in sides]
    columns = [Column("model"), *(Column(name, "min", "lower") for name in short_names)]
    columns.append(Column("speedup", "ratio", "higher", places=2))
    lines: list[tuple[Value, ...]] = []
    for part in result.parts:
        groups = models[part.model]
        minutes = [groups[side].median / 60 if side in groups else None for side in sides]
        lines.append((part.model, *minutes, part.value))
    common = [groups for groups in models.values() if len(groups) == len(sides)]
    if common:
        means = [
            stats.geometric_mean([groups[base].median / groups[side].median for groups in common]) for side in sides
        ]
        name = "mean" if len(common) == len(models) else f"mean of {len(common)}"
        lines.append((name, *(f"{words.gain(mean)}x" for mean in means), means[sides.index(best)]))
    return Table(f"minutes; mean and speedup: times as fast as {_name(base)}", tuple(columns), tuple(lines))


def _charts(result: Result, models: Mapping[str, Mapping[Side, Group]], sides: Sequence[Side]) -> Iterator[Bars]:
    """Yield two charts: the seconds of all sides by model, and these times relative to the base."""
    stem = words.slug(f"{result.suite} {result.subject} over {result.baseline}")
    every = [group for groups in models.values() for group in groups.values()]
    bars = partial(Bars, title=result.said, foot=words.chart_foot(every), cases=result.cases)
    for kind, unit, what in (
        ("seconds", "s", f"Seconds for {recipe_of(result, every)}; lower is better"),
        ("relative", "ratio", f"Time relative to {result.baseline}; lower is better"),
    ):
        bar_groups = []
        for part in result.parts:
            scale = 1 / part.baseline if kind == "relative" else 1.0
            groups = models[part.model]
            of_sides = tuple(_bar(side, groups.get(side), scale) for side in sides)
            bar_groups.append(BarGroup(part.model, of_sides, f"{words.gain(part.value)}x"))
        yield bars(f"{stem}-{kind}", subtitle=what, groups=tuple(bar_groups), unit=unit)


def _bar(side: Side, group: Group | None, scale: float) -> Bar:
    if group is None:
        return Bar(_name(side), None, text="no figure")
    interval = (group.interval[0] * scale, group.interval[1] * scale) if group.interval else None
    return Bar(_name(side), group.median * scale, interval, note=", ".join(sorted(group.marks)))
