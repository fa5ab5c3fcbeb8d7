"""Runs a task on a case of a suite in a child process, which may import torch, for `show`, `fits` and `selftest`."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from gpubench.errors import UserError

if TYPE_CHECKING:
    from gpubench.hardware.environment import Device
    from gpubench.runner.options import Options
    from gpubench.suite.files import LoadedSuite
    from gpubench.suite.trial import Case


def case_of(loaded: "LoadedSuite", options: "Options", device: "Device") -> "Case":
    """Return the first case of these options, on synthetic data and with random weights. Raises UserError."""
    from gpubench.runner.cases import cases_of, recipes_of

    recipe = recipes_of(options, [loaded])[0]
    data, weights = "synthetic" if loaded.suite.data else "", "random" if loaded.suite.weights else ""
    return cases_of([replace(recipe, data=data, weights=weights)], options, [device])[0]


def result_of(task: str, case: "Case", key: str, time_limit_seconds: float, **more: Any) -> Any:
    """Return the value of `key` in the task's answer; `more` is passed to the task. Raises UserError if it fails."""
    from gpubench.runner.process import run_child
    from gpubench.suite.trial import Trial

    trial = asdict(Trial(case, index=0, seed=0))
    outcome = run_child({"task": task, "trial": trial, **more}, time_limit_seconds=time_limit_seconds)
    answer = outcome.answer or {"reason": outcome.reason}
    if key not in answer:
        raise UserError(f"{case.suite} {case.model}: {answer['reason']}")
    return answer[key]
