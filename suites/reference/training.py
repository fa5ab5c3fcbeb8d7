"""ResNet-50, and an encoder of BERT-base's size; a random batch of each on the device, and the loop."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.models import resnet

from gpubench import Blueprint, Clock, Trial
from gpubench.training import Stepper, layout, mode_of

from . import SEQUENCE, VOCABULARY

WIDTH, HEADS, INNER = 768, 12, 3072
"""BERT-base: features of a token, attention heads of a layer, features inside its perceptron."""
MOMENTUM = 0.9
Batch = tuple[torch.Tensor, torch.Tensor]
"""Inputs, and the class of each."""


class Encoder(nn.Module):
    """BERT-base without dropout: embeddings, layers, and two classes from the first token."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(SEQUENCE, WIDTH)
        self.register_buffer("order", torch.arange(SEQUENCE), persistent=False)
        self.norm = nn.LayerNorm(WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classify = nn.Linear(WIDTH, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores (N, 2) of tokens, int64 (N, SEQUENCE)."""
        embedded = self.norm(self.tokens(tokens) + self.places(self.order))
        scores: torch.Tensor = self.classify(self.layers(embedded)[:, 0])
        return scores


def network_of(trial: Trial) -> nn.Module:
    """Return the trial's model with random weights, on the CPU."""
    network: nn.Module = resnet.resnet50() if trial.case.model == "resnet50" else Encoder(trial.params.layers)
    return network


def batch_of(trial: Trial, device: torch.device) -> Batch:
    """Return a random batch on the device: float32 (N, 3, size, size) or int64 (N, SEQUENCE), and int64 (N,)."""
    count, size = trial.batch_size, trial.params.image_size
    generator = torch.Generator(device).manual_seed(trial.seed)
    if trial.case.model == "resnet50":
        images = torch.randn(count, 3, size, size, device=device, generator=generator)
        classes = torch.randint(0, 1000, (count,), device=device, generator=generator)
        return images.contiguous(memory_format=layout(trial.case)), classes
    tokens = torch.randint(0, VOCABULARY, (count, SEQUENCE), device=device, generator=generator)
    return tokens, torch.randint(0, 2, (count,), device=device, generator=generator)


def prepared(trial: Trial, clock: Clock) -> tuple[Callable[[Batch], None], Batch]:
    """Return a function that trains on a batch, and the batch."""
    params, device = trial.params, torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    network = mode.prepare(network_of(trial).to(device)).train()
    if trial.case.model == "resnet50":
        network = network.to(memory_format=layout(trial.case))
    # A GradScaler waits for the device in every step of an optimizer that is not fused.
    optimizer = torch.optim.SGD(network.parameters(), params.lr, momentum=MOMENTUM, fused=True)
    stepper = Stepper(mode, network, optimizer, clock, loss_scale=params.loss_scale)

    def step(batch: Batch) -> None:
        inputs, classes = batch
        with mode.autocast():
            scores = network(mode.input(inputs))
        stepper.backward(cross_entropy(scores.float(), classes))
        stepper.step()

    return step, batch_of(trial, device)


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Train on one batch; there is no accuracy to return."""
    step, batch = prepared(trial, clock)
    loader = [batch] * max(1, trial.params.samples // trial.batch_size)
    for _ in clock.epochs(trial.params.epochs):
        for same_batch in clock.steps(loader, "train", trial.params.samples):
            step(same_batch)
    for same_batch in clock.resident():
        step(same_batch)
    return {}


def blueprint(trial: Trial) -> Blueprint:
    """Return the network, and the constant learning rate."""
    size = trial.params.image_size
    images = trial.case.model == "resnet50"
    return Blueprint(
        network=network_of(trial),
        inputs=(torch.zeros(2, 3, size, size) if images else torch.zeros(2, SEQUENCE, dtype=torch.int64),),
        epochs=trial.params.epochs,
        schedule={"learning rate": lambda epoch: trial.params.lr},
    )
