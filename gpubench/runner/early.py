"""Which cases of a run need no more rounds, because three or four decided the ratios of their precisions."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from gpubench.rows.params import params_text
from gpubench.suite.trial import Case
from gpubench.welch import is_decided_early

COMPARES_MODELS = frozenset({"ladder", "ablation", "batch", "scaling"})
"""Studies that compare cases of one precision, which then need as many trials as all others."""


def decided_early(cases: Sequence[Case], seconds: Mapping[str, Sequence[float]]) -> set[str]:
    """Return the labels of the cases whose ratios to every other precision of their model are decided.

    `seconds` has the times of each case by its label. Empty if the run compares anything but precisions: devices,
    numbers of processes, or models.
    """
    if len({(case.device, case.processes) for case in cases}) > 1:
        return set()
    by_model: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        if not case.refusal and not COMPARES_MODELS.intersection(case.studies):
            by_model.setdefault((case.suite, case.model, params_text(case.params)), []).append(case)
    done = set()
    for alike in by_model.values():
        pairs = [(a, b) for a, b in combinations(alike, 2) if a.precision != b.precision]
        open_labels = {
            case.label
            for a, b in pairs
            if not is_decided_early(seconds.get(a.label, ()), seconds.get(b.label, ()))
            for case in (a, b)
        }
        done |= {case.label for pair in pairs for case in pair} - open_labels
    return done
