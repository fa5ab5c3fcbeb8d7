"""Six speed tricks on one CIFAR-10 pipeline, alone and together.

After the article "How We Used PyTorch Lightning to Make Our Deep Learning Pipeline 10x Faster" (2021). Its tricks:
parallel loading, several devices (DDP), mixed precision, early stopping, sharding (FSDP), evaluation without gradients.

The pipeline is a plain loop, and each trick is one parameter of it (mixed precision: the row's precision). Each trick
is also one model of this suite, which sets that parameter and no other. `with-...` has all tricks up to that one, in
the order of the article; sharding replaces DDP.

Timed: all epochs with their validation, and in full runs the test at the end; the start of loader processes is part of
the first epoch. Not timed: imports, starting the other training processes, building the model, reading the dataset.

Read network.py first, then training.py, which has the images, the code of the tricks and the loop.
"""

from collections.abc import Mapping

from gpubench import Case, Param, ParamValue, Suite, imported
from gpubench.suite.trial import autocast_refusal

TRAIN_IMAGES, VALID_IMAGES, TEST_IMAGES = 45_000, 5_000, 10_000
CLASSES, SIZE = 10, 32
TRICKS = ("loading", "ddp", "mixed", "stopping", "sharded", "evaluation")


def cumulative(number: int) -> dict[str, ParamValue]:
    """Return the parameters of all tricks up to the one of this number; sharding replaces DDP."""
    on: dict[str, ParamValue] = {name: True for name in TRICKS[: number + 1] if name != "mixed"}
    return on | {"ddp": False} if "sharded" in on else on


PARAMS = {
    "loading": Param(False, "trick 1: loader processes prepare the batches, in pinned memory"),
    "ddp": Param(False, "trick 2: several processes, one per device (on a CPU they share its cores)"),
    "stopping": Param(False, "trick 4: stop when the validation loss has not improved for `patience` epochs"),
    "sharded": Param(False, "trick 5: several processes, each with a share of gradients and moments (FSDP)"),
    "evaluation": Param(False, "trick 6: validate and test without gradients, in larger batches"),
    "workers": Param(0, "loader processes of `loading` in each training process; 0: its share of the CPUs"),
    "ranks": Param(2, "training processes of `ddp` and `sharded`; each step's batch is divided among them", least=2),
    "patience": Param(10, "epochs without a better validation loss before `stopping` stops", least=1),
    "evaluation_batches": Param(4, "a batch of `evaluation` is this many times as large", least=1),
    "epochs": Param(30, "epochs; the maximum if training may stop early", least=1),
    "lr": Param(1e-3, "constant learning rate: a schedule would have to know where training stops"),
    "decay": Param(5e-4, "AdamW's weight decay"),
    "width": Param(64, "channels of the stem; the stages have 2, 4 and 8 times as many", least=1),
    "train_images": Param(0, "train on only the first N of 45,000 images; 0: all"),
    "valid_images": Param(0, "validate on only the first N of 5,000 images held out; 0: all"),
    "test_images": Param(0, "test on only the first N of 10,000 images; 0: all"),
}
MODELS: dict[ParamValue, dict[str, ParamValue]] = {
    "plain": {},
    **{name: {name: True} if name in PARAMS else {} for name in TRICKS},
    **{f"with-{name}": cumulative(number) for number, name in enumerate(TRICKS[:-1]) if number},
    "all-six": cumulative(len(TRICKS) - 1),
}
# Lightning's ModelParallelStrategy knows bf16-mixed, but not 16-mixed.
MIXED = dict.fromkeys(("mixed", "with-mixed", "with-stopping"), "mixed")
MIXED |= dict.fromkeys(("with-sharded", "all-six"), "bf16")


def ranks_of(params: Mapping[str, ParamValue]) -> int:
    """Return the number of training processes of a trial with these parameters."""
    return int(params["ranks"]) if params["ddp"] or params["sharded"] else 1


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
