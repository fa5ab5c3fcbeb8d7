"""CIFAR-10 in three parts, the Lightning Fabric pipeline in which each trick changes one thing, and the loop."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import lightning  # noqa: F401  (before `silence`: this import resets its loggers' levels)
import numpy as np
import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import MixedPrecision, Precision
from lightning.fabric.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as t

from gpubench import Clock, Trial
from gpubench.data.datasets import load_cifar
from gpubench.hardware.environment import cpu_count
from gpubench.training import Notes, mode_of, weighted_mean

from . import CLASSES, SIZE, TEST_IMAGES, TRAIN_IMAGES, VALID_IMAGES
from .network import network

TRAIN, VALID, TEST = range(3)
"""Numbers of the three passes over images, and of their loaders."""
Batch = list[torch.Tensor]
"""Images and labels."""
Part = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images and labels."""
Sample = tuple[torch.Tensor, int]
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def load_images(trial: Trial) -> list[Part]:
    """Return images, uint8 (N, 32, 32, 3), and labels of three parts: training, validation (held out), test."""
    params = trial.params
    if trial.synthetic:
        generator = np.random.default_rng(trial.seed)
        count = TRAIN_IMAGES + VALID_IMAGES + TEST_IMAGES
        images = generator.integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
        labels = generator.integers(0, CLASSES, count)
    else:
        splits = load_cifar("cifar10", Path(trial.data_dir))
        images = np.concatenate([split.images for split in splits]).transpose(0, 2, 3, 1)
        labels = np.concatenate([split.labels for split in splits])
    parts, start = [], 0
    for size, wanted in (
        (TRAIN_IMAGES, params.train_images),
        (VALID_IMAGES, params.valid_images),
        (TEST_IMAGES, params.test_images),
    ):
        part = slice(start, start + min(size, wanted or size))
        parts.append((np.ascontiguousarray(images[part]), labels[part]))
        start += size
    return parts


class Photos(Dataset[Sample]):
    """Images that are cropped, flipped and normalised one by one, in the process that loads them."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64], augment: bool) -> None:
        random = [t.RandomCrop(SIZE, padding=4), t.RandomHorizontalFlip()] if augment else []
        self.transform = t.Compose([*random, t.ToTensor(), t.Normalize(MEAN, STD)])
        self.images, self.labels = images, labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class Batches:
    """Indices of one process's share of each step. A step has `batch` images over all processes."""

    def __init__(self, samples: int, batch: int, seed: int, rank: int, ranks: int, shuffle: bool) -> None:
        self.samples, self.shuffle, self.rank, self.ranks = samples, shuffle, rank, ranks
        self.sizes = [min(batch, samples - start) for start in range(0, samples, batch)]
        if len(self.sizes) > 1 and self.sizes[-1] < 2 * ranks:
            rest = self.sizes.pop()  # too few for BatchNorm: not trained on; the clock projects their time
            if not shuffle:
                self.sizes[-1] += rest
        self.generator = torch.Generator().manual_seed(seed)  # the same order in all processes

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.samples, generator=self.generator) if self.shuffle else torch.arange(self.samples)
        start = 0
        for size in self.sizes:
            yield order[start + self.rank : start + size : self.ranks].tolist()
            start += size


def workers_of(trial: Trial) -> int:
    """Return the number of loader processes of a training process: by default its share of the CPUs."""
    if not trial.params.loading:
        return 0
    return int(trial.params.workers) or max(1, cpu_count() // trial.case.processes)


def loader(images: Part, phase: int, trial: Trial) -> DataLoader[Sample]:
    """Return batches of this process's share. Trick 1: loader processes prepare them, in pinned memory."""
    params = trial.params
    workers = workers_of(trial)
    batch = trial.batch_size * (params.evaluation_batches if params.evaluation and phase != TRAIN else 1)
    batches = Batches(len(images[0]), batch, trial.seed, trial.rank, trial.case.processes, phase == TRAIN)
    dataset = Photos(*images, augment=phase == TRAIN)
    return DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=params.loading and trial.case.device.startswith("cuda"),
        generator=torch.Generator().manual_seed(trial.seed + trial.rank),
    )


def strategy(params: SimpleNamespace) -> Strategy | str:
    """Return how processes train together.

    Trick 2 is DDP: each process has the whole model, and gradients are averaged. Trick 5 is FSDP: each process has a
    share of every gradient and moment, and of the weights between steps.
    """
    if params.sharded:
        # Lightning's own `fsdp` strategy refuses a CPU; torch's fully_shard does not.
        return ModelParallelStrategy(shard, data_parallel_size=params.ranks, tensor_parallel_size=1)
    return DDPStrategy() if params.ddp else "auto"


