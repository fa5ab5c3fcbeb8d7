"""ImageNet with images that grow from 128 to 288 pixels.

It repeats the DAWNBench entry of fast.ai and DIUx (cybertronai/imagenet18, 2018), which trained ResNet-50 to 93% top-5
in 18 minutes on 128 V100. Lambda ran it on 8 Titan RTX in 2.37 hours (lambdal/imagenet18).

docs/imagenet.md has the command for the published part of "Training ImageNet in Four Minutes" (Jia and others 2018,
arXiv 1807.11205): `phases=four-minutes`, LARS, steps of 64K images (`global_batch`), gradients sent in fp16 and summed
over groups of processes. The suite `scaling` measures only the rate of such training, on random images.

Timed: training, validation and input pipeline of all epochs, and checkpoints between epochs. Not timed: imports,
building the model, listing the images, resized copies (`gpubench data prepare imagenet`), the score of square crops.

Read network.py first, then data.py and training.py; `phases` are in gpubench/data/schedules.py.
"""

from collections.abc import Mapping
from pathlib import Path

from gpubench import MEMORY_FORMAT, Case, Param, ParamValue, Suite, UserError, imported
from gpubench.data import datasets, images
from gpubench.data.schedules import Schedule, read, schedule_of
from gpubench.suite.trial import autocast_refusal

TRAIN_IMAGES = images.IMAGENET[1]
CPU_PIXELS = 2**21
"""Most pixels in a step on a CPU: ResNet-50's activations for so many take about 4 GB."""


def suited(params: Mapping[str, ParamValue], device_kind: str, data: str) -> dict[str, tuple[str, str]]:
    """Return a smaller schedule for a CPU, and the original images where resized copies are missing."""
    values = {}
    if device_kind == "cpu" and params["phases"] == read("titan-rtx"):
        values["phases"] = ("tiny", "a small schedule: steps of the full one are too large for a CPU")
        params = {**params, "phases": read("tiny")}
    if data != "synthetic" and missing_copies(params, data):
        values["copies"] = ("false", "reads the original images; resized copies, which are faster, were not made")
    return values


def missing_copies(params: Mapping[str, ParamValue], data: str) -> list[int]:
    """Return the sizes of all copies that the schedule reads, if a copy is missing; else an empty list."""
    sizes = sorted({phase.copies for phase in schedule_in(params).phases if phase.copies and params["copies"]})
    folders = [images.copies_folder(datasets.cache_folder(), data, size) for size in sizes]
    return [] if all(map(images.copies_are_whole, folders)) else sizes


def check(params: Mapping[str, ParamValue], folder: Path, data: str) -> None:
    """Raise UserError if the copies that the schedule reads were not made."""
    if sizes := missing_copies(params, data):
        raise UserError(
            f"{folder}: this schedule reads resized copies; make them once with"
            f" `gpubench data prepare imagenet --sizes {','.join(map(str, sizes))} --data {folder}`, or read originals"
            " with --set copies=false"
        )


def refuse(case: Case) -> str:
    """Return why a case cannot run: LARS needs fp32 weights, or the batch does not fit the step or a CPU's memory."""
    if case.params["optimizer"] == "lars" and (reason := autocast_refusal(case.precision)):
        return f"optimizer=lars: {reason}"
    batch, step = case.batch_size or 0, int(case.params["global_batch"])
    schedule = schedule_in(case.params)
    if step % case.processes:
        return f"global_batch={step}: give a multiple of {case.processes}: all processes take equal parts of a step"
    if step and max(schedule.batch(phase, batch) for phase in schedule.phases) * case.processes > step:
        return f"global_batch={step}: a step has fewer images than the processes take at once; give a smaller --batch"
    pixels = max(phase.size**2 * schedule.batch(phase, batch) for phase in schedule.phases)
    machine_pixels = pixels * case.processes // case.nodes
    if case.device != "cpu" or machine_pixels <= CPU_PIXELS:
        return ""
    return f"{machine_pixels / 1e6:.1f} million pixels a step are too many for a CPU: --batch 16 or --set phases=tiny"


def schedule_in(params: Mapping[str, ParamValue]) -> Schedule:
    """Return the schedule that the parameters name."""
    return schedule_of(str(params["phases"]), int(params["epochs"]))


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.training", "blueprint"),
    version=9,
    models=("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "alexnet-bn", "small"),
    default_models=("resnet50",),
    params={
        "phases": Param("titan-rtx", "titan-rtx, four-minutes, tiny, or a TOML file (docs/imagenet.md)", read=read),
        "epochs": Param(0, "epochs of the whole run, to which the schedule is stretched; 0: as many as it has"),
        "copies": Param(True, "read the resized copies that the schedule names; false reads the originals"),
        "goal": Param(0.93, "top-5 that a full run must reach; 0: none"),
        "optimizer": Param("sgd", "optimizer of all weights", choices=("sgd", "lars")),
        "lr": Param(0.0, "highest learning rate of the schedule; 0: the schedule's own"),
        "global_batch": Param(0, "images in a step of all processes, in several batches; 0: one batch per process"),
        "weight_decay": Param(1e-4, "weight decay; BatchNorm and biases have none"),
        "gradients_as": Param("fp32", "dtype in which processes send gradients", choices=("fp32", "fp16")),
        "all_reduce": Param("flat", "how to sum gradients (suite scaling)", choices=("flat", "hierarchical", "hybrid")),
        "hybrid_kib": Param(64, "hybrid: KiB up to which a bucket is summed hierarchically", least=1),
        "group": Param(0, "hierarchical: processes in a group; 0: those of one machine"),
        "bucket_mib": Param(25, "MiB of gradients that are sent together", least=1),
        "workers": Param(
            -1,
            "loader processes of each training process; -1: its share of the CPUs less one, at most 32; 0: none",
            least=-1,
        ),
        "memory_format": MEMORY_FORMAT,
        "compile": Param(False, "torch.compile the model for training"),
        "train_images": Param(0, "train on only N images; 0 is all"),
        "valid_images": Param(0, "validate on only N images; 0 is all"),
    },
    studies=("stages", "batch"),
    quality="top5",
    goal="goal",
    processes=True,
    unit="images",
    large_linears=False,
    recipe_batch=lambda model, params, precision: schedule_in(params).first_batch,
    train_samples=lambda params: min(int(params["train_images"]) or TRAIN_IMAGES, TRAIN_IMAGES),
    data=("imagenet",),
    check=check,
    suited=suited,
    refuse=refuse,
)
