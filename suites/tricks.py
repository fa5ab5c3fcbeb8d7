"""Six speed tricks on one CIFAR-10 pipeline, alone and together.

After "How We Used PyTorch Lightning to Make Our Deep Learning Pipeline 10x Faster" (2021). Its tricks: parallel
loading, several devices (DDP), mixed precision, early stopping, sharding (FSDP), evaluation without gradients.

The pipeline is a plain loop, and each trick is one parameter of it (mixed precision: the row's precision). Each trick
is also one model of this suite, which sets that parameter and no other. `with-...` has all tricks up to that one, in
the order of the article.

Timed: all epochs with their validation, and the test at the end; the start of loader processes is part of the first
epoch. Not timed: imports, starting the other training processes, building the model, reading the dataset.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench import Param, ParamValue, Suite

if TYPE_CHECKING:  # `gpubench list` reads this file without torch
    import torch
    from torch import nn

    from gpubench import Case, Clock, Trial

TRAIN_IMAGES, VALID_IMAGES, TEST_IMAGES = 45_000, 5_000, 10_000
CLASSES, SIZE = 10, 32
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TRICKS = ("loading", "ddp", "mixed", "stopping", "sharded", "evaluation")
PATIENCE_SECONDS = 120
"""How long a process waits for the others before it says that they are lost."""

LOST = "lost"
"""Key in the store under which a process that fails says why."""

LEAVING_SECONDS = 30.0
"""Whoever has not ended so long after the training is killed."""

TRAIN, VALID, TEST, STEP, SUM, AGAIN, DONE = range(7)
"""What the first process tells the others: begin a pass over a loader, take a step of it, add up, train on the
last batch again, end."""


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """One run of the pipeline; returns accuracy (fraction) and loss on the test images."""
    with other_processes(trial) as store:
        pipeline = Pipeline(trial, rank=0, store=store)
        clock.note(pipeline.notes)
        quality = lead(pipeline, clock)
    return quality


def lead(pipeline: Pipeline, clock: Clock) -> dict[str, float]:
    """The training loop, as the first process runs it."""
    params = pipeline.params
    best, bad_epochs, quality = float("inf"), 0, {}
    for _ in clock.epochs(params.epochs):
        for batch in pipeline.steps(clock, TRAIN):
            pipeline.train_step(batch)
        for batch in pipeline.steps(clock, VALID):
            pipeline.evaluate(batch)
        loss = pipeline.sums()["loss"]
        bad_epochs = 0 if loss < best else bad_epochs + 1
        best = min(best, loss)
        if params.stopping and bad_epochs >= params.patience:
            break  # the clock counts the epochs that ran, and no others
    if clock.complete:
        for batch in pipeline.steps(clock, TEST):
            pipeline.evaluate(batch)
        quality = pipeline.sums()
    for batch in clock.resident():
        pipeline.tell(AGAIN)
        pipeline.train_step(batch)
    clock.watched_samples //= pipeline.ranks  # whose FLOPs were counted: this process's share
    pipeline.tell(DONE)
    return quality


def follow(pipeline: Pipeline) -> None:
    """What every other process does: the same steps on its own share of each batch, when told."""
    phase, last = TRAIN, None
    batches: Iterator[Any] = iter(())
    while (word := pipeline.hear()) != DONE:
        if word == STEP:
            batch = next(batches)
            if phase == TRAIN:
                pipeline.train_step(batch)
                last = batch
            else:
                pipeline.evaluate(batch)
        elif word == SUM:
            pipeline.sums()
        elif word == AGAIN:
            pipeline.train_step(last)
        else:
            phase, batches = word, iter(pipeline.loaders[word])


class Pipeline:
    """One process's model, optimizer and loaders, and the six places where a trick changes something."""

    def __init__(self, trial: Trial, rank: int, store: Any) -> None:
        import torch
        from lightning.fabric import Fabric

        silence()
        self.params, self.rank, self.ranks = trial.params, rank, ranks_of(trial.case.params)
        device = torch.device(trial.case.device)
        first = device.index or 0
        if self.ranks > 1:
            join(store, rank, self.ranks, device)
        # Trick 3: mixed precision.
        precision = precision_plugin(trial)
        self.scaler = getattr(precision, "scaler", None)
        self.fabric = Fabric(
            accelerator=device.type,
            devices=list(range(first, first + self.ranks)) if device.type == "cuda" else self.ranks,
            strategy=strategy(self.params, device),
            plugins=[precision],
        )
        self.fabric.launch()
        self.device = self.fabric.device
        torch.manual_seed(trial.seed)  # all processes begin with the same weights
        self.model = self.fabric.setup_module(network(self.params.width))
        optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=self.params.lr,
            weight_decay=self.params.decay,
            fused=device.type == "cuda",  # the others have a GradScaler wait for the device in every step
        )
        self.optimizer = self.fabric.setup_optimizers(optimizer)
        self.loaders = {phase: loader(images, phase, trial, rank) for phase, images in enumerate(load_images(trial))}
        self.found: list[torch.Tensor] = []  # of each batch evaluated: loss and right ones, on the device
        self.images = 0

    def steps(self, clock: Clock, phase: int) -> Iterator[Any]:
        """The batches of one pass, timed; the other processes are told of each."""
        self.tell(phase)
        batches = self.loaders[phase]
        name = ("train", "valid", "test")[phase]
        # A batch here is this process's share; the step trains the whole of it.
        sizes = iter(batches.batch_sampler.sizes)
        for batch in clock.steps(batches, name, samples=batches.batch_sampler.samples, count=lambda _: next(sizes)):
            self.tell(STEP)
            yield batch

    def train_step(self, batch: Any) -> None:
        """Forward, backward, update."""
        from torch.nn.functional import cross_entropy

        self.model.train()
        images, labels = self.moved(batch)
        loss = cross_entropy(self.model(images), labels)
        self.fabric.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def evaluate(self, batch: Any) -> None:
        """Keep a batch's loss and right answers for the sums."""
        import torch
        from torch.nn.functional import cross_entropy

        self.model.eval()
        # Trick 6: evaluation without gradients. With them, autograd keeps every activation of the forward pass.
        with torch.no_grad() if self.params.evaluation else nullcontext():
            images, labels = self.moved(batch)
            scores = self.model(images)
            loss = cross_entropy(scores, labels, reduction="sum")
        right = (scores.argmax(dim=1) == labels).sum()
        self.found.append(torch.stack([loss.detach().float(), right.float()]))  # to read them now would be to wait
        self.images += len(labels)

    def sums(self) -> dict[str, float]:
        """Mean loss and share of right answers over all processes since the last call."""
        import torch
        import torch.distributed as dist

        self.tell(SUM)
        found = torch.stack(self.found).cpu().double().sum(0)
        total = torch.cat([found, torch.tensor([self.images], dtype=torch.float64)])
        if self.ranks > 1:
            dist.all_reduce(total)
        self.found, self.images = [], 0
        loss, right, images = total.tolist()
        return {"loss": loss / images, "accuracy": right / images}

    def moved(self, batch: Any) -> Any:
        """Images and labels on the device; from pinned memory that needs no waiting."""
        return [tensor.to(self.device, non_blocking=self.params.loading) for tensor in batch]

    def tell(self, word: int) -> None:
        """Tell the other processes what comes; only the first one says anything."""
        if self.ranks > 1 and self.rank == 0:
            say(word)

    def hear(self) -> int:
        """What the first process tells."""
        return say(0)

    def notes(self) -> Any:
        """The loss scale, for the row."""
        from gpubench.training import Notes

        scaler = self.scaler if self.scaler is not None and self.scaler.is_enabled() else None
        return Notes(loss_scale=scaler.get_scale() if scaler else None)


