"""SGD with separate learning rates for groups of parameters, and Muon for the convolutions."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from .recipe import Recipe


def orthogonal(x: torch.Tensor, steps: int = 3) -> torch.Tensor:
    """Return approximately U V^T of each matrix U S V^T in `x` (n, rows, columns): singular values near 1.

    Newton-Schulz iteration with K. Jordan's coefficients, which need few steps but are less exact.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


@cache
def compile_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` compiled; the same object for all callers in this process."""
    return torch.compile(function, dynamic=False)


class Muon(torch.optim.Optimizer):
    """Moves each filter bank, a matrix (outputs, inputs), along the orthogonal part of its Nesterov momentum.

    Before that the bank's norm is set to sqrt(outputs), so the learning rate is about a step's angle in radians.
    K. Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024). The products run in `dtype`, the
    precision under test. All matrices are in one tensor, the smaller ones padded with zeros (as in
    hiverge/cifar10-speedrun), because on a card the launches for a single matrix take longer than its work.

    Args:
        weights: filter banks.
        momentum: the share of the momentum that a step keeps.
        dtype: dtype of the products.
        compiled: whether to compile the step with torch.compile.
    """

    # With this flag a GradScaler passes its scale and the overflow flag to the step. Otherwise it would wait for the
    # device in every step (pytorch/pytorch#80167).
    _step_supports_amp_scaling = True

    def __init__(
        self, weights: list[torch.nn.Parameter], momentum: float, dtype: torch.dtype, *, compiled: bool = False
    ) -> None:
        super().__init__(weights, {"momentum": momentum, "lr": 0.1, "factor": 1.0})
        self.dtype, self.update = dtype, compile_once(update) if compiled else update
        self.buffers: Buffers | None = None

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        weights = group["params"]
        if self.buffers is None:  # not earlier, because a precision may have replaced the weights
            self.buffers = buffers_for(weights)
        self.buffers.lr.fill_(group["lr"])  # torch.compile would compile again for each new Python number
        gradients = [weight.grad for weight in weights]
        scale, overflow = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        self.update(weights, gradients, self.buffers, group["momentum"], self.dtype, scale, overflow)


class Buffers(NamedTuple):
    """The tensors that Muon computes in."""

    weights: torch.Tensor
    """All matrices, (matrices, most outputs, most inputs), padded with zeros; the next two have the same shape."""
    gradients: torch.Tensor
    momentum: torch.Tensor
    lengths: torch.Tensor
    """Target norm of each matrix, (matrices, 1, 1)."""
    lr: torch.Tensor
    """Learning rate, a scalar."""


def buffers_for(weights: Sequence[torch.Tensor]) -> Buffers:
    """Return buffers for these filter banks, with their device and dtype."""
    first, shape = weights[0], (len(weights), max(map(len, weights)), max(weight[0].numel() for weight in weights))
    matrices, gradients, momentum = first.new_zeros((3, *shape))
    lengths = first.new_empty((len(weights), 1, 1))
    for length, weight in zip(lengths, weights, strict=True):
        length.fill_(len(weight) ** 0.5)  # a tensor made from a list would wait for its copy to the device
    return Buffers(matrices, gradients, momentum, lengths, torch.zeros((), device=first.device))


def update(
    filters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    buffers: Buffers,
    keep: float,
    dtype: torch.dtype,
    scale: torch.Tensor | None,
    overflow: torch.Tensor | None,
) -> None:
    """Take one step of Muon, in place, without waiting for the device.

    Args:
        filters: the weights, filter banks.
        gradients: the gradients of the weights.
        buffers: temporary tensors, and the momentum.
        keep: the share of the momentum that a step keeps.
        dtype: dtype of the products.
        scale: loss scale of the gradients, a scalar; None: 1.
        overflow: a scalar above 0 if a gradient overflowed: then nothing changes.
    """
    for bank, gradient, matrix, matrix_gradient in zip(
        filters, gradients, buffers.weights, buffers.gradients, strict=True
    ):
        part_of(matrix, bank).copy_(bank)
        part_of(matrix_gradient, bank).copy_(gradient)
    to_length = buffers.lengths / buffers.weights.norm(dim=(1, 2), keepdim=True)
    lr, kept = buffers.lr, keep
    if scale is not None:
        buffers.gradients.div_(scale)
    if overflow is not None:
        overflowed = overflow > 0
        buffers.gradients.masked_fill_(overflowed, 0.0)
        to_length, lr = to_length.masked_fill(overflowed, 1.0), lr.masked_fill(overflowed, 0.0)
        kept = torch.where(overflowed, 1.0, keep)  # type: ignore[assignment]
    buffers.momentum.mul_(kept).add_(buffers.gradients)
    nesterov = buffers.gradients.add(buffers.momentum, alpha=keep)
    buffers.weights.mul_(to_length).sub_(orthogonal(nesterov.to(dtype)) * lr)
    for bank, matrix in zip(filters, buffers.weights, strict=True):
        bank.copy_(part_of(matrix, bank))


def part_of(matrix: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the part of a padded matrix that belongs to `weight`, in its shape, as a view."""
    return matrix[: len(weight), : weight[0].numel()].unflatten(1, weight.shape[1:])


def optimizers(
    model: torch.nn.Module, recipe: Recipe, dtype: torch.dtype, *, compiled: bool = False
) -> list[torch.optim.Optimizer]:
    """Return SGD with Nesterov momentum (separate groups for biases and head), in later rungs also Muon (convolutions).

    Each group's `factor` is its learning rate as a multiple of the schedule's.
    """
    groups: dict[float, list[torch.nn.Parameter]] = {}
    filters = []
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        if recipe.muon and weight.dim() == 4:
            filters.append(weight)
            continue
        factor = recipe.bias_lr if name.endswith("bias") else recipe.head_lr if name == "head.weight" else 1.0
        groups.setdefault(factor, []).append(weight)
    sgd = torch.optim.SGD(
        [
            {"params": weights, "factor": factor, "weight_decay": recipe.weight_decay / factor}
            for factor, weights in groups.items()
        ],
        lr=0.1,  # set before each step
        momentum=recipe.momentum,
        nesterov=True,
        fused=True,
    )
    return [sgd, Muon(filters, recipe.muon, dtype, compiled=compiled)] if filters else [sgd]
