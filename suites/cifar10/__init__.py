"""CIFAR-10 to 94%: what each step to a record run gains.

A model here is a rung of a ladder: the recipe of the rung before it and one change. The ladder is "How to Train Your
ResNet" (D. Page, Myrtle.ai 2018 and 2019; davidcpage/cifar10-fast). It begins with the DAWNBench entry of B. Johnson
(bkj/basenet). `speedrun` adds what later records found (K. Jordan, arXiv 2404.00498 and KellerJordan/cifar10-airbench;
hiverge/cifar10-speedrun).

Published, all of them with 94%: `baseline` in 356 s and `tta` in 26 s on a V100 (Page), airbench94_muon in 2.59 s and
cifar10_speedrun in 2.015 s on an A100.

Timed, by the rules of DAWNBench: preparing the data, the training, and the evaluation after it. Not timed: reading the
dataset, building the network, a warm-up on random labels (in laps of its own), and any evaluation between epochs.
Goal: 94% of the 10,000 test images.

To be read in this order: recipe.py, networks.py, optimizers.py, data.py, training.py, which ends in the loop.
"""

from collections.abc import Mapping

from gpubench import Blueprint, Clock, Param, ParamValue, Suite, Trial

from .recipe import GOAL, RECIPES, TRAIN_IMAGES


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """One or more runs of a rung; returns accuracy (fraction) and loss on the test images, means over the runs."""
    from .training import train_rung

    return train_rung(trial, clock)


def blueprint(trial: Trial) -> Blueprint:
    """The network and the schedule."""
    from .training import blueprint_of

    return blueprint_of(trial)


def samples_of(params: Mapping[str, ParamValue]) -> int:
    """Images in an epoch."""
    return int(params["train_images"]) or TRAIN_IMAGES


def recipe_batch(model: str, params: Mapping[str, ParamValue]) -> int:
    """The batch is part of the recipe."""
    return RECIPES[model].batch


FLOPS = {"dawn": 2.75647488e9, "resnet9": 2.272032768e9, "resnet9 whitened": 2.27352576e9, "narrow": 0.68120736e9}
"""Forward and backward of one image, as torch's FlopCounterMode counts them (a test counts again)."""
WHITENING_BIAS_FLOPS = 0.026569728e9
"""What the way back to the whitening layer of `narrow` costs while its bias is trained."""


def flops(model: str, params: Mapping[str, ParamValue]) -> float:
    """FLOPs of forward and backward per training image, a mean over the epochs; the optimizer's products not counted.

    A formula, because a compiled step cannot be counted.
    """
    recipe = RECIPES[model]
    counted = FLOPS[recipe.network + " whitened" * (recipe.network == "resnet9" and recipe.whiten > 0)]
    return counted + WHITENING_BIAS_FLOPS * recipe.whiten_epochs / recipe.epochs


SUITE = Suite(
    train=train,
    blueprint=blueprint,
    version=4,
    models=tuple(RECIPES),
    params={
        "epochs": Param(0, "epochs of the whole run; 0 is the rung's own; its schedule is stretched to them"),
        "workers": Param(4, "loader processes of the first two rungs"),
        "compile": Param(False, "torch.compile the network; on CUDA with max-autotune"),
        "validate": Param(False, "also evaluate between epochs, outside the run's time, and print the accuracy"),
        "runs_per_process": Param(
            1, "whole runs of a trial, for recipes of seconds; their median is its time", least=1
        ),
        "train_images": Param(0, "train on the first so many images only; 0 is all"),
        "valid_images": Param(0, "evaluate on the first so many images only; 0 is all"),
    },
    quality="accuracy",
    goal=GOAL,
    unit="images",
    recipe_batch=recipe_batch,
    studies=("ladder",),
    flops=flops,
    train_samples=samples_of,
    data=("cifar10",),
)
