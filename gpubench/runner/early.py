"""Finds the cases that need no more rounds: the ratios of their precisions are decided (LOOKS, STOP_P in welch.py)."""

from collections.abc import Mapping, Sequence

from gpubench.rows.params import params_text
from gpubench.suite.trial import COMPARES_MODELS, Case
from gpubench.welch import all_decided_early


def models_that_may_stop(cases: Sequence[Case]) -> list[list[Case]]:
    """Return the cases of each model that has several precisions, as one list per model.

    Empty if the run also compares devices or numbers of processes. Omits refused cases and those of COMPARES_MODELS.
    """
    if len({(case.device, case.processes) for case in cases}) > 1:
        return []
    by_model: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        if not case.refusal and not COMPARES_MODELS.intersection(case.studies):
            by_model.setdefault((case.suite, case.model, params_text(case.params)), []).append(case)
    return [alike for alike in by_model.values() if len({case.precision for case in alike}) > 1]


def decided_early(cases: Sequence[Case], seconds: Mapping[str, Sequence[float]]) -> set[str]:
    """Return the labels of all cases of the models whose ratios between precisions are all decided.

    All cases of a model stop together, because `compare` treats cases that did not alternate as two sessions. `seconds`
    has the times of each case by its label. Cases without a time have failed in every round and stop too.
    """
    done = set()
    for alike in models_that_may_stop(cases):
        if all_decided_early([(case.precision, seconds[case.label]) for case in alike if seconds.get(case.label)]):
            done |= {case.label for case in alike}
    return done
