"""A ladder of two rungs with a goal of 0.9: a trial's accuracy is its seed / 100, so that --seed decides."""

import time

from gpubench import Param, Suite


def train(trial, clock):
    """Steps that take `step_ms` each, fewer on the second rung; `runs` whole runs."""
    steps = [range(trial.batch_size)] * (8 if trial.case.model == "first" else 4)
    for _ in clock.runs(trial.params.runs):
        for _ in clock.steps(steps, phase="warmup", counted=False):
            time.sleep(0.01)
        for _ in clock.epochs(1):
            for _ in clock.steps(steps, phase="train"):
                time.sleep(0.01)
    return {"accuracy": trial.seed / 100}


SUITE = Suite(
    train=train,
    models=("first", "second"),
    params={"runs": Param(1, "runs in a process")},
    version=1,
    quality="accuracy",
    goal=0.9,
    studies=("ladder",),
    recipe_batch=lambda model, params, precision: 2 if model == "first" else 4,
    torch=False,
)
