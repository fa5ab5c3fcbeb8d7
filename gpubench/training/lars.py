"""LARS, an optimizer, in a few large operations that never wait for the device. Takes the same steps as timm's LARS."""

from collections.abc import Callable, Iterable, Sequence

import torch

from gpubench.training.stepper import begin_momentum

ROW = 1024
"""Elements in a row of the concatenated tensor. Norms are computed by row first; each weight begins a new row."""
LEAST = 1e-8
"""Number that is added to a divisor, so that it is never zero; the same as in timm."""


class Lars(torch.optim.SGD):
    """SGD with momentum; each weight's learning rate adapts to its norm (You and others 2017, arXiv 1708.03888).

    Weights of one dimension (biases and BatchNorm's) have no weight decay, and their rate does not adapt. The gradients
    of the others are concatenated to scale them, so that the number of kernels does not depend on the network's size
    (docs/research/decisions/10-lars.md). The rest is torch's fused SGD, which skips a step whose gradients overflowed.
    """

    def __init__(
        self, weights: Iterable[torch.nn.Parameter], lr: float, *, momentum: float, decay: float, trust: float = 1e-3
    ) -> None:
        all_weights = list(weights)
        self._adapted = [weight for weight in all_weights if weight.ndim > 1]
        others = [weight for weight in all_weights if weight.ndim <= 1]
        super().__init__([{"params": self._adapted}, {"params": others}], lr=lr, momentum=momentum, fused=True)
        self._decay, self._trust = decay, trust
        begin_momentum(self)
        device = self._adapted[0].device
        rows = [-(-weight.numel() // ROW) for weight in self._adapted]
        self._starts = [sum(rows[:index]) * ROW for index in range(len(rows))]
        self._gaps = [
            torch.zeros(count * ROW - weight.numel(), device=device)
            for count, weight in zip(rows, self._adapted, strict=True)
        ]
        owners = [index for index, count in enumerate(rows) for _ in range(count)]
        self._owners = torch.tensor(owners, device=device)  # index of each row's weight

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Adapt the gradients, then take a step of SGD with them."""
        self._adapt()
        loss: float | None = super().step(closure)
        return loss

    @torch.no_grad()
    def _adapt(self) -> None:
        """Add the weight decay to each gradient, and scale the sum to about the norm of its weight times `trust`."""
        # A GradScaler stores its scale here, for the fused step to divide by.
        scale = getattr(self, "grad_scale", None)
        scale = 1.0 if scale is None else scale
        gradients = self._concatenated(
            [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self._adapted]
        )
        weights = self._concatenated(self._adapted)
        size, slope = self._norms(weights), self._norms(gradients) / scale
        trust = self._trust * size / (slope + size * self._decay + LEAST)
        trust.masked_fill_((size == 0) | (slope == 0), 1.0)
        gradients.add_(weights.mul_(scale * self._decay)).mul_(trust[self._owners].view(-1, 1))
        flat = gradients.view(-1)
        for weight, start in zip(self._adapted, self._starts, strict=True):
            weight.grad = flat[start:].as_strided(weight.shape, weight.stride(), flat.storage_offset() + start)

    def _concatenated(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the elements of all tensors in a tensor (rows, ROW), in the order of the weights' memory."""
        parts = []
        for tensor, weight, gap in zip(tensors, self._adapted, self._gaps, strict=True):
            if tensor.stride() != weight.stride():
                tensor = torch.empty_like(weight).copy_(tensor)
            parts += [tensor.as_strided((tensor.numel(),), (1,)), gap]
        return torch.cat(parts).view(-1, ROW)

    def _norms(self, rows: torch.Tensor) -> torch.Tensor:
        squares = torch.linalg.vector_norm(rows, dim=1).square_()
        return torch.zeros(len(self._adapted), device=rows.device).index_add_(0, self._owners, squares).sqrt_()