def shard(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Return the model with the weights of every block, and the rest, sharded over the processes of `mesh`."""
    for block in model.children():
        if any(True for _ in block.parameters()):
            fully_shard(block, mesh=mesh["data_parallel"], reshard_after_forward=False)
    fully_shard(model, mesh=mesh["data_parallel"], reshard_after_forward=False)  # in place
    return model


def precision_plugin(trial: Trial) -> Precision:
    """Return Lightning's plugin for the trial's precision. Trick 3 is `16-mixed` or `bf16-mixed`."""
    name = trial.case.precision
    if name in {"fp32", "tf32"}:
        return Precision()
    kind = torch.device(trial.case.device).type
    if name == "bf16":
        return MixedPrecision("bf16-mixed", kind)
    return MixedPrecision("16-mixed", kind, mode_of(name, trial.case.device).scaler())


def describe_processes(trial: Trial) -> None:
    """Set the environment variables by which Lightning finds the process group and its rank; divide the CPU threads."""
    rank, world = str(trial.rank), str(trial.case.processes)
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "GROUP_RANK": "0"}
    os.environ |= {"TORCHELASTIC_RUN_ID": "gpubench", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    torch.set_num_threads(max(1, torch.get_num_threads() // trial.case.processes))


def silence() -> None:
    """Turn off Lightning's messages about hardware and its advice on precision, which the trial defines."""
    for name in ("lightning.fabric", "lightning.pytorch"):  # Fabric uses both
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*`srun` command is available.*")  # where Slurm is installed


class Pipeline:
    """Model, optimizer and loaders of a process. Each trick changes one thing here; early stopping: `run_epochs`."""

    def __init__(self, trial: Trial) -> None:
        silence()
        self.trial, self.params, self.ranks = trial, trial.params, trial.case.processes
        device = torch.device(trial.case.device)
        first = (device.index or 0) - trial.rank
        if self.ranks > 1:
            describe_processes(trial)
        # Trick 3: mixed precision.
        plugin = precision_plugin(trial)
        self.scaler = getattr(plugin, "scaler", None)
        self.fabric = Fabric(
            accelerator=device.type,
            devices=list(range(first, first + self.ranks)) if device.type == "cuda" else self.ranks,
            strategy=strategy(self.params),
            plugins=[plugin],
        )
        self.fabric.launch()
        self.device = self.fabric.device
        torch.manual_seed(trial.seed)  # the same initial weights in all processes
        self.model = self.fabric.setup_module(network(self.params.width))
        optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=self.params.lr,
            weight_decay=self.params.decay,
            fused=device.type == "cuda",  # otherwise a GradScaler waits for the device in every step
        )
        self.optimizer = self.fabric.setup_optimizers(optimizer)
        self.loaders = {phase: loader(images, phase, trial) for phase, images in enumerate(load_images(trial))}
        self.batch_sums: list[torch.Tensor] = []  # loss and right predictions of each batch, on the device
        self.images = 0

    def steps(self, clock: Clock, phase: int) -> Iterator[Batch]:
        """Yield this process's share of each batch of one pass, timed."""
        batches, shares = self.loaders[phase], self.loaders[phase].batch_sampler
        assert isinstance(shares, Batches)
        name = ("train", "valid", "test")[phase]
        yield from clock.steps(batches, name, samples=shares.samples, count=lambda batch: len(batch[1]))

    def train_step(self, batch: Batch, *, together: bool = True) -> None:
        """Train on a batch; gradients are averaged over the processes only if `together`."""
        self.model.train()
        images, labels = self.moved(batch)
        with nullcontext() if together else self.fabric.no_backward_sync(self.model):
            loss = cross_entropy(self.model(images), labels)
            self.fabric.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def evaluate(self, batch: Batch) -> None:
        """Add a batch's loss and number of right predictions to the sums."""
        self.model.eval()
        # Trick 6: evaluation without gradients. With them, autograd keeps every activation of the forward pass.
        with torch.no_grad() if self.params.evaluation else nullcontext():
            images, labels = self.moved(batch)
            scores = self.model(images)
            loss = cross_entropy(scores, labels, reduction="sum")
        right = (scores.argmax(dim=1) == labels).sum()
        # Reading the two numbers here would wait for the device.
        self.batch_sums.append(torch.stack([loss.detach().float(), right.float()]))
        self.images += len(labels)

    def sums(self) -> dict[str, float]:
        """Return mean loss and accuracy over all processes since the last call."""
        sums = torch.stack(self.batch_sums).cpu().double().sum(0)
        loss, accuracy = weighted_mean((sums / self.images).tolist(), self.images, self.trial)
        self.batch_sums, self.images = [], 0
        return {"loss": loss, "accuracy": accuracy}

    def moved(self, batch: Batch) -> Batch:
        """Return images and labels on the device; copies from pinned memory do not wait."""
        return [tensor.to(self.device, non_blocking=self.params.loading) for tensor in batch]

    def notes(self) -> Notes:
        """Return the loss scale, for the row."""
        scaler = self.scaler if self.scaler is not None and self.scaler.is_enabled() else None
        return Notes(loss_scale=scaler.get_scale() if scaler else None)


def run_epochs(pipeline: Pipeline, clock: Clock) -> dict[str, float]:
    """Train, validate and test; return accuracy (fraction) and loss on the test images of all processes."""
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
            break  # the clock counts only the epochs that ran
    if clock.complete:
        for batch in pipeline.steps(clock, TEST):
            pipeline.evaluate(batch)
        quality = pipeline.sums()
    for batch in clock.resident():
        pipeline.train_step(batch, together=clock.together)
    return quality


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Run the pipeline; return accuracy (fraction) and loss on the test images."""
    pipeline = Pipeline(trial)
    clock.note(pipeline.notes)
    return run_epochs(pipeline, clock)
