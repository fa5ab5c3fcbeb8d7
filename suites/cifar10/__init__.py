"""CIFAR-10 to 94% accuracy: the speedup of each change, up to record recipes.

A model here is a rung of a ladder: the recipe of the previous rung with a change. The ladder is "How to Train Your
ResNet" (D. Page, Myrtle.ai 2018 and 2019; davidcpage/cifar10-fast). It begins with the DAWNBench entry of B. Johnson
(bkj/basenet). The rungs from `airbench94` on come from later records (K. Jordan, arXiv 2404.00498 and
KellerJordan/cifar10-airbench; hiverge/cifar10-speedrun); the last two are our own.

Published times, all to 94%: `baseline` in 356 s and `tta` in 26 s on a V100 (Page), airbench94_muon in 2.59 s and
cifar10_speedrun in 2.015 s on an A100.

Timed, by the rules of airbench: preparing the data, training, and the evaluation after it. Not timed: reading the
dataset, building the network, a warm-up on random images, evaluations between epochs. Goal: 94% of 10,000 test images.

Read recipe.py first, then networks.py, optimizers.py, data.py and training.py.
"""

from collections.abc import Mapping

from gpubench import Param, ParamValue, Suite, imported

from .recipe import GOAL, RECIPES, TRAIN_IMAGES, stage_at

FLOPS = {"dawn": 2.75647488e9, "resnet9": 2.272032768e9, "resnet9 whitened": 2.27352576e9}
"""FLOPs of forward and backward per image, counted by torch's FlopCounterMode (checked by a test)."""


def narrow_flops(edge: int, whitening: bool) -> float:
    """Return the FLOPs of `narrow` per image of edge x edge; `whitening`: whether the whitening layer's bias trains."""
    size, before = edge - 1, 24
    total = 2 * size**2 * 12 * before + 6 * 256 * 10  # fixed filters on patches of 2 x 2 x 3, and the head
    for after in (64, 256, 256):
        first, second = size**2 * 9 * before * after, (size // 2) ** 2 * 9 * after * after
        # Forward, weight gradient, input gradient (behind the whitening layer: only while that layer's bias trains).
        total += (6 if before > 24 or whitening else 4) * first + 6 * second
        size, before = size // 2, after
    return total


def flops(model: str, params: Mapping[str, ParamValue]) -> float:
    """Return the FLOPs of forward and backward per training image, a mean over the run, without the optimizer.

    A formula, because FLOPs of a compiled step cannot be counted.
    """
    recipe = RECIPES[model]
    if recipe.network != "narrow":
        return FLOPS[recipe.network + " whitened" * (recipe.network == "resnet9" and recipe.whiten > 0)]
    epochs = int(params.get("epochs", 0)) or recipe.epochs
    stages = [stage_at(recipe, epoch, epochs) for epoch in range(epochs)]
    total = sum(stage.share * narrow_flops(stage.edge, stage.whitening) for stage in stages)
    return total / sum(stage.share for stage in stages)


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.training", "blueprint"),
    version=6,
    models=tuple(RECIPES),
    params={
        "epochs": Param(0, "epochs of the whole run, to which the schedule is stretched; 0: as many as the rung has"),
        "workers": Param(4, "loader processes of the first two rungs"),
        "compile": Param(False, "torch.compile the network with its loss (CUDA: max-autotune), the crops, and Muon"),
        "validate": Param(False, "also evaluate between epochs, outside the run's time, and print the accuracy"),
        "runs_per_process": Param(
            1, "whole trainings in a trial, for recipes that take seconds; their median time counts", least=1
        ),
        "train_images": Param(0, "train on only the first N images; 0 is all"),
        "valid_images": Param(0, "evaluate on only the first N images; 0 is all"),
    },
    quality="accuracy",
    goal=GOAL,
    unit="images",
    large_linears=False,
    recipe_batch=lambda model, params, precision: RECIPES[model].batch,
    studies=("ladder",),
    flops=flops,
    train_samples=lambda params: int(params["train_images"]) or TRAIN_IMAGES,
    data=("cifar10",),
)
