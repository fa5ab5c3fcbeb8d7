"""SGD whose groups of parameters have rates of their own, and Muon for the convolutions."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch

from .recipe import Recipe


def orthogonal(x: torch.Tensor, steps: int = 3) -> torch.Tensor:
    """About U V^T of each matrix U S V^T in `x` (n, rows, columns): singular values come near 1, none exactly.

    Newton-Schulz iteration with K. Jordan's coefficients, which trade exactness for few steps.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Moves each filter bank, a matrix (outputs, inputs), along the orthogonal part of its Nesterov momentum.

    Before that its norm is set to the root of its outputs, so that the learning rate is an angle.
    K. Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024). The products run in `dtype`, the
    precision under test. All matrices lie in one tensor, the smaller ones filled up with zeros, which stay zeros (the
    idea of hiverge/cifar10-speedrun): a card has little work in one of them, and much in starting it.

    Args:
        weights: filter banks.
        momentum: the share of it that a step keeps.
        dtype: of the products.
        compiled: run each step as code of torch.compile.
    """

    # So a GradScaler leaves its scale, and whether a gradient overflowed, to the step; else it would wait for the
    # device in every one (pytorch/pytorch#80167).
    _step_supports_amp_scaling = True

    def __init__(
        self, weights: list[torch.nn.Parameter], momentum: float, dtype: torch.dtype, *, compiled: bool = False
    ) -> None:
        super().__init__(weights, {"momentum": momentum, "lr": 0.1, "factor": 1.0})
        self.dtype, self.turn = dtype, compiled_turn() if compiled else turn
        self.room: Room | None = None

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        weights = group["params"]
        if self.room is None:  # not before: a precision may have put other weights, of other bits, in their place
            self.room = room_for(weights)
        self.room.lr.fill_(group["lr"])  # a number would be compiled anew each time it changes
        gradients = [weight.grad for weight in weights]
        scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        self.turn(weights, gradients, self.room, group["momentum"], self.dtype, scale, found)


class Room(NamedTuple):
    """Where Muon works."""

    weights: torch.Tensor
    """All matrices, (matrices, most outputs, most inputs), zeros where one is smaller; and so the next two."""
    gradients: torch.Tensor
    momentum: torch.Tensor
    lengths: torch.Tensor
    """The norm that each matrix is to have, (matrices, 1, 1)."""
    lr: torch.Tensor
    """A scalar."""


def room_for(weights: Sequence[torch.Tensor]) -> Room:
    """Room for these filter banks, on their device and of their bits."""
    first, shape = weights[0], (len(weights), max(map(len, weights)), max(weight[0].numel() for weight in weights))
    matrices, gradients, momentum = first.new_zeros((3, *shape))
    lengths = first.new_empty((len(weights), 1, 1))
    for place, weight in zip(lengths, weights, strict=True):
        place.fill_(len(weight) ** 0.5)  # a tensor made of a list would be copied to the device, and waited for
    return Room(matrices, gradients, momentum, lengths, torch.zeros((), device=first.device))


def turn(
    filters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    room: Room,
    keep: float,
    dtype: torch.dtype,
    scale: torch.Tensor | None,
    found: torch.Tensor | None,
) -> None:
    """One step of Muon, in place, without asking the device anything.

    Args:
        filters: the weights, banks of filters.
        gradients: theirs.
        room: to work in, and what lasts from step to step.
        keep: the momentum.
        dtype: of the products.
        scale: what the gradients were multiplied by, a scalar; None is 1.
        found: above 0 where a gradient overflowed, a scalar: then nothing changes.
    """
    for bank, gradient, matrix, matrix_gradient in zip(filters, gradients, room.weights, room.gradients, strict=True):
        part_of(matrix, bank).copy_(bank)
        part_of(matrix_gradient, bank).copy_(gradient)
    to_length = room.lengths / room.weights.norm(dim=(1, 2), keepdim=True)
    lr, kept = room.lr, keep
    if scale is not None:
        room.gradients.div_(scale)
    if found is not None:
        overflowed = found > 0
        room.gradients.masked_fill_(overflowed, 0.0)
        to_length, lr = to_length.masked_fill(overflowed, 1.0), lr.masked_fill(overflowed, 0.0)
        kept = torch.where(overflowed, 1.0, keep)  # type: ignore[assignment]
    room.momentum.mul_(kept).add_(room.gradients)
    nesterov = room.gradients.add(room.momentum, alpha=keep)
    room.weights.mul_(to_length).sub_(orthogonal(nesterov.to(dtype)) * lr)
    for bank, matrix in zip(filters, room.weights, strict=True):
        bank.copy_(part_of(matrix, bank))


@cache
def compiled_turn() -> Callable[..., None]:
    """The same as compiled code, which all optimizers of a process share."""
    return torch.compile(turn, dynamic=False)


def part_of(matrix: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The part of a row of Muon's matrices that belongs to `weight`, in its shape; a view."""
    return matrix[: len(weight), : weight[0].numel()].unflatten(1, weight.shape[1:])


def optimizers(
    model: torch.nn.Module, recipe: Recipe, dtype: torch.dtype, *, compiled: bool = False
) -> list[torch.optim.Optimizer]:
    """SGD with Nesterov momentum, with groups of their own for biases and head, and Muon for convolutions.

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
        lr=0.1,  # set anew for each step
        momentum=recipe.momentum,
        nesterov=True,
        fused=True,
    )
    return [sgd, Muon(filters, recipe.muon, dtype, compiled=compiled)] if filters else [sgd]
