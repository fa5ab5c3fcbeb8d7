"""ImageNet with images that grow from 128 to 288 pixels.

After the DAWNBench entry of fast.ai and DIUx (cybertronai/imagenet18, 2018). It trained ResNet-50 to 93% top-5 in
18 minutes on 128 V100. Lambda ran it on 8 Titan RTX in 2.37 hours (lambdal/imagenet18).

With `phases=four-minutes optimizer=lars` it is the recipe of "Training ImageNet in Four Minutes" (Jia and others 2018,
arXiv 1807.11205), as far as that can be read: LARS, steps of 64K images (`global_batch`), gradients sent in fp16 and
summed in three steps over groups. Speed alone, on made-up images, is measured by `scaling`.

Timed: all epochs, training, validation and input pipeline, and the checkpoint after each. Not timed: imports, building
the model, listing the images, making resized copies (`gpubench data prepare imagenet`).

To be read in this order: network.py, pictures.py, data.py, checkpoint.py, training.py, which ends in the loop. What is
asked for, `phases` above all, is in gpubench/data/schedules.py.
"""

from collections.abc import Mapping
from pathlib import Path

from gpubench import Blueprint, Case, Clock, Param, ParamValue, Suite, Trial, UserError
from gpubench.data import datasets, images
from gpubench.data.schedules import Schedule, read, schedule_of

TRAIN_IMAGES = images.IMAGENET[1]
CPU_PIXELS = 2**21
"""Most pixels in a step on a CPU: ResNet-50's activations of so many take about 4 GB."""


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """One run of the schedule; returns top-1 (`accuracy`) and `top5` as fractions, and the loss, in validation."""
    from .training import train_schedule

    return train_schedule(trial, clock)


def blueprint(trial: Trial) -> Blueprint:
    """The network and the schedule."""
    from .training import blueprint_of

    return blueprint_of(trial)


def check(params: Mapping[str, ParamValue], folder: Path, data: str) -> None:
    """Raise UserError where the copies that the schedule reads were not made."""
    if not params["copies"]:
        return
    sizes = sorted({phase.copies for phase in _schedule(params).phases if phase.copies})
    there = [images.copies_are_whole(images.copies_folder(datasets.cache_folder(), data, size)) for size in sizes]
    if not all(there):
        wanted = ",".join(map(str, sizes))
        raise UserError(
            f"{folder}: this schedule reads resized copies; make them once with"
            f" `gpubench data prepare imagenet --sizes {wanted} --data {folder}`, or read originals with"
            " --set copies=false"
        )


def refuse(case: Case) -> str:
    """On a CPU a card's batches would fill the memory; and 16 bits cannot hold small steps of LARS or an average."""
    if case.params["optimizer"] == "lars" and case.precision.startswith("fp16-"):
        return "optimizer=lars: its weights are fp32; ask for fp32, tf32, fp16 or bf16"
    if case.params["ema"] and case.precision.startswith("fp16-"):
        return "ema: weights of 16 bits are too coarse for the steps of their average; ask for fp16 or bf16"
    schedule = _schedule(case.params)
    batch, step = case.batch_size or 0, int(case.params["global_batch"])
    if step % case.processes:
        return f"global_batch={step}: {case.processes} processes take equal parts of a step; give a multiple of them"
    if step and max(schedule.batch(phase, batch) for phase in schedule.phases) * case.processes > step:
        return f"global_batch={step}: a step has fewer images than the processes take at once; give a smaller --batch"
    pixels = max(phase.size**2 * schedule.batch(phase, batch) for phase in schedule.phases)
    most = pixels * case.processes // case.nodes  # they share a machine's memory
    if case.device != "cpu" or most <= CPU_PIXELS:
        return ""
    return f"a step of {most / 1e6:.1f} million pixels is a card's; give --batch 16 or --set phases=tiny on a CPU"


def samples_of(params: Mapping[str, ParamValue]) -> int:
    """Images in one training epoch of ImageNet; another tree is known to the trial alone."""
    return min(int(params["train_images"]) or TRAIN_IMAGES, TRAIN_IMAGES)


def own_batch(model: str, params: Mapping[str, ParamValue]) -> int:
    """Images in a step of the first phase, as the schedule has it."""
    return _schedule(params).first_batch


def _schedule(params: Mapping[str, ParamValue]) -> Schedule:
    return schedule_of(str(params["phases"]), int(params["epochs"]))


SUITE = Suite(
    train=train,
    blueprint=blueprint,
    version=5,
    models=("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "alexnet-bn", "small"),
    default_models=("resnet50",),
    params={
        "phases": Param("titan-rtx", "titan-rtx, four-minutes, tiny, or a TOML file (docs/imagenet.md)", read=read),
        "epochs": Param(0, "epochs of the whole run, to which the schedule is stretched; 0 is the schedule's own"),
        "copies": Param(True, "read the resized copies that the schedule names; false reads the originals"),
        "goal": Param(0.93, "top-5 that the run is to reach; 0 is none"),
        "optimizer": Param("sgd", "how a step is taken", choices=("sgd", "lars")),
        "lr": Param(0.0, "highest learning rate, in the shape of the schedule; 0 is the schedule's own"),
        "global_batch": Param(0, "images in a step of all processes, added up from batches; 0 is a batch of each"),
        "weight_decay": Param(1e-4, "of all weights but BatchNorm's and biases"),
        "ema": Param(
            0.0, "decay of an exponential average of the weights, which then is what validation judges; 0: none"
        ),
        "gradients_as": Param("fp32", "what processes send: fp16 halves it", choices=("fp32", "fp16")),
        "all_reduce": Param("flat", "how they are summed, as in scaling", choices=("flat", "hierarchical")),
        "group": Param(0, "processes in a group of hierarchical; 0 is those of one machine"),
        "bucket_mib": Param(25, "MiB of gradients that are sent together", least=1),
        "workers": Param(
            -1,
            "loader processes of each training process; -1: its share of the CPUs less one, at most 32; 0: none",
            least=-1,
        ),
        "memory_format": Param(
            "auto",
            "layout of images and weights; auto is the faster one in this precision on this device",
            choices=("auto", "channels_last", "contiguous"),
        ),
        "compile": Param(False, "torch.compile the model for training"),
        "train_images": Param(0, "train on so many images only; 0 is all"),
        "valid_images": Param(0, "validate on so many images only; 0 is all"),
    },
    studies=("stages", "batch"),
    quality="top5",
    goal="goal",
    processes=True,
    unit="images",
    recipe_batch=own_batch,
    train_samples=samples_of,
    data=("imagenet",),
    check=check,
    refuse=refuse,
)
