"""The study `roofline`: each case's bottleneck and share of the peak, by the rules of bound.py. `answer` calls it."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from gpubench.analysis.compare import Compared, Workload
from gpubench.analysis.groups import Group
from gpubench.analysis.stats import MINIMUM_EFFECT
from gpubench.studies import words
from gpubench.studies.bound import OVER, Bound, bound_of, why_not_faster
from gpubench.studies.section import Column, Result, Section, Table, Value
from gpubench.suite.precisions import FULL, LINEAR_ONLY


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section for each workload with a known bottleneck, a known share of the peak, or a note."""
    for workload in compared.workloads if compared.metric.name == "seconds" else []:
        bounds = [(group, bound_of_group(group)) for group in workload.groups]
        known = [(group, bound) for group, bound in bounds if bound.bottleneck != "unknown" or bound.mfu is not None]
        unknown = [(group, bound) for group, bound in bounds if bound.bottleneck == "unknown" and bound.mfu is None]
        notes = (*_not_faster(workload), *_unknown(unknown))
        if not (known or notes):
            continue
        tables = (Table.of("bounds", [_line(group, bound) for group, bound in known]),) if known else ()
        results = _results(known)
        yield words.section_of(workload.groups, "roofline", "; bottlenecks", results, tables=tables, notes=notes)


def bound_of_group(group: Group) -> Bound:
    """Return the bottleneck of a case: `throttling` if at least half of its trials are marked so."""
    throttled = group.marks.get("throttled", 0)
    return bound_of(group.row, throttled=throttled > 0 and 2 * throttled >= group.trials)


def _line(group: Group, bound: Bound) -> dict[Column, Value]:
    """Return the line of a case: its bottleneck, its share of the peak, and the seconds of its training at the peak."""
    return {
        Column("model"): group.model,
        Column("card"): group.label,
        Column("precision"): group.precision,
        Column("bound by"): bound.bottleneck,
        Column("device's share", "share", places=0): bound.share,
        Column("MFU", "share", "higher"): bound.mfu,
        Column("peak"): bound.peak,
        Column("limit, s", "s"): bound.limit_seconds,
        Column("evidence", note=True): "; ".join([bound.evidence, *words.marks_of([group])]),
    }


def _results(known: Sequence[tuple[Group, Bound]]) -> Iterator[Result]:
    """Yield a result for each card and precision: the bottlenecks of its models, and their lowest and highest MFU."""
    pools: dict[tuple[str, str], list[tuple[Group, Bound]]] = defaultdict(list)
    for group, bound in known:
        pools[group.label, group.precision].append((group, bound))
    for (label, precision), cases in pools.items():
        shares = [bound.mfu for _, bound in cases if bound.mfu is not None]
        bounds = Counter(bound.bottleneck for _, bound in cases)
        clear = {name: count for name, count in bounds.items() if name != "unknown"}
        of = f" of {len(cases)}" if len(bounds) > 1 else ""
        counts = [f"{name} ({count}{of} cases)" if of else name for name, count in clear.items()]
        by = words.listed(counts or ["unknown"])
        peak = next((bound.peak for _, bound in cases if bound.mfu is not None), "")
        high = max(shares, default=math.nan)
        ends = (f"{share:.{int(share < 0.01)}%}" for share in (min(shares, default=high), high) if shares)
        figure = " to ".join(dict.fromkeys(ends))
        sentence = f"{words.name(label)} in {precision} " + (f"is bound by {by}, at" if by != "unknown" else "reaches")
        sentence = f"{sentence} {figure} of the {peak} peak" if shares else sentence.removesuffix(", at")
        sentence += ", which is too low" if high > OVER and peak == "measured" else ""
        groups = [group for group, _ in cases]
        yield words.result_of(
            groups,
            "roofline",
            f"bound by {by}" if by != "unknown" else "share of the peak",
            high if shares else 0.0,
            sentence,
            precision=precision,
            place=label,
            origin=f"{precision}, {cases[0][0].suite}",
            figure=figure or by,
            caveats=tuple(words.marks_of(groups, "runs ")),
            projected=False,
        )


def _unknown(bounds: Sequence[tuple[Group, Bound]]) -> Iterator[str]:
    """Yield why the bottleneck of measured cases is unknown, with the cases."""
    cases: dict[str, dict[str, None]] = defaultdict(dict)
    for group, bound in bounds:
        if group.mode != "published":
            cases[bound.evidence][f"{group.model} {group.precision} on {group.label}"] = None
    yield from (f"the bottleneck of {words.listed(names)} is unknown: {evidence}" for evidence, names in cases.items())


def _not_faster(workload: Workload) -> Iterator[str]:
    """Yield why mixed precision is not faster than fp32, or 8 bits than bf16, once per card, precision and reason."""
    models: dict[str, dict[str, None]] = {}
    for c in workload.comparisons:
        below_fp32 = c.other_name == "fp32" and c.subject_name not in FULL
        below_bf16 = c.other_name == "bf16" and c.subject_name in LINEAR_ONLY
        is_mixed = c.axis == "precision" and (below_fp32 or below_bf16)
        is_certain = c.verdict not in {"undecided", "not judged"} and not (c.subject.marks or c.other.marks)
        is_slow = is_mixed and is_certain and c.ratio.value * (1 + MINIMUM_EFFECT) > 1
        reason = why_not_faster(c.subject.row, c.other.row, bound_of_group(c.subject)) if is_slow else ""
        if reason:
            sentence = f"on {c.subject.label}: {c.subject_name} is not faster than {c.other_name}: {reason}"
            models.setdefault(sentence, {})[c.subject.model] = None
    yield from (f"{', '.join(names)} {sentence}" for sentence, names in models.items())
