"""ResNet-50 and AlexNet with BatchNorm."""

from collections.abc import Callable
from functools import partial

from torch import nn
from torchvision.models import resnet

from gpubench.training import alexnet_bn

CLASSES = 1000


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet50": partial(resnet.resnet50, num_classes=CLASSES),  # 25.6 million weights in 161 tensors
    "alexnet-bn": alexnet_bn,
}


def network_of(name: str) -> nn.Module:
    """Return a network whose last layer begins with weights from N(0, 0.01), as the paper's."""
    network = NETWORKS[name]()
    *_, last = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
    nn.init.normal_(last.weight, std=0.01)
    return network
