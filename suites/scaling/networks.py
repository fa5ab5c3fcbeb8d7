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
