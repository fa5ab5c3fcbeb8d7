"""Which cases need no more rounds: three or four decided the ratios of their precisions (LOOKS, STOP_P in welch.py)."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from gpubench.rows.params import params_text
from gpubench.suite.trial import Case
from gpubench.welch import is_decided_early

COMPARES_MODELS = frozenset({"ladder", "ablation", "batch", "scaling"})
"""Studies that compare cases of one precision, which then need as many trials as all others."""


def models_that_may_stop(cases: Sequence[Case]) -> list[list[Case]]:
    """Return the cases of each model that ran in several precisions.

    Empty if the run compares anything but precisions: devices, numbers of processes, or models.
    """
    if len({(case.device, case.processes) for case in cases}) > 1:
        return []
    by_model: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        if not case.refusal and not COMPARES_MODELS.intersection(case.studies):
            by_model.setdefault((case.suite, case.model, params_text(case.params)), []).append(case)
    return [alike for alike in by_model.values() if len({case.precision for case in alike}) > 1]


def decided_early(cases: Sequence[Case], seconds: Mapping[str, Sequence[float]]) -> set[str]:
    """Return the labels of the cases of each model whose precisions all have decided ratios.

    All cases of a model stop together: `compare` judges sides that did not take turns as two sessions. `seconds` has
    the times of each case by its label; cases without one, which failed in every round, stop with the others.
    """
    done = set()
    for alike in models_that_may_stop(cases):
        timed = [case for case in alike if seconds.get(case.label)]
        pairs = [(a, b) for a, b in combinations(timed, 2) if a.precision != b.precision]
        if pairs and all(is_decided_early(seconds[a.label], seconds[b.label]) for a, b in pairs):
            done |= {case.label for case in alike}
    return done