def silence() -> None:
    """Keep Lightning from saying what hardware it found, and from advice on precision that is not ours to follow."""
    import lightning  # noqa: F401  (sets the levels anew)

    for name in ("lightning.fabric", "lightning.pytorch"):  # Fabric, too, speaks through the latter
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*`srun` command is available.*")  # where Slurm is installed


def say(word: int) -> int:
    """Send `word` from the first process to all; returns what was sent."""
    import torch
    import torch.distributed as dist

    sent = torch.tensor([word])
    dist.broadcast(sent, 0)
    return int(sent.item())


# The tricks


def loader(images: tuple[Any, Any], phase: int, trial: Trial, rank: int) -> Any:
    """Batches of this process's share. Trick 1: loader processes prepare them, and the memory is pinned."""
    import torch
    from torch.utils.data import DataLoader

    params = trial.params
    workers = params.workers if params.loading else 0
    batch = trial.batch_size * (params.evaluation_batches if params.evaluation and phase != TRAIN else 1)
    batches: Any = Batches(len(images[0]), batch, trial.seed, rank, ranks_of(trial.case.params), phase == TRAIN)
    dataset: Any = Photos(*images, augment=phase == TRAIN)
    return DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=params.loading and trial.case.device.startswith("cuda"),
        generator=torch.Generator().manual_seed(trial.seed + rank),
    )


