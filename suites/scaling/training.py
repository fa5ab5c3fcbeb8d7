"""Trains a network on random images with LARS; `train` does that, or times the all-reduces of allreduce.py."""

from collections.abc import Iterator, Sequence

import torch
from torch.nn.functional import cross_entropy

from gpubench import Blueprint, Clock, Trial, UserError
from gpubench.training import (
    Lars,
    LossScale,
    Notes,
    distributed,
    imagenet_network,
    layout,
    mode_of,
    quiet,
    send_gradients,
)

from . import CLASSES, NETWORKS
from .allreduce import measure_allreduce

POOL = 4
"""Number of different batches; the time of a step does not depend on the images."""


class Images:
    """The steps of an epoch: each takes `accumulate` batches, in turn from POOL batches of random images."""

    def __init__(self, trial: Trial, device: torch.device, layout: torch.memory_format) -> None:
        size, batch, self.parts = trial.params.image_size, trial.batch_size, trial.params.accumulate
        self.images_a_step: int = batch * self.parts
        generator = torch.Generator(device).manual_seed(trial.seed + trial.rank)
        self.pool = [
            (
                torch.randn(batch, 3, size, size, device=device, generator=generator).contiguous(memory_format=layout),
                torch.randint(0, CLASSES, (batch,), device=device, generator=generator),
            )
            for _ in range(POOL)
        ]
        # Only whole steps; the clock scales the time by the images that are left.
        self.steps: int = max(1, trial.params.train_images // (self.images_a_step * trial.case.processes))

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
        for step in range(self.steps):
            first = step * self.parts
            yield [self.pool[number % POOL] for number in range(first, first + self.parts)]


def train_network(trial: Trial, clock: Clock) -> None:
    """Train for all epochs; a step takes `accumulate` batches before processes communicate."""
    params, device = trial.params, torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    network = imagenet_network(trial.case.model).to(device).to(memory_format=layout(trial.case))
    model = distributed(network, trial, bucket_cap_mb=params.bucket_mib)
    sent = torch.float16 if params.gradients_as == "fp16" else torch.float32
    send_gradients(model, trial, params.all_reduce, params.group, sent, params.hybrid_kib << 10)
    gradients = sum(weight.numel() * sent.itemsize for weight in network.parameters())
    clock.table.append(
        {
            "gradient_bytes": gradients,
            "gradient_type": str(sent).removeprefix("torch."),
            "images_a_step": trial.batch_size * params.accumulate,
        }
    )
    optimizer = Lars(network.parameters(), params.lr, momentum=0.9, decay=5e-5)
    scale = LossScale(mode, params.loss_scale)
    clock.note(lambda: Notes(loss_scale=scale.value, skipped_steps=scale.skipped))

    def step(parts: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for number, (images, labels) in enumerate(parts, start=1):
            with quiet(model, clock.together and number == len(parts)):
                with mode.autocast():
                    loss = cross_entropy(model(images).float(), labels) / len(parts)
                scale.apply(loss).backward()
        scale.step([optimizer])
        optimizer.zero_grad()

    model.train()
    loader = Images(trial, device, layout(trial.case))
    for _ in clock.epochs(params.epochs):
        for parts in clock.steps(loader, "train", params.train_images, count=lambda _: loader.images_a_step):
            step(parts)
    for parts in clock.resident():
        step(parts)


def blueprint(trial: Trial) -> Blueprint:
    """Return the network, and the constant learning rate."""
    params, size = trial.params, trial.params.image_size
    if trial.case.model not in NETWORKS:
        raise UserError(f"it trains no network; {' and '.join(NETWORKS)} do")
    return Blueprint(
        network=imagenet_network(trial.case.model),
        inputs=(torch.zeros(2, 3, size, size),),
        samples=2,
        epochs=params.epochs,
        schedule={"learning rate": lambda epoch: params.lr},
    )


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Run the trial's model; there is no accuracy to return."""
    if trial.case.model == "allreduce":
        measure_allreduce(trial, clock)
    else:
        train_network(trial, clock)
    return {}
