"""The suite of verdicts.py: ResNet-18 as three models. `a` and `b` are the same, `padded` pauses after each step."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpubench.suites import resnet
from gpubench.suites.resnet import training

from gpubench.suite.suite import Param

if TYPE_CHECKING:
    from gpubench.suite.trial import Trial
    from gpubench.training.clock.clock import Clock

full_learner = training.full_learner


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Train as `resnet` does; `padded` pauses after each training step for `pad` times the duration of the step."""
    from fastai.callback.core import Callback

    class Pad(Callback):  # type: ignore[misc]
        started = 0.0

        def before_batch(self) -> None:
            self.started = time.perf_counter()

        def after_batch(self) -> None:
            if self.training:
                time.sleep(trial.params.pad * (time.perf_counter() - self.started))

    def learner(*arguments: Any) -> Any:
        learn = full_learner(*arguments)
        if trial.case.model == "padded":
            learn.add_cb(Pad())
        return learn

    training.full_learner = learner
    return resnet.train(replace(trial, case=replace(trial.case, model="resnet18")), clock)


SUITE = replace(
    resnet.SUITE,
    train=train,
    models=("a", "b", "padded"),
    params={**resnet.SUITE.params, "pad": Param(0.1, "pause after each training step of `padded`, of its own time")},
)
