"""The networks `dawn`, `resnet9` and `narrow`, layers that torch lacks (ghost BatchNorm), and the whitening filters."""

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.nn.functional import batch_norm, conv2d
from torch.nn.grad import conv2d_input

from gpubench.training import Mode

from .recipe import CLASSES, Recipe


class Norm(nn.BatchNorm2d):
    """BatchNorm that can treat parts of a batch as batches (ghosts), and keep its scale at 1."""

    def __init__(self, channels: int, recipe: Recipe) -> None:
        super().__init__(channels, momentum=recipe.norm_momentum)
        self.ghosts = recipe.ghosts
        self.weight.requires_grad_(recipe.norm_scale)
        if recipe.norm_start == "uniform":
            nn.init.uniform_(self.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # The size of a smaller last batch may not be a multiple of `ghosts`.
        parts = math.gcd(self.ghosts, len(x)) if self.training else 1
        if parts == 1:
            return super().forward(x)
        assert self.running_mean is not None
        assert self.running_var is not None
        n, channels, height, width = x.shape
        mean, variance = (statistic.repeat(parts) for statistic in (self.running_mean, self.running_var))
        y = batch_norm(
            x.reshape(n // parts, channels * parts, height, width),
            mean,
            variance,
            self.weight.repeat(parts),
            self.bias.repeat(parts),
            True,
            self.momentum or 0.0,
            self.eps,
        )
        self.running_mean.copy_(mean.view(parts, channels).mean(0))
        self.running_var.copy_(variance.view(parts, channels).mean(0))
        return y.view(n, channels, height, width)


def weight_gradient(images: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a 3 x 3 convolution's weights, (outputs, inputs, 3, 3), by nine matrix products.

    `images` (N, inputs, height, width) are the convolution's input, which it pads by 1. `gradients` (N, outputs,
    height, width) are the gradients of its output.
    """
    _, _, height, width = images.shape
    images, gradients = images.permute(0, 2, 3, 1), gradients.permute(0, 2, 3, 1)
    products = []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            seen = images[:, max(0, down) : height + down, max(0, right) : width + right]
            there = gradients[:, max(0, -down) : height - down, max(0, -right) : width - right]
            products.append(there.flatten(0, 2).T @ seen.flatten(0, 2))
    return torch.stack(products, 1).unflatten(1, (3, 3)).permute(0, 3, 1, 2)


class ByProducts(torch.autograd.Function):
    """A 3 x 3 convolution, padded by 1, with `weight_gradient` in its backward pass."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(images, weight)
        return conv2d(images, weight, padding=1)

    @staticmethod
    def backward(ctx: Any, gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        images, weight = ctx.saved_tensors
        of_images = conv2d_input(list(images.shape), weight, gradients, padding=1)
        return of_images, weight_gradient(images, gradients)


class SmallConv(nn.Conv2d):
    """A 3 x 3 convolution without bias, padded by 1, that is faster on a CPU if images have few pixels.

    For such images oneDNN takes longer for the gradient of the weights than for the rest of the convolution in bf16,
    and seconds in fp16. On a card, and for larger images, torch's own convolution runs.
    """

    most_pixels_in_a_row = 5
    """With 6, matrix products save a sixth of the time in bf16, but are slower in fp32 (docs/research/cifar10.md)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type != "cpu" or max(x.shape[2:]) > self.most_pixels_in_a_row:
            return super().forward(x)
        weight = self.weight
        if torch.is_autocast_enabled("cpu"):  # cast here, not in ByProducts, so that the gradient becomes fp32
            dtype = torch.get_autocast_dtype("cpu")
            x, weight = x.to(dtype), weight.to(dtype)
        return cast("torch.Tensor", ByProducts.apply(x, weight))


def conv(before: int, after: int, *, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the image's size, or halves it."""
    if kernel == 3 and stride == 1:
        return SmallConv(before, after)
    return nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)


class PreActivation(nn.Module):
    """Norm and ReLU before each of two convolutions; the shortcut starts after the first ReLU."""

    def __init__(self, recipe: Recipe, before: int, after: int, *, stride: int = 1) -> None:
        super().__init__()
        self.norm1, self.conv1 = Norm(before, recipe), conv(before, after, stride=stride)
        self.norm2, self.conv2 = Norm(after, recipe), conv(after, after)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.shortcut = conv(before, after, kernel=1, stride=stride) if before != after or stride > 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu1(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return shortcut + self.conv2(self.relu2(self.norm2(self.conv1(x))))


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


class BothPools(nn.Module):
    """Maximum and mean of each channel, (N, 2 C)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.amax((2, 3)), x.mean((2, 3))], 1)


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def activation(recipe: Recipe) -> nn.Module:
    """Return the rung's activation."""
    made: dict[str, Callable[[], nn.Module]] = {
        "relu": nn.ReLU, "celu": partial(nn.CELU, recipe.celu), "gelu": nn.GELU, "silu": nn.SiLU
    }  # fmt: skip
    return made[recipe.activation]()


def conv_norm(before: int, after: int, recipe: Recipe, *, kernel: int = 3, pool: bool = False) -> nn.Module:
    """Return convolution, norm and activation; with `pool` also max-pooling, before or after norm and activation."""
    pooling: list[nn.Module] = [nn.MaxPool2d(2)] if pool else []
    tail: list[nn.Module] = [Norm(after, recipe), activation(recipe)]
    return nn.Sequential(conv(before, after, kernel=kernel), *(pooling + tail if recipe.pool_first else tail + pooling))


def dawn(recipe: Recipe) -> nn.Sequential:
    """Return the pre-activation ResNet of 18 layers that won DAWNBench in April 2018."""
    block = partial(PreActivation, recipe)
    body = nn.Sequential(
        conv(3, 64),
        *([Norm(64, recipe), nn.ReLU()] if recipe.twice else []),
        block(64, 64), block(64, 64),
        block(64, 128, stride=2), block(128, 128),
        block(128, 256, stride=2), block(256, 256),
        block(256, 256, stride=2), block(256, 256),
        BothPools(),
    )  # fmt: skip
    return nn.Sequential(OrderedDict(body=body, head=nn.Linear(512, CLASSES)))


def resnet9(recipe: Recipe) -> nn.Sequential:
    """Return Page's network: eight trained convolutions, two pairs of which have a residual connection."""
    filters, first = 3 * recipe.whiten**2, {}
    if recipe.whiten:
        first = {"whiten": conv(3, filters, kernel=recipe.whiten).requires_grad_(False)}
    body = nn.Sequential(
        conv_norm(filters, 64, recipe, kernel=1) if recipe.whiten else conv_norm(3, 64, recipe),
        conv_norm(64, 128, recipe, pool=True),
        Residual(conv_norm(128, 128, recipe), conv_norm(128, 128, recipe)),
        conv_norm(128, 256, recipe, pool=True),
        conv_norm(256, 512, recipe, pool=True),
        Residual(conv_norm(512, 512, recipe), conv_norm(512, 512, recipe)),
        nn.MaxPool2d(4),
        nn.Flatten(),
    )
    head = nn.Linear(512, CLASSES, bias=False)
    return nn.Sequential(OrderedDict(**first, body=body, head=head, scale=Scale(recipe.logit_scale)))


def narrow(recipe: Recipe) -> nn.Sequential:
    """Return the network of airbench94: a whitening layer and six convolutions of 64 and 256 channels."""
    filters = 2 * 3 * recipe.whiten**2
    whiten = nn.Conv2d(3, filters, recipe.whiten)
    whiten.weight.requires_grad_(False)
    body = nn.Sequential()
    for before, after in ((filters, 64), (64, 256), (256, 256)):
        start = [whiten, activation(recipe)] if before == filters else []
        body.extend([*start, conv_norm(before, after, recipe, pool=True), conv_norm(after, after, recipe)])
    body.extend([nn.AdaptiveMaxPool2d(1), nn.Flatten()])
    head = nn.Linear(256, CLASSES, bias=False)
    with torch.no_grad():
        whiten.bias.zero_()  # type: ignore[union-attr]
        head.weight.div_(head.weight.std())
        for module in body.modules():
            if isinstance(module, nn.Conv2d) and module is not whiten:  # begin as the identity
                nn.init.dirac_(module.weight[: module.in_channels])
    return nn.Sequential(OrderedDict(body=body, head=head, scale=Scale(recipe.logit_scale)))


def network(recipe: Recipe) -> nn.Sequential:
    """Return the rung's network with initial weights, on the CPU."""
    return {"dawn": dawn, "resnet9": resnet9, "narrow": narrow}[recipe.network](recipe)


def whitening_layer(model: nn.Module) -> nn.Conv2d:
    """Return the first convolution, whose filters are fixed."""
    return next(module for module in model.modules() if isinstance(module, nn.Conv2d))


def whiten(layer: nn.Conv2d, images: torch.Tensor, edge: int) -> None:
    """Set `layer` to the eigenvectors of the covariance of the images' patches, scaled to variance 1.

    After Page (3 x 3 patches) and T. Sweeney (tysam-code/hlb-CIFAR10: 2 x 2, each filter with both signs).
    """
    both_signs = layer.out_channels > 3 * edge**2
    patches = images.unfold(2, edge, 1).unfold(3, edge, 1).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(0, 2)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    least = 5e-4 if both_signs else 1e-2
    filters = (vectors / (values + least).sqrt()).T.reshape(-1, 3, edge, edge).flip(0)
    with torch.no_grad():
        layer.weight.copy_(torch.cat([filters, -filters]) if both_signs else filters)


def prepared(model: nn.Module, recipe: Recipe, mode: Mode, device: torch.device) -> nn.Module:
    """Return `model` on the device with the precision's weights. BatchNorm is fp32 from the rung `bn-fp32` on."""
    layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
    model = mode.prepare(model.to(device).to(memory_format=layout))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and not recipe.narrow_norm:
            module.float()
    return model
