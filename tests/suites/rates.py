"""Learns best at the rate `best`, times `drift` for each epoch but one, and better the longer; above 1 it fails."""

import math

from gpubench import Param, Suite


def train(trial, clock):
    """Accuracy falls with the distance of `lr` from the best, on a scale of logarithms."""
    params = trial.params
    best = params.best * params.drift ** (params.epochs - 1)
    if params.lr > 1 or (params.odd and params.lr == 0.4 and trial.seed % 2):
        raise FloatingPointError("the loss is not a number")
    for _ in clock.epochs(params.epochs):
        for _ in clock.steps([range(trial.batch_size)] * 2, phase="train"):
            pass
    return {"accuracy": 0.9 - 0.1 * abs(math.log2(params.lr / best)) - 0.1 / params.epochs, "loss": params.lr}


SUITE = Suite(
    train=train,
    models=("only", "other"),
    params={
        "epochs": Param(9, "epochs"),
        "lr": Param(0.1, "learning rate"),
        "best": Param(0.4, "best rate"),
        "drift": Param(1.0, "factor of the best rate by an epoch"),
        "odd": Param(False, "fail at 0.4 on every second seed"),
    },
    default_models=("only",),
    version=1,
    quality="accuracy",
    torch=False,
)
