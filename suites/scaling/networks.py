"""ResNet-50 and AlexNet with BatchNorm."""

from collections.abc import Callable

from torch import nn
from torchvision.models import resnet

CLASSES = 1000


def resnet50() -> nn.Module:
    """torchvision's: 25.6 million weights in 161 tensors."""
    network: nn.Module = resnet.resnet50(num_classes=CLASSES)
    return network


def alexnet_bn() -> nn.Module:
    """AlexNet (Krizhevsky and others 2012, in one column) with BatchNorm in the place of its normalisation."""

    def block(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    def dense(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]

    return nn.Sequential(
        *block(3, 96, 11, 4, 2),
        nn.MaxPool2d(3, 2),
        *block(96, 256, 5, 1, 2),
        nn.MaxPool2d(3, 2),
        *block(256, 384, 3, 1, 1),
        *block(384, 384, 3, 1, 1),
        *block(384, 256, 3, 1, 1),
        nn.AdaptiveAvgPool2d(6),
        nn.Flatten(),
        *dense(256 * 6 * 6, 4096),
        *dense(4096, 4096),
        nn.Linear(4096, CLASSES),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {"resnet50": resnet50, "alexnet-bn": alexnet_bn}