def strategy(params: Any, device: torch.device) -> Any:
    """How processes train together. Trick 2: DDP, each has the whole model and all average their gradients.
    Trick 5: FSDP, each has a share of every weight, gradient and moment, and borrows the rest for the moment."""
    from lightning.fabric.strategies import DDPStrategy, ModelParallelStrategy

    if params.sharded:
        # Lightning's own `fsdp` strategy refuses a CPU; torch's fully_shard does not.
        return ModelParallelStrategy(shard, data_parallel_size=params.ranks, tensor_parallel_size=1)
    return DDPStrategy() if params.ddp else "auto"


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    """Share the weights of every block, and of what is left, over the processes of `mesh`."""
    from torch.distributed.fsdp import fully_shard

    for block in model.children():
        if any(True for _ in block.parameters()):
            fully_shard(block, mesh=mesh["data_parallel"])
    fully_shard(model, mesh=mesh["data_parallel"])  # in place
    return model


def precision_plugin(trial: Trial) -> Any:
    """Lightning's part that computes in the trial's precision. Trick 3 is `16-mixed` or `bf16-mixed`."""
    from lightning.fabric.plugins import MixedPrecision, Precision

    from gpubench.training import mode_of

    name = trial.case.precision
    if name in {"fp32", "tf32"}:
        return Precision()
    kind = torch_device_type(trial.case.device)
    if name == "bf16":
        return MixedPrecision("bf16-mixed", kind)
    return MixedPrecision("16-mixed", kind, mode_of(name, trial.case.device).scaler())


def torch_device_type(device: str) -> str:
    """`cuda` of `cuda:0`."""
    return device.partition(":")[0]


# Processes


def ranks_of(params: Mapping[str, ParamValue]) -> int:
    """Training processes of a run with these parameters."""
    return int(params["ranks"]) if params["ddp"] or params["sharded"] else 1


@contextmanager
def other_processes(trial: Trial) -> Iterator[Any]:
    """Start the other training processes, and end them; yields the store where all meet, or None."""
    import torch
    import torch.distributed as dist

    from gpubench.errors import Unsupported
    from gpubench.training.process_group import leave

    ranks, kind = ranks_of(trial.case.params), torch_device_type(trial.case.device)
    if ranks == 1:
        yield None
        return
    there = torch.cuda.device_count() - (torch.device(trial.case.device).index or 0)
    if kind not in {"cpu", "cuda"}:
        raise Unsupported(f"{kind} has no process group for several devices")
    if kind == "cuda" and there < ranks:
        raise Unsupported(f"{ranks} processes need {ranks} devices; torch sees {there} from {trial.case.device} on")
    share_cores(ranks)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=other, args=(trial, rank, store.port)) for rank in range(1, ranks)]
    try:
        for process in others:
            process.start()
        yield store
        leave()  # with the others: NCCL waits for all that are left
        for process in others:
            process.join(LEAVING_SECONDS)
    except Exception as error:
        if store.check([LOST]):  # this one only noticed that it is gone
            raise RuntimeError(store.get(LOST).decode()) from error
        raise
    finally:
        for process in others:
            process.kill()
        if dist.is_initialized() and kind == "cpu":  # NCCL would wait for those that are gone
            dist.destroy_process_group()


