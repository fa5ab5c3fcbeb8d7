"""Trials of the built-in suites, run inside the process of a test."""

import pytest
import torch
from brief import brief

from gpubench.hardware.environment import cpu_device
from gpubench.suite.files import LoadedSuite
from gpubench.suite.trial import Case, Trial
from gpubench.training import operands, precision
from gpubench.training.clock.clock import Clock

MIXED = "fp32" if "bf16" in cpu_device().unsupported else "bf16"
"""fp32 on a CPU without bf16 arithmetic, which takes minutes for a training in 16 bits."""


def small_trial(
    suite: LoadedSuite, model: str, name: str, settings: dict[str, str], *, mode="full", batch=8, data="synthetic",
    weights="", seed=1, device="cpu", **folders,
) -> Trial:  # fmt: skip
    """Return a trial, on a CPU if no device is named."""
    case = Case(
        suite=suite.name, suite_version=1, suite_digest="", suite_path=str(suite.path), model=model, precision=name,
        device=device, params=suite.resolve_params(settings, model), batch_policy="fixed", batch_size=batch, mode=mode,
        data=data, weights=weights,
    )  # fmt: skip
    return Trial(case, 0, seed, **folders)


def skip_bf16_lstm(model: str, name: str) -> None:
    """Skip the test of an LSTM in bf16 on a CPU without bf16 arithmetic, where oneDNN has none."""
    if (model, name) == ("lstm", "bf16") and name in cpu_device().unsupported:
        pytest.skip("oneDNN has no bf16 LSTM on a CPU without bf16 arithmetic")


def run_trial(suite: LoadedSuite, trial: Trial, clock: Clock | None = None):
    """Run a trial; return its qualities, its clock, and the watch on its operands."""
    torch.manual_seed(trial.seed)
    precision.set_flags(trial.case.precision, reduced_reduction=False, cudnn_benchmark=False)
    watch = operands.OperandWatch()
    clock = clock or Clock(brief(trial.case.mode), watch=lambda: [watch])
    return suite.suite.train(trial, clock), clock, watch
