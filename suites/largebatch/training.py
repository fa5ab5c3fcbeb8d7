"""A small network on CIFAR-10, trained by SGD or LARS with norms in fp32 or fp16; learning rate, steps and the loop."""

from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.ops import Conv2dNormActivation

from gpubench import Blueprint, Clock, Trial, UserError
from gpubench.data.datasets import load_cifar
from gpubench.training import Lars, Stepper, distributed, mode_of, quiet, shards, weighted_mean
from gpubench.training.device_images import Batch, DeviceImages

from . import RATES, TEST_IMAGES, TRAIN_IMAGES

CLASSES = 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
REFERENCE = 512
"""The batch, in samples of all processes, at which the peak learning rate is `lr`."""
MOMENTUM, DECAY, TRUST = 0.9, 5e-4, 1e-3


def small_network(width: int) -> torch.nn.Module:
    """Return three convolutions with BatchNorm that halve the image (1, 2, 4 x width channels), and a linear layer."""
    sizes = ((3, width), (width, 2 * width), (2 * width, 4 * width))
    layers = [Conv2dNormActivation(inputs, outputs, stride=2) for inputs, outputs in sizes]
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


def batches_of(split: Batch, trial: Trial, *, evaluate: bool) -> DeviceImages:
    """Return this process's share of each step, normalised on the device; training images are flipped at random."""
    world, samples = trial.case.processes, len(split[0])
    part = trial.batch_size if evaluate else trial.params.global_batch // world
    own_shards = shards(samples, part, rank=trial.rank, world=world, least=1 if evaluate else 2, evaluate=evaluate)
    device = torch.device(trial.case.device)
    mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) * 255 for values in (MEAN, STD))

    def prepare(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        x = (images.float() - mean) / std
        if evaluate:
            return x
        flip = torch.rand((len(x), 1, 1, 1), generator=generator, device=device) < 0.5
        return torch.where(flip, x.flip(3), x)

    return DeviceImages(split, own_shards, trial, prepare, shuffle=not evaluate)


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


class NaiveLars(torch.optim.SGD):
    """LARS with norms computed in fp16, for its first group of weights; a norm of zero leaves the gradient unscaled."""

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Scale the gradients, then take a step of SGD with them."""
        # A GradScaler stores its scale here, for the fused step to divide by.
        scale = getattr(self, "grad_scale", None)
        scale = 1.0 if scale is None else scale
        for weight in self.param_groups[0]["params"]:
            size, slope = (tensor.half().square().sum().sqrt().double() for tensor in (weight, weight.grad / scale))
            trust = torch.where((size > 0) & (slope > 0), TRUST * size / (slope + DECAY * size), 1.0)
            weight.grad.add_(weight * scale, alpha=DECAY).mul_(trust)
        super().step()


def optimizer_of(name: str, network: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer. Biases and BatchNorm have neither weight decay nor LARS's scaling."""
    if name == "lars":
        return Lars(network.parameters(), lr=1.0, momentum=MOMENTUM, decay=DECAY, trust=TRUST)
    decayed = [weight for weight in network.parameters() if weight.ndim > 1]
    others = [weight for weight in network.parameters() if weight.ndim <= 1]
    kind, decay = (torch.optim.SGD, DECAY) if name == "sgd" else (NaiveLars, 0.0)
    groups = [{"params": decayed, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    # A GradScaler waits for the device in every step of an optimizer that is not fused.
    return kind(groups, lr=1.0, momentum=MOMENTUM, fused=True)


def blueprint(trial: Trial) -> Blueprint:
    """Return the network, and the learning rate by epoch."""
    params = trial.params
    steps = -(-(params.train_images or TRAIN_IMAGES) // params.global_batch)
    peak = peak_rate(params.optimizer, params.lr, params.global_batch)
    return Blueprint(
        network=small_network(params.width),
        inputs=(torch.zeros(2, 3, 32, 32),),
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
    world, images = trial.case.processes, len(train_split[0])
    if params.global_batch % world or not trial.batch_size * world <= params.global_batch <= images:
        raise UserError(
            f"global_batch={params.global_batch}: must be a multiple of the processes ({world}), at least"
            f" {trial.batch_size * world} (a --batch of {trial.batch_size} each), and at most {images} (an epoch)"
        )
    loader = batches_of(train_split, trial, evaluate=False)
    valid = batches_of(test_split, trial, evaluate=True)
    network = small_network(params.width).to(device)
    model = distributed(network, trial)
    optimizer = optimizer_of(params.optimizer, network)
    stepper = Stepper(mode, network, optimizer, clock, loss_scale=params.loss_scale)
    steps, taken = len(loader) * params.epochs, 0
    peak = peak_rate(params.optimizer, params.lr, params.global_batch)

    def step(batch: Batch, weight: float) -> None:
        images, labels = batch
        parts = list(zip(images.split(trial.batch_size), labels.split(trial.batch_size), strict=True))
        for number, (x, y) in enumerate(parts, start=1):
            with quiet(model, clock.together and number == len(parts)):
                with mode.autocast():
                    loss = cross_entropy(model(x).float(), y, reduction="sum") * (weight / len(labels))
                stepper.backward(loss)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(taken, steps, params.warmup) * peak
        stepper.step()

    quality = {"accuracy": 0.0, "loss": 0.0}
    for _ in clock.epochs(params.epochs):
        model.train()
        # The clock comes first in `zip`, so that it sees the end of the loader.
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
