"""The optimizer LARS in few large operations, without waiting for the device. Its steps equal those of timm's LARS."""

from collections.abc import Callable, Iterable, Sequence

import torch

from gpubench.training.stepper import begin_momentum

ROW = 1024
"""Elements over which a norm is taken at first; weights begin at a multiple of them, which fused kernels like."""
LEAST = 1e-8
"""Added to what is divided by, as timm does."""


class Lars(torch.optim.SGD):
    """SGD with momentum in which each weight's rate fits its size (You and others 2017, arXiv 1708.03888).

    Weights of one dimension, biases and BatchNorm's, neither decay nor adapt. All gradients lie side by side in one
    tensor while they are scaled, so that a step has as many kernels for a large network as for a small one
    (docs/research/decisions/10-lars.md). The rest is torch's fused SGD, which by itself skips a step whose gradients
    overflowed.
    """

    def __init__(
        self, weights: Iterable[torch.nn.Parameter], lr: float, *, momentum: float, decay: float, trust: float = 1e-3
    ) -> None:
        every = list(weights)
        self._adapted = [weight for weight in every if weight.ndim > 1]
        others = [weight for weight in every if weight.ndim <= 1]
        super().__init__([{"params": self._adapted}, {"params": others}], lr=lr, momentum=momentum, fused=True)
        self._decay, self._trust = decay, trust
        begin_momentum(self)
        device = self._adapted[0].device
        rows = [-(-weight.numel() // ROW) for weight in self._adapted]
        self._starts = [sum(rows[:index]) * ROW for index in range(len(rows))]
        self._gaps = [
            torch.zeros(many * ROW - weight.numel(), device=device)
            for many, weight in zip(rows, self._adapted, strict=True)
        ]
        owners = [index for index, many in enumerate(rows) for _ in range(many)]
        self._owners = torch.tensor(owners, device=device)  # of each row, the weight it belongs to

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Adapt the gradients, then take SGD's step with them."""
        self._adapt()
        loss: float | None = super().step(closure)
        return loss

    @torch.no_grad()
    def _adapt(self) -> None:
        """Add the decay to each gradient, and give it the length of its weight times the trust."""
        # A GradScaler leaves its scale here, for a fused step to divide by.
        scale = getattr(self, "grad_scale", None)
        scale = 1.0 if scale is None else scale
        gradients = self._side_by_side([_gradient(weight) for weight in self._adapted])
        weights = self._side_by_side(self._adapted)
        size, slope = self._norms(weights), self._norms(gradients) / scale
        trust = self._trust * size / (slope + size * self._decay + LEAST)
        trust.masked_fill_((size == 0) | (slope == 0), 1.0)
        gradients.add_(weights.mul_(scale * self._decay)).mul_(trust[self._owners].view(-1, 1))
        flat = gradients.view(-1)
        for weight, start in zip(self._adapted, self._starts, strict=True):
            weight.grad = flat[start:].as_strided(weight.shape, weight.stride(), flat.storage_offset() + start)

    def _side_by_side(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The elements of all of them in rows, in the order in which the weights' own lie in memory."""
        parts = []
        for tensor, weight, gap in zip(tensors, self._adapted, self._gaps, strict=True):
            if tensor.stride() != weight.stride():
                tensor = torch.empty_like(weight).copy_(tensor)
            parts += [tensor.as_strided((tensor.numel(),), (1,)), gap]
        return torch.cat(parts).view(-1, ROW)

    def _norms(self, rows: torch.Tensor) -> torch.Tensor:
        """Of each weight, the norm of its rows."""
        squares = torch.linalg.vector_norm(rows, dim=1).square_()
        return torch.zeros(len(self._adapted), device=rows.device).index_add_(0, self._owners, squares).sqrt_()


def _gradient(weight: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
