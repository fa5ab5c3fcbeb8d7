"""AlexNet with BatchNorm, and torchvision's ResNets: the networks of the suites `imagenet` and `scaling`."""

from torch import nn
from torchvision.models import resnet
from torchvision.ops import Conv2dNormActivation


def alexnet_bn(classes: int) -> nn.Module:
    """Return AlexNet (Krizhevsky and others 2012, in one column) with BatchNorm instead of its own normalisation.

    Takes images of at least 31 x 31 pixels. Jia and others 2018 (arXiv 1807.11205) added BatchNorm for large batches.
    """

    def dense(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]

    return nn.Sequential(
        *Conv2dNormActivation(3, 96, 11, 4, padding=2),
        nn.MaxPool2d(3, 2),
        *Conv2dNormActivation(96, 256, 5),
        nn.MaxPool2d(3, 2),
        *Conv2dNormActivation(256, 384),
        *Conv2dNormActivation(384, 384),
        *Conv2dNormActivation(384, 256),
        nn.AdaptiveAvgPool2d(6),
        nn.Flatten(),
        *dense(256 * 6 * 6, 4096),
        *dense(4096, 4096),
        nn.Linear(4096, classes),
    )


def imagenet_network(name: str, classes: int = 1000, *, zero_last_norms: bool = False) -> nn.Module:
    """Return `alexnet-bn` or a ResNet of torchvision; the last layer begins with weights of standard deviation 0.01.

    `zero_last_norms`: the weights of the last BatchNorm in each block of a ResNet begin as zero.
    """
    if name == "alexnet-bn":
        network = alexnet_bn(classes)
    else:
        network = getattr(resnet, name)(num_classes=classes, zero_init_residual=zero_last_norms)
    *_, last = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
    nn.init.normal_(last.weight, std=0.01)
    return network
