"""The network, its images, the three optimizers, and the loop."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gpubench import Blueprint, Clock, Trial
from gpubench.data.datasets import load_cifar
from gpubench.training import (
    Lars,
    LossScale,
    Notes,
    Shard,
    begin_momentum,
    distributed,
    mode_of,
    quiet,
    shards,
    weighted_mean,
)

from . import RATES, TEST_IMAGES, TRAIN_IMAGES

CLASSES = 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
REFERENCE = 512
"""The batch at which the learning rate is `lr`."""
MOMENTUM, DECAY, TRUST = 0.9, 5e-4, 1e-3

Batch = tuple[torch.Tensor, torch.Tensor]
"""Images and labels."""


def small_network(width: int) -> torch.nn.Module:
    """Return three convolutions with BatchNorm, each with half the size and twice the channels, and a linear layer."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, CLASSES))


def load_images(trial: Trial) -> tuple[Batch, Batch]:
    """Return train and test images, uint8 (N, 3, 32, 32), and labels, int64 (N,)."""
    if trial.synthetic:
        generator = torch.Generator().manual_seed(trial.seed)
        splits_read = [
            (
                torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator),
                torch.randint(0, CLASSES, (count,), generator=generator),
            )
            for count in (TRAIN_IMAGES, TEST_IMAGES)
        ]
    else:
        splits = load_cifar("cifar10", Path(trial.data_dir))
        splits_read = [(torch.from_numpy(split.images), torch.from_numpy(split.labels)) for split in splits]
    counts = (trial.params.train_images or TRAIN_IMAGES, trial.params.valid_images or TEST_IMAGES)
    train_split, test_split = ((x[:count], y[:count]) for (x, y), count in zip(splits_read, counts, strict=True))
    return train_split, test_split


class Images:
    """This process's share of each step, normalised on the device; training images are flipped at random."""

    def __init__(self, split: Batch, trial: Trial, device: torch.device, *, evaluate: bool) -> None:
        self.images, self.labels = (tensor.to(device) for tensor in split)
        self.samples, self.evaluate = len(self.images), evaluate
        world = trial.case.processes
        self.step = min(self.samples, max(world, trial.params.global_batch))
        part = trial.batch_size if evaluate else max(1, self.step // world)
        self.shards: list[Shard] = shards(
            self.samples, part, rank=trial.rank, world=world, least=1 if evaluate else 2, evaluate=evaluate
        )
        self.order = torch.Generator(device).manual_seed(trial.seed)
        self.generator = torch.Generator(device).manual_seed(trial.seed + ((trial.rank + 1) << 32))
        self.mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device=device).view(1, 3, 1, 1) * 255

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[Batch]:
        device = self.images.device
        order = (
            torch.arange(self.samples, device=device)
            if self.evaluate
            else torch.randperm(self.samples, generator=self.order, device=device)
        )
        for shard in self.shards:
            index = order[shard.start : shard.stop]
            x = (self.images[index].float() - self.mean) / self.std
            if not self.evaluate:
                flip = torch.rand((len(x), 1, 1, 1), generator=self.generator, device=device) < 0.5
                x = torch.where(flip, x.flip(3), x)
            yield x, self.labels[index]


def rate_at(step: int, steps: int, warmup: float) -> float:
    """Return the share of the peak rate in this step: a linear rise, then a fall with the square of remaining steps."""
    up = max(1.0, warmup * steps)
    if step < up:
        return (step + 1) / up
    return max(0.0, 1 - (step - up) / max(1.0, steps - up)) ** 2


def peak_rate(optimizer: str, lr: float, images: int) -> float:
    """Return the highest learning rate for steps of `images` images; `lr` 0: the optimizer's default at REFERENCE."""
    growth = images / REFERENCE
    return (lr or RATES[optimizer]) * (growth if optimizer == "sgd" else growth**0.5)


def scale_by_fp16_norms(weights: list[torch.nn.Parameter]) -> None:
    """Scale gradients by LARS with norms computed in fp16; a norm of zero leaves the gradient unscaled."""
    for weight in weights:
        if weight.grad is None:
            continue
        size, slope = (tensor.detach().half().square().sum().sqrt().double() for tensor in (weight, weight.grad))
        trust = torch.where((size > 0) & (slope > 0), TRUST * size / (slope + DECAY * size), 1.0)
        weight.grad.add_(weight.detach(), alpha=DECAY).mul_(trust)


