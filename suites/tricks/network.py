"""A small residual network for CIFAR-10, the same for all tricks, and its blueprint."""

from collections import OrderedDict

import torch
from torch import nn
from torchvision.ops import Conv2dNormActivation

from gpubench import Blueprint, Trial

from . import CLASSES, SIZE


class Residual(nn.Sequential):
    """The sum of its input and its layers' output."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = x + super().forward(x)
        return added


def stage(channels: int, out: int) -> nn.Module:
    """Return a convolution that halves the image, and a residual pair."""
    pair = Residual(Conv2dNormActivation(out, out), Conv2dNormActivation(out, out))
    return nn.Sequential(Conv2dNormActivation(channels, out, stride=2), pair)


def network(width: int) -> nn.Module:
    """Return a small residual network: a stem and three stages."""
    stages = [(f"stage{n}", stage(width << (n - 1), width << n)) for n in (1, 2, 3)]
    head = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(width << 3, CLASSES))
    return nn.Sequential(OrderedDict([("stem", Conv2dNormActivation(3, width)), *stages, ("head", head)]))


def blueprint(trial: Trial) -> Blueprint:
    """Return the network, and the constant learning rate; the same for all tricks."""
    params = trial.params
    return Blueprint(
        network=network(params.width),
        inputs=(torch.zeros(2, 3, SIZE, SIZE),),
        epochs=params.epochs,
        schedule={"learning rate": lambda epoch: params.lr},
    )
