"""Learns best at lr=0.4, and better the longer; above 1 it fails."""

import math

from gpubench import Param, Suite


def train(trial, clock):
    """Accuracy falls with the distance of `lr` from 0.4, on a scale of logarithms."""
    params = trial.params
    if params.lr > 1:
        raise FloatingPointError("the loss is not a number")
    for _ in clock.epochs(params.epochs):
        for _ in clock.steps([range(trial.batch_size)] * 2, phase="train"):
            pass
    return {"accuracy": 0.9 - 0.1 * abs(math.log2(params.lr / 0.4)) - 0.1 / params.epochs, "loss": params.lr}


SUITE = Suite(
    train=train,
    models=("only", "other"),
    params={"epochs": Param(9, "epochs"), "lr": Param(0.1, "learning rate")},
    default_models=("only",),
    version=1,
    quality="accuracy",
    torch=False,
)
