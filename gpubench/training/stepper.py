"""One optimizer step in any precision: loss scale, master weights, clipping, and counts of overflows."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from fastai.fp16_utils import master_params_to_model_params
from torch import nn
from torch.nn.utils import clip_grad_norm_

from gpubench.suite.precisions import FLOAT32, PRECISIONS
from gpubench.training import low_precision
from gpubench.training.clock.clock import Clock, Notes
from gpubench.training.precision import BATCH_NORMS, Mode, dtype_name

SIXTEEN_BITS = (torch.float16, torch.bfloat16)
NEVER = 2**31 - 1
"""Growth interval of a fixed loss scale, in steps: practically infinite."""


class Stepper:
    """Backward pass and optimizer step of `mode`, with the same calls in a suite for every precision.

    fp16 and fp16-master scale the loss by torch's GradScaler. The scale starts at 65536, is halved at each overflow
    (that step is skipped), and doubled after 2000 good steps. With fp16-master the optimizer trains float32 copies
    of the model's float16 weights; after each step they are copied into the model. A pure precision trains its 16-bit
    weights directly, by default unscaled, and takes every step without a check, as Apex O3 did: a gradient that
    overflows makes weights infinite, and the trial ends as diverged. Create the Stepper before the optimizer's first
    step, and after `mode.prepare(model)`. Pass float32 losses: a scaled loss in fp16 would overflow.

    Args:
        mode: the precision.
        model: the model that the optimizer trains.
        optimizer: one or several; with a loss scaler each one skips a step in which its own gradients overflowed.
        clock: gets the Notes after the training (loss scale, skipped steps, non-finite losses and others).
        clip_norm: the largest norm of all unscaled gradients together; None: no clipping.
        loss_scale: a fixed loss scale; 0 or None: dynamic, but 1 in a pure precision.
    """

    def __init__(
        self,
        mode: Mode,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        clock: Clock,
        *,
        clip_norm: float | None = None,
        loss_scale: float | None = None,
    ) -> None:
        self._precision, self._clip_norm = PRECISIONS[mode.name], clip_norm
        self._model = model
        self._optimizers = list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
        self._fixed_scale = float(loss_scale or 0)
        self._scaler = mode.scaler(self._fixed_scale)
        if self._fixed_scale:
            self._scaler.set_growth_interval(NEVER)
        self._scale: torch.Tensor | None = None  # on the device, from the first loss on
        self._one = self._skipped = torch.zeros(())
        self._skipped_before = 0  # steps that an earlier process skipped
        self._factor = float(loss_scale or 1) if self._precision.pure else 1.0
        self._halves, self._masters = use_masters(self._optimizers) if self._precision.masters else ([], [])
        for one_optimizer in self._optimizers:
            begin_momentum(one_optimizer)
        self._steps = 0
        self._losses = Tally()
        clock.note(self.notes)

    @property
    def plain(self) -> bool:
        """Whether a step (without clipping) only needs the optimizer, because nothing is scaled or copied."""
        return not self._precision.scaled and self._precision.weights == FLOAT32

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the scalar `loss`, scaled if the precision needs it, to call `backward` on."""
        self._losses.add(loss)
        if not self._scaler.is_enabled():
            return loss * self._factor if self._factor != 1 else loss
        scaled: torch.Tensor = self._scaler.scale(loss)
        if self._scale is None:
            self._one, self._skipped = torch.ones((), device=loss.device), torch.zeros((), device=loss.device)
            self._scale = self._scaler.scale(self._one)
        return scaled

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass of a scalar `loss`; several calls before `step` add up their gradients."""
        self.scaled(loss).backward()  # type: ignore[no-untyped-call]

    def step(self) -> None:
        """Unscale and clip the gradients, take a step unless the scaler skips it, and reset the gradients."""
        self._steps += 1
        for half, master in zip(self._halves, self._masters, strict=True):
            # `float` keeps the layout of the weight, which fused optimizers need.
            master.grad, half.grad = None if half.grad is None else half.grad.float(), None
        if self._factor != 1:
            for weight in self._parameters():
                if weight.grad is not None:
                    weight.grad.div_(self._factor)
        if self._clip_norm is not None:
            for optimizer in self._optimizers:
                self._scaler.unscale_(optimizer)
            clip_grad_norm_(self._parameters(), self._clip_norm)
        for optimizer in self._optimizers:
            self._scaler.step(optimizer)
        self._update_scale()
        master_params_to_model_params(self._halves, self._masters)  # unchanged if the step was skipped
        for optimizer in self._optimizers:
            optimizer.zero_grad()

    def _update_scale(self) -> None:
        """Update the scale; count the step if an overflow made the scaler skip it. Does not wait for the device."""
        self._scaler.update()
        if self._scale is None:
            return
        # A lower scale means an overflow; it is compared on the device, because reading it would wait.
        before, self._scale = self._scale, self._scaler.scale(self._one)
        self._skipped += self._scale < before
        if self._fixed_scale:
            self._scaler.update(self._fixed_scale)
            self._scale = before

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs besides the states of model and optimizer: scale, masters and counts."""
        return {
            "scaler": self._scaler.state_dict(),
            "skipped": self._skipped_steps or 0,
            "masters": [master.detach() for master in self._masters],
            "steps": self._steps,
            "nonfinite_losses": self._losses.count,
            "losses": self._losses.total,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` in a checkpoint, after model and optimizer have been restored."""
        self._scaler.load_state_dict(state["scaler"])
        self._skipped_before = state["skipped"]
        with torch.no_grad():
            for master, value in zip(self._masters, state["masters"], strict=True):
                master.copy_(value)
        self._steps = state["steps"]
        self._losses.restore(state["losses"], state["nonfinite_losses"])

    def notes(self) -> Notes:
        """Return loss scale and counts, read from the device, why the training diverged, and the weights' dtypes."""
        return Notes(
            loss_scale=self._factor if self._precision.pure else self._loss_scale,
            skipped_steps=self._skipped_steps,
            nonfinite_losses=self._losses.count,
            diverged=self._diverged(),
            weights=dtypes_of(self._model, self._optimizers),
            low_products=low_precision.products_of(self._model),
        )

    @property
    def _loss_scale(self) -> float | None:
        """The GradScaler's loss scale, read from the device; None if the precision needs no scaler."""
        return self._scaler.get_scale() if self._scaler.is_enabled() else None

    @property
    def _skipped_steps(self) -> int | None:
        """Number of steps skipped so far, read from the device; None if the precision needs no scaler."""
        return self._skipped_before + int(self._skipped.item()) if self._scaler.is_enabled() else None

    def _diverged(self) -> str:
        if self._losses.last_is_bad:
            return f"the last loss was not finite ({self._losses.count} of {self._losses.total} losses were not)"
        # Other buffers than BatchNorm's may be infinite on purpose (a mask).
        learnt = [tensor for _, tensors in _owners(self._model) for tensor in tensors]
        if bad := sum(not bool(tensor.isfinite().all()) for tensor in learnt):
            return f"{bad} of the model's weights and statistics were not finite after {self._losses.total} losses"
        scale, skipped = self._loss_scale, self._skipped_steps
        # Each overflow halves a dynamic scale until it is small enough; below 1 the training has failed.
        if scale is not None and self._steps and skipped == self._steps and (self._fixed_scale or scale < 1):
            return f"every one of {skipped} steps was skipped, at a loss scale of {scale:g}"
        return ""

    def _parameters(self) -> list[nn.Parameter]:
        return [p for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]]


class Tally:
    """Counts device scalars that are not finite, and reads them only at the end."""

    FEW = 256
    """Number of values that are checked together, because a check of each would add small kernels to each step."""

    def __init__(self) -> None:
        self.total = 0
        self._bad: int | torch.Tensor = 0
        self._pending: list[torch.Tensor] = []
        self._last: torch.Tensor | None = None

    def add(self, value: torch.Tensor) -> None:
        """Store `value`."""
        self._last = value.detach()
        self._pending.append(self._last)
        self.total += 1
        if len(self._pending) >= self.FEW:
            self._check_pending()

    @property
    def count(self) -> int:
        """Number of values that were infinite or not a number, read from the device."""
        self._check_pending()
        return int(self._bad)

    @property
    def last_is_bad(self) -> bool:
        """Whether the last value was infinite or not a number."""
        return self._last is not None and not math.isfinite(self._last.item())

    def restore(self, total: int, bad: int) -> None:
        """Continue from the counts of an earlier process."""
        self.total, self._bad = total, bad

    def _check_pending(self) -> None:
        if self._pending:
            self._bad = self._bad + torch.stack(self._pending).isfinite().logical_not().sum()
            self._pending.clear()


def use_masters(optimizers: Sequence[torch.optim.Optimizer]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Replace the optimizers' trained 16-bit weights by float32 copies; return weights and copies in the same order.

    The method of Micikevicius et al., "Mixed Precision Training" (2018).
    """
    halves, masters = [], []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for index, half in enumerate(group["params"]):
                if half.dtype in SIXTEEN_BITS and half.requires_grad:
                    master = nn.Parameter(half.detach().float())
                    group["params"][index] = master
                    halves.append(half)
                    masters.append(master)
    return halves, masters


def begin_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Set the momentum of a fused SGD to zero before the first step.

    Otherwise the first step allocates it uninitialised, and it stays so if that step is skipped for an overflow
    (torch/optim/sgd.py, FusedSgdKernel.cu). A first step from zero has the same result, unless there is dampening.
    """
    if not isinstance(optimizer, torch.optim.SGD):
        return
    for group in optimizer.param_groups:
        if group["fused"] and group["momentum"] and not group["dampening"]:
            for weight in group["params"]:
                optimizer.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))


def dtypes_of(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, int]:
    """Return the number of tensors by owner and dtype (`model float16`).

    Owners: `model`, `BatchNorm` (with statistics), `frozen`, and `optimizer` (all trained weights except BatchNorm's).
    """
    norms = {id(p) for module in model.modules() if isinstance(module, BATCH_NORMS) for p in module.parameters()}
    counts = Counter(f"{owner} {dtype_name(tensor.dtype)}" for owner, tensors in _owners(model) for tensor in tensors)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            weights = [p for p in group["params"] if p.requires_grad and id(p) not in norms]
            counts.update(f"optimizer {dtype_name(p.dtype)}" for p in weights)
    return dict(counts)


def _owners(model: nn.Module) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield, for each module, an owner (`BatchNorm`, `model` or `frozen`) and its tensors.

    `frozen` has the weights whose dtype no trained weight has, such as 4-bit weights beside adapters.
    """
    trained = {weight.dtype for weight in model.parameters() if weight.requires_grad}
    for module in model.modules():
        weights = list(module.parameters(recurse=False))
        if isinstance(module, BATCH_NORMS):
            tensors = [*weights, *module.buffers(recurse=False)]
            yield "BatchNorm", [tensor for tensor in tensors if tensor.is_floating_point()]
        else:
            yield "model", [weight for weight in weights if weight.dtype in trained]
            yield "frozen", [weight for weight in weights if weight.dtype not in trained]