def other(trial: Trial, rank: int, port: int) -> None:
    """One of the other processes, from its start to its end."""
    import torch
    import torch.distributed as dist

    from gpubench.training import precision
    from gpubench.training.process_group import leave

    ranks, params = ranks_of(trial.case.params), trial.params
    if params.threads:
        torch.set_num_threads(params.threads)
    share_cores(ranks)
    precision.set_flags(trial.case.precision, bool(params.reduced_reduction), bool(params.cudnn_benchmark))
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    try:
        follow(Pipeline(trial, rank, store))
    except Exception as error:
        store.set(LOST, f"process {rank}: {type(error).__name__}: {error}")
        raise
    leave()


def share_cores(ranks: int) -> None:
    """Give every process its share of the threads that one would use."""
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // ranks))


def join(store: Any, rank: int, ranks: int, device: torch.device) -> None:
    """Join the process group: Gloo on a CPU; on NVIDIA's cards NCCL, with Gloo for what lies in the host's memory."""
    import torch.distributed as dist

    # Lightning finds a group that is there already, and takes these for who is who in it.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    os.environ |= {"TORCHELASTIC_RUN_ID": "gpubench", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    dist.init_process_group(
        "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl",
        store=store,
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=PATIENCE_SECONDS),
    )


# Model and data


def network(width: int) -> nn.Module:
    """A small residual network: a stem, and three stages of a strided convolution and a residual pair."""
    from collections import OrderedDict

    from torch import nn

    stages = [(f"stage{n}", stage(width << (n - 1), width << n)) for n in (1, 2, 3)]
    head = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(width << 3, CLASSES))
    return nn.Sequential(OrderedDict([("stem", convolution(3, width)), *stages, ("head", head)]))


def convolution(channels: int, out: int, stride: int = 1) -> nn.Module:
    """3 x 3, BatchNorm, ReLU."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(channels, out, 3, stride, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)
    )


def stage(channels: int, out: int) -> nn.Module:
    """Half the side, then a residual pair."""
    from torch import nn

    class Residual(nn.Sequential):
        """Its input plus what its layers make of it."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            added: torch.Tensor = x + super().forward(x)
            return added

    pair = Residual(convolution(out, out), convolution(out, out))
    return nn.Sequential(convolution(channels, out, stride=2), pair)


def load_images(trial: Trial) -> list[tuple[Any, Any]]:
    """(images uint8 (N, 32, 32, 3), labels) to train on, to validate on (held out from training), and to test on."""
    import numpy as np

    params = trial.params
    if trial.synthetic:
        dice = np.random.default_rng(trial.seed)
        many = TRAIN_IMAGES + VALID_IMAGES + TEST_IMAGES
        images = dice.integers(0, 256, (many, SIZE, SIZE, 3), dtype=np.uint8)
        labels = dice.integers(0, CLASSES, many)
    else:
        from gpubench.data.datasets import load_cifar

        splits = load_cifar("cifar10", Path(trial.data_dir))
        images = np.concatenate([split.images for split in splits]).transpose(0, 2, 3, 1)
        labels = np.concatenate([split.labels for split in splits])
    parts = [(0, TRAIN_IMAGES, params.train_images), (TRAIN_IMAGES, VALID_IMAGES, params.valid_images)]
    parts.append((TRAIN_IMAGES + VALID_IMAGES, TEST_IMAGES, params.test_images))
    few = [(at, min(most, wanted or most)) for at, most, wanted in parts]
    return [(np.ascontiguousarray(images[at : at + n]), labels[at : at + n]) for at, n in few]


class Photos:
    """Images that are cropped, flipped and normalised one by one, in the process that loads them."""

    def __init__(self, images: Any, labels: Any, augment: bool) -> None:
        from torchvision import transforms as t

        random = [t.RandomCrop(SIZE, padding=4), t.RandomHorizontalFlip()] if augment else []
        self.transform = t.Compose([*random, t.ToTensor(), t.Normalize(MEAN, STD)])
        self.images, self.labels = images, labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class Batches:
    """Indices of one process's share of each step. A step has `batch` images over all processes."""

    def __init__(self, samples: int, batch: int, seed: int, rank: int, ranks: int, shuffle: bool) -> None:
        import torch

        self.samples, self.shuffle, self.rank, self.ranks = samples, shuffle, rank, ranks
        self.sizes = [min(batch, samples - start) for start in range(0, samples, batch)]
        if len(self.sizes) > 1 and self.sizes[-1] < 2 * ranks:
            few = self.sizes.pop()  # too few for every BatchNorm; the clock scales the time
            if not shuffle:
                self.sizes[-1] += few
        self.dice = torch.Generator().manual_seed(seed)  # the same order in all processes

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[list[int]]:
        import torch

        order = torch.randperm(self.samples, generator=self.dice) if self.shuffle else torch.arange(self.samples)
        start = 0
        for size in self.sizes:
            yield order[start + self.rank : start + size : self.ranks].tolist()
            start += size


