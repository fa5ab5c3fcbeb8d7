"""A scripted suite: its time is sleeps, so that the whole tool runs in moments and without torch."""

import time

from gpubench import Param, Suite


def train(trial, clock):
    """Steps that take `step_ms` each."""
    params = trial.params
    steps = [range(trial.batch_size)] * params.steps
    for _ in clock.epochs(params.epochs):
        for _ in clock.steps(steps, phase="train"):
            time.sleep(params.step_ms / 1000)
        for _ in clock.steps(steps[:2], phase="valid"):
            time.sleep(params.step_ms / 1000)
    for _ in clock.resident():
        time.sleep(params.step_ms / 1000)
    return {"accuracy": 0.5}


SUITE = Suite(
    train=train,
    models=("short", "long"),
    params={
        "epochs": Param(1, "epochs"),
        "steps": Param(5, "steps of an epoch"),
        "step_ms": Param(5.0, "milliseconds of a step"),
    },
    version=1,
    quality="accuracy",
    torch=False,
)
