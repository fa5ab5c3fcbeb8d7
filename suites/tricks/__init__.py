"""Six speed tricks on one CIFAR-10 pipeline, alone and together.

After "How We Used PyTorch Lightning to Make Our Deep Learning Pipeline 10x Faster" (2021). Its tricks: parallel
loading, several devices (DDP), mixed precision, early stopping, sharding (FSDP), evaluation without gradients.

The pipeline is a plain loop, and each trick is one parameter of it (mixed precision: the row's precision). Each trick
is also one model of this suite, which sets that parameter and no other. `with-...` has all tricks up to that one, in
the order of the article.

Timed: all epochs with their validation, and the test at the end; the start of loader processes is part of the first
epoch. Not timed: imports, starting the other training processes, building the model, reading the dataset.

Read recipe.py first, then network.py, data.py and training.py, which has the code of the tricks and the loop.
"""

from gpubench import Case, Suite, imported
from gpubench.suite.trial import autocast_refusal

from .recipe import MIXED, MODELS, PARAMS, TRAIN_IMAGES, ranks_of


def refuse(case: Case) -> str:
    """Return why a case cannot run, or an empty string."""
    if reason := autocast_refusal(case.precision):
        return reason
    if case.params["loss_scale"]:
        return "loss_scale: the scale of Lightning's mixed precision is always dynamic; leave it out"
    if case.params["sharded"] and case.precision == "fp16":
        return "Lightning's sharding has no fp16 mixed precision, only bf16"
    if case.processes > 1 and case.device.partition(":")[0] not in {"cpu", "cuda"}:
        return f"{case.device} has no process group for several devices"
    if case.params["stopping"] and case.mode != "full":
        return "early stopping needs a whole run: add --full"
    return ""


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.network", "blueprint"),
    version=5,
    models=tuple(map(str, MODELS)),
    params=PARAMS,
    presets={"model": MODELS},
    precisions={str(model): MIXED.get(str(model), "fp32") for model in MODELS},
    ranks=ranks_of,
    extra="lightning",
    needs=("lightning",),
    refuse=refuse,
    studies=("ablation",),
    quality="accuracy",
    unit="images",
    large_linears=False,
    recipe_batch=lambda model, params, precision: 128,
    train_samples=lambda params: int(params["train_images"]) or TRAIN_IMAGES,
    data=("cifar10",),
)
