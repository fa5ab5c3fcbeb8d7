"""The study `roofline`: its findings, tables and chart, from what bound.py says of each case."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from gpubench.analysis.cells import Cell
from gpubench.analysis.compare import Group, Result
from gpubench.analysis.stats import MINIMUM_EFFECT
from gpubench.analysis.verdicts import Comparison
from gpubench.studies import words
from gpubench.studies.cases import behind
from gpubench.studies.roofline.bound import OVER, Bound, bound_of, peaks_used, why_not_faster
from gpubench.studies.section import BOUND, Column, Finding, Line, Lines, Point, Section, Table
from gpubench.suite.precisions import FULL


def sections(result: Result) -> Iterator[Section]:
    """One for each group of which it is known what bounds a case, or how near it comes to a peak."""
    for group in result.groups if result.metric.name == "seconds" else []:
        bounds = [(cell, bound_of_cell(cell)) for cell in group.cells]
        known = [(cell, bound) for cell, bound in bounds if bound.word != "unknown" or bound.mfu is not None]
        notes = (*_not_faster(group), *_unknown([each for each in bounds if each not in known]))
        if not (known or notes):
            continue
        cells = [cell for cell, _ in known]
        yield Section(
            "roofline",
            group.cells[0].suite,
            f"{words.title_of(group.cells)}; what holds it back",
            tuple(_findings(known)),
            (_table(known),) if known else (),
            tuple(_charts(cells)),
            notes,
            recipe=words.recipe_of(group.cells),
            cases=behind(group.cells),
        )


def bound_of_cell(cell: Cell) -> Bound:
    """What bounds a case; throttled where at least half of its trials were marked so."""
    throttled = cell.marks.get("throttled", 0)
    return bound_of(cell.row, throttled=throttled > 0 and 2 * throttled >= cell.trials)


def _table(known: Sequence[tuple[Cell, Bound]]) -> Table:
    """Per case: its bound, its share of the peak, and the seconds its training would take at all of it."""
    columns = (
        Column("model"),
        Column("card"),
        Column("precision"),
        Column("bound by"),
        Column("of a step", "share", places=0),
        Column("MFU", "share", "higher"),
        Column("peak"),
        Column("limit, s", "s"),
        Column("evidence", note=True),
    )
    lines = [
        (
            *(cell.model, cell.label, cell.precision, b.word, b.share, b.mfu, b.peak, b.limit_seconds),
            "; ".join([b.evidence, *words.marks_of([cell])]),
        )
        for cell, b in known
    ]
    return Table("bounds", columns, tuple(lines))


def _findings(known: Sequence[tuple[Cell, Bound]]) -> Iterator[Finding]:
    """What bounds the models of a card in a precision; the least MFU among them and the most."""
    pools: dict[tuple[str, str], list[tuple[Cell, Bound]]] = defaultdict(list)
    for cell, bound in known:
        pools[cell.label, cell.precision].append((cell, bound))
    for (label, precision), own in pools.items():
        shares = [bound.mfu for _, bound in own if bound.mfu is not None]
        bounds = Counter(bound.word for _, bound in own)
        known_words = {word: count for word, count in bounds.items() if word != "unknown"}
        of = f" of {len(own)}" if len(bounds) > 1 else ""
        by = words.listed([f"{w} ({n}{of})" if of else w for w, n in known_words.items()] or ["unknown"])
        peak = next((bound.peak for _, bound in own if bound.mfu is not None), "")
        low, high = (min(shares), max(shares)) if shares else (math.nan, math.nan)
        figure = "" if not shares else f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{low:.0%} to {high:.0%}"
        said = f"{words.name(label)} in {precision} " + (f"is bound by {by}, at" if by != "unknown" else "reaches")
        said = f"{said} {figure} of the {peak} peak" if shares else said.removesuffix(", at")
        said += ", which is a floor" if high > OVER and peak == "measured" else ""
        models = tuple(dict.fromkeys(cell.model for cell, _ in own))
        yield Finding(
            kind="roofline",
            suite=own[0][0].suite,
            subject=f"{BOUND}{by}" if by != "unknown" else "share of the peak",
            value=high if shares else 0.0,
            models=models,
            trials=(min(cell.trials for cell, _ in own), 0),
            said=said,
            precision=precision,
            place=label,
            origin=f"{precision}, {own[0][0].suite}",
            figure=figure or by,
            facts=words.facts_of(own[0][0]),
            doubts=tuple(words.marks_of([cell for cell, _ in own], "runs ")),
            cases=behind(cell for cell, _ in own),
        )


def _unknown(bounds: Sequence[tuple[Cell, Bound]]) -> Iterator[str]:
    """Why it is not known what bounds cases that were measured here, with the cases."""
    cases: dict[str, list[str]] = defaultdict(list)
    for cell, bound in bounds:
        if bound.word == "unknown" and cell.mode != "published":
            cases[bound.evidence].append(f"{cell.model} {cell.precision} on {cell.label}")
    yield from (f"not known what bounds {words.listed(names)}: {evidence}" for evidence, names in cases.items())


def _not_faster(group: Group) -> Iterator[str]:
    """A sentence per card, mixed precision that is not faster than fp32, and known reason, with the models."""
    models: dict[str, dict[str, None]] = {}
    for c in filter(_is_slow_mixed, group.comparisons):
        reason = why_not_faster(c.subject.row, c.other.row, bound_of_cell(c.subject))
        if reason:
            sentence = f"on {c.subject.label}: {c.subject_name} is not faster than fp32: {reason}"
            models.setdefault(sentence, {})[c.subject.model] = None
    yield from (f"{', '.join(names)} {sentence}" for sentence, names in models.items())


def _is_slow_mixed(c: Comparison) -> bool:
    """Whether a 16-bit precision was no faster than fp32, and nothing speaks against saying so."""
    mixed = c.axis == "precision" and c.other_name == "fp32" and c.subject_name not in FULL
    certain = c.verdict not in {"unsure", "not alike", "not judged"} and not (c.subject.marks or c.other.marks)
    return mixed and certain and c.ratio.value * (1 + MINIMUM_EFFECT) > 1


def _charts(cells: Sequence[Cell]) -> Iterator[Lines]:
    """Each case by its FLOPs a byte and its FLOP/s, below the roof of its card in its precision."""
    columns = ("flops_per_sample", "bytes_per_sample", "samples_per_second")
    counted = [cell for cell in cells if all(cell.number(name) > 0 for name in columns)]
    kinds: dict[str, list[Cell]] = defaultdict(list)
    for cell in counted:
        kinds[f"{cell.precision} on {cell.label}"].append(cell)
    points = {id(cell): _point(cell) for cell in counted}
    xs = [point.x for point in points.values()]
    lines = []
    for kind, members in kinds.items():
        lines.append(Line(kind, tuple(points[id(cell)] for cell in members), "points"))
        if roof := next(filter(None, map(_roof, members)), None):
            ridge = roof[0] / roof[1]
            ends = sorted({min(*xs, ridge) / 4, ridge, max(*xs, ridge) * 4})
            ceiling = tuple(Point(x, min(roof[0], roof[1] * x) / 1e12) for x in ends)
            lines.append(Line(f"roof of {kind}", ceiling, "dashed", of=kind))
    if any(line.style == "dashed" for line in lines):
        suite = counted[0].suite
        cases = behind(counted)
        yield Lines(
            words.slug(f"{words.title_of(counted)} roofline"), f"{suite}: how near it comes to its roof",
            "TFLOP/s by FLOP per byte; dashed: the most that was measured", tuple(lines),
            "FLOP/byte", "TFLOP/s", 10, 10, foot=words.origin(counted), cases=cases,
        )  # fmt: skip


def _roof(cell: Cell) -> tuple[float, float] | None:
    """FLOP/s and bytes a second that `gpubench peak` measured on its card in its precision."""
    peak, bandwidth = cell.number("measured_peak_flops"), cell.number("measured_bandwidth_bytes_per_second")
    return (peak, bandwidth) if peak > 0 and bandwidth > 0 else None


def _point(cell: Cell) -> Point:
    """FLOP/byte and TFLOP/s of one of its devices."""
    flops = cell.number("flops_per_sample")
    rate = cell.samples_per_second / peaks_used(cell.row)
    return Point(flops / cell.number("bytes_per_sample"), flops * rate / 1e12, text=cell.model)
