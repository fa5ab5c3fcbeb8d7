"""SGD whose groups of parameters have rates of their own, and Muon for the convolutions."""

import math
from typing import Any

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
    K. Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024). The products run in `dtype`,
    the precision under test; matrices of one shape run together.
    """

    # So a GradScaler leaves its scale, and whether a gradient overflowed, to the step; else it would wait for the
    # device in every one (pytorch/pytorch#80167).
    _step_supports_amp_scaling = True

    def __init__(self, weights: list[torch.nn.Parameter], momentum: float, dtype: torch.dtype) -> None:
        super().__init__(weights, {"momentum": momentum, "lr": 0.1, "factor": 1.0})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        overflowed = None if found is None else found > 0

        def unless_overflowed(value: Any, idle: float) -> Any:
            """`value` of a step that is taken, `idle` in one that is to change nothing; the host knows neither."""
            if overflowed is None:
                return value
            if not isinstance(value, torch.Tensor):
                value = torch.full_like(overflowed, value, dtype=torch.float32)
            return value.masked_fill(overflowed, idle)

        for group in self.param_groups:
            momentum, lr = unless_overflowed(group["momentum"], 1.0), unless_overflowed(group["lr"], 0.0)
            alike: dict[tuple[int, ...], list[tuple[torch.Tensor, torch.Tensor]]] = {}
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                buffer = state["momentum"]
                gradient = unless_overflowed(weight.grad if scale is None else weight.grad / scale, 0.0)
                buffer.mul_(momentum).add_(gradient)
                update = gradient.add(buffer, alpha=group["momentum"]).flatten(1)
                alike.setdefault(tuple(update.shape), []).append((weight, update))
            for pairs in alike.values():
                weights, updates = zip(*pairs, strict=True)
                for weight, change in zip(weights, orthogonal(torch.stack(updates).to(self.dtype)), strict=True):
                    weight.mul_(unless_overflowed(math.sqrt(len(weight)) / weight.norm(), 1.0))
                    weight.sub_(change.view(weight.shape) * lr)


def optimizers(model: torch.nn.Module, recipe: Recipe, dtype: torch.dtype) -> list[torch.optim.Optimizer]:
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
    return [sgd, Muon(filters, recipe.muon, dtype)] if filters else [sgd]
