"""ResNet-50 and AlexNet with BatchNorm."""

from collections.abc import Callable

from torch import nn
from torchvision.models import resnet

from gpubench.training import alexnet_bn

CLASSES = 1000


def resnet50() -> nn.Module:
    """torchvision's: 25.6 million weights in 161 tensors."""
    network: nn.Module = resnet.resnet50(num_classes=CLASSES)
    return network


NETWORKS: dict[str, Callable[[], nn.Module]] = {"resnet50": resnet50, "alexnet-bn": alexnet_bn}