def optimizer_of(name: str, network: torch.nn.Module) -> tuple[torch.optim.Optimizer, Callable[[], None]]:
    """Return the optimizer, and a function to call before its step; biases and BatchNorm neither decay nor adapt."""
    decayed = [weight for weight in network.parameters() if weight.ndim > 1]
    others = [weight for weight in network.parameters() if weight.ndim <= 1]
    if name == "lars":
        weights = network.parameters()
        return Lars(weights, lr=1.0, momentum=MOMENTUM, decay=DECAY, trust=TRUST), lambda: None
    naive = name == "lars-fp16-norms"
    groups = [{"params": decayed, "weight_decay": 0.0 if naive else DECAY}, {"params": others, "weight_decay": 0.0}]
    prepare = (lambda: scale_by_fp16_norms(decayed)) if naive else (lambda: None)
    # A GradScaler waits for the device in every step of an optimizer that is not fused.
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=MOMENTUM, fused=True)
    begin_momentum(optimizer)
    return optimizer, prepare


def blueprint(trial: Trial) -> Blueprint:
    """Return the network, and the learning rate by epoch."""
    params = trial.params
    images = params.train_images or TRAIN_IMAGES
    step = min(images, max(trial.case.processes, params.global_batch))
    steps = -(-images // step)
    peak = peak_rate(params.optimizer, params.lr, step)
    return Blueprint(
        network=small_network(params.width),
        inputs=(torch.zeros(2, 3, 32, 32),),
        samples=2,
        epochs=params.epochs,
        schedule={
            "learning rate": lambda epoch: rate_at(int(epoch * steps), steps * params.epochs, params.warmup) * peak
        },
    )


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Train; return accuracy (fraction) and loss on the test images."""
    params, device = trial.params, torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    train_split, test_split = load_images(trial)
    loader = Images(train_split, trial, device, evaluate=False)
    valid = Images(test_split, trial, device, evaluate=True)
    network = small_network(params.width).to(device)
    model = distributed(network, trial)
    optimizer, prepare = optimizer_of(params.optimizer, network)
    scale = LossScale(mode, params.loss_scale)
    clock.note(lambda: Notes(loss_scale=scale.value, skipped_steps=scale.skipped))
    steps, taken = len(loader) * params.epochs, 0
    peak = peak_rate(params.optimizer, params.lr, loader.step)

    def step(batch: Batch, weight: float) -> None:
        images, labels = batch
        parts = list(zip(images.split(trial.batch_size), labels.split(trial.batch_size), strict=True))
        for number, (x, y) in enumerate(parts, start=1):
            with quiet(model, clock.together and number == len(parts)):
                with mode.autocast():
                    loss = cross_entropy(model(x).float(), y, reduction="sum") * (weight / len(labels))
                scale.apply(loss).backward()
        for group in optimizer.param_groups:
            group["lr"] = rate_at(taken, steps, params.warmup) * peak
        scale.unscale([optimizer])
        prepare()
        scale.step([optimizer])
        optimizer.zero_grad()

    quality = {"accuracy": 0.0, "loss": 0.0}
    for _ in clock.epochs(params.epochs):
        model.train()
        # The clock is first, so that it reaches the loader's end.
        for batch, share in zip(clock.steps(loader, "train", loader.samples), loader.shards, strict=False):
            step(batch, share.weight)
            taken += 1
        model.eval()
        sums, many = torch.zeros(2, dtype=torch.float64, device=device), 0
        with torch.no_grad(), mode.autocast():
            for images, labels in clock.steps(valid, "valid", valid.samples):
                scores = model(images).float()
                sums[0] += (scores.argmax(1) == labels).sum()
                sums[1] += cross_entropy(scores, labels, reduction="sum")
                many += len(labels)
        quality["accuracy"], quality["loss"] = weighted_mean((sums / many).tolist(), many, trial)
    model.train()
    for batch in clock.resident():
        step(batch, 1.0)
    return quality if clock.complete else {}
