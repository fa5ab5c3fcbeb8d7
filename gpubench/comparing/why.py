"""What bounds each case of a group, as lines of a table, and why a mixed precision is not faster."""

from gpubench.analysis.cells import Cell
from gpubench.analysis.compare import Comparison, Group
from gpubench.analysis.stats import MINIMUM_EFFECT
from gpubench.studies.bound import Bound, bound_of, why_not_faster


def bound_of_cell(cell: Cell) -> Bound:
    """What bounds a case; throttled where at least half of its trials were marked so."""
    throttled = cell.marks.get("throttled", 0)
    return bound_of(cell.row, throttled=throttled > 0 and 2 * throttled >= cell.trials)


def lines(group: Group) -> list[dict[str, str]]:
    """Per case: its bound, its share of the peak, and the seconds its training would take at all of it."""
    found = []
    for cell in group.cells:
        bound = bound_of_cell(cell)
        found.append(
            {
                "model": str(cell.model),
                "card": cell.label,
                "precision": str(cell.precision),
                "bound by": bound.word,
                "MFU": f"{bound.mfu:.1%}" if bound.mfu is not None else "",
                "peak": bound.peak,
                "limit": f"{bound.limit_seconds:,.3g} s" if bound.limit_seconds is not None else "",
                "evidence": bound.evidence,
            }
        )
    return found


def not_faster(group: Group) -> list[str]:
    """A sentence per card, mixed precision that is not faster than fp32, and reason, with the models it holds for."""
    models: dict[str, dict[str, None]] = {}
    for comparison in filter(_is_slow_mixed, group.comparisons):
        models.setdefault(_sentence(comparison), {})[str(comparison.subject.model)] = None
    return [f"{', '.join(names)} {sentence}" for sentence, names in models.items()]


def _is_slow_mixed(comparison: Comparison) -> bool:
    mixed = comparison.axis == "precision" and comparison.other_name == "fp32"
    sixteen_bit = comparison.subject_name.startswith(("fp16", "bf16"))
    return mixed and sixteen_bit and comparison.ratio.value * (1 + MINIMUM_EFFECT) > 1


def _sentence(comparison: Comparison) -> str:
    subject, other = comparison.subject, comparison.other
    reason = why_not_faster(subject.row, other.row, bound_of_cell(subject))
    return f"on {subject.label}: {comparison.subject_name} is not faster than fp32: {reason}"