# What may be asked


def refuse(case: Case) -> str:
    """Why a case cannot run, or an empty string."""
    if find_spec("lightning") is None:
        return "Lightning is not installed: pip install 'gpubench-train[lightning]'"
    if case.precision in {"fp16-master", "fp16-pure"}:
        return f"{case.precision}: Lightning's mixed precision keeps float32 weights"
    if case.params["loss_scale"]:
        return "loss_scale: the scale of Lightning's mixed precision is always dynamic; leave it out"
    if case.params["sharded"] and case.precision == "fp16":
        return "Lightning's sharding has no fp16 mixed precision, only bf16"
    if case.params["stopping"] and case.mode != "full":
        return "early stopping shows in a whole run only: add --full"
    return ""


def cumulative(number: int) -> dict[str, ParamValue]:
    """The parameters of all tricks up to the one of this number; sharding takes the place of DDP."""
    on: dict[str, ParamValue] = {name: True for name in TRICKS[: number + 1] if name != "mixed"}
    return on | {"ddp": False} if "sharded" in on else on


PARAMS = {
    "loading": Param(False, "trick 1: loader processes prepare the batches, in pinned memory"),
    "ddp": Param(False, "trick 2: several processes, one a device (on a CPU they share its cores)"),
    "stopping": Param(False, "trick 4: stop when the validation loss has not improved for `patience` epochs"),
    "sharded": Param(False, "trick 5: several processes that share weights, gradients and moments (FSDP)"),
    "evaluation": Param(False, "trick 6: validate and test without gradients, in larger batches"),
    "workers": Param(2, "loader processes of `loading`", least=1),
    "ranks": Param(2, "training processes of `ddp` and `sharded`; the batch is shared out among them", least=2),
    "patience": Param(10, "epochs without a better validation loss before `stopping` stops", least=1),
    "evaluation_batches": Param(4, "training batches in a batch of `evaluation`", least=1),
    "epochs": Param(30, "epochs, the most where it may stop early", least=1),
    "lr": Param(1e-3, "constant learning rate: a schedule would have to know where training stops"),
    "decay": Param(5e-4, "AdamW's weight decay"),
    "width": Param(64, "channels of the stem; the stages have 2, 4 and 8 times as many", least=1),
    "train_images": Param(0, "first images of the training part, which has 45,000; 0: all"),
    "valid_images": Param(0, "first images of the 5,000 held out to validate on; 0: all"),
    "test_images": Param(0, "first images of the 10,000 to test on; 0: all"),
}
MODELS: dict[ParamValue, dict[str, ParamValue]] = {
    "plain": {},
    **{name: {name: True} if name in PARAMS else {} for name in TRICKS},
    **{f"with-{name}": cumulative(number) for number, name in enumerate(TRICKS) if number},
}
# Lightning's ModelParallelStrategy knows bf16-mixed, but not 16-mixed.
MIXED = dict.fromkeys(("mixed", "with-mixed", "with-stopping"), "mixed")
MIXED |= dict.fromkeys(("with-sharded", "with-evaluation"), "bf16")

SUITE = Suite(
    train=train,
    version=3,
    models=tuple(map(str, MODELS)),
    params=PARAMS,
    presets={"model": MODELS},
    precisions={str(model): MIXED.get(str(model), "fp32") for model in MODELS},
    ranks=ranks_of,
    refuse=refuse,
    studies=("ablation",),
    quality="accuracy",
    unit="images",
    recipe_batch=lambda model, params: 128,
    train_samples=lambda params: int(params["train_images"]) or TRAIN_IMAGES,
    data=("cifar10",),
)
