"""Computes the memory of a training step without data or a card. Called by __main__.py for `gpubench fits`.

Runs the step on fake tensors, which have shapes and no data, and adds up the storages that are alive. A real card needs
more, for its allocator and for buffers of kernels: studies/fit.py adds a margin.
"""

import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

# torch documents both extension points ("Fake tensor", "Extending PyTorch"), despite the underscores in their paths.
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from gpubench.errors import UserError
from gpubench.suite import files
from gpubench.suite.suite import Blueprint
from gpubench.suite.trial import Trial
from gpubench.training.precision import mode_of

FACTOR = 4
"""Ratio of tokens between one computed step and the next."""
LEAST_TOKENS = 64
MOST_FACTOR = FACTOR**12


class LiveBytes(TorchDispatchMode):
    """Adds up the bytes of all storages while they are alive: `now`, and their highest sum, `peak`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[object] = (), kwargs: Any = None
    ) -> object:
        """Run the call, and count the storages of its results."""
        results = func(*args, **(kwargs or {}))
        for result in results if isinstance(results, list | tuple) else (results,):
            if isinstance(result, torch.Tensor):
                self._count(result.untyped_storage())
        return results

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._seen:
            return
        size = storage.nbytes()
        self._seen[storage] = weakref.finalize(storage, self._free, size)
        self.now += size
        self.peak = max(self.peak, self.now)

    def _free(self, size: int) -> None:
        self.now -= size


def step_memory(trial: Trial, limits_bytes: Sequence[float]) -> list[dict[str, int]]:
    """Return tokens and memory (bytes) of training steps of several sizes: the trial's own step first.

    Then come larger batches until one reaches the largest limit. Then come smaller batches and shorter sequences until
    one fits in the lowest limit that is above the memory in use between steps. Raises UserError without `optimizers`.
    """
    suite = files.load(Path(trial.case.suite_path)).suite
    points: list[dict[str, int]] = []
    with FakeTensorMode(), LiveBytes() as memory:
        blueprint = suite.blueprint(trial) if suite.blueprint else None
        if blueprint is None or blueprint.optimizers is None:
            raise UserError(f"the blueprint of suite {trial.case.suite} has no optimizers ({files.DOCS})")
        parts: dict[str, int] = {"weights": memory.now}
        step = _step_of(blueprint, blueprint.optimizers(), trial)
        parts["optimizer"] = memory.now - parts["weights"]
        parts["gradients"] = sum(weight.nbytes for weight in trained_weights(blueprint))
        resting = sum(parts.values())

        def peak_of(batch: int, context: int) -> int:
            gc.collect()
            memory.peak = memory.now
            step(batch, context)
            peak: int = max(memory.peak, resting)
            points.append({"tokens": batch * context, "peak": peak, "activations": peak - resting, **parts})
            return peak

        batch, context = trial.batch_size, int(trial.params.context)
        peak = first = peak_of(batch, context)
        larger = batch
        while peak < max(limits_bytes) and larger < batch * MOST_FACTOR:
            larger *= FACTOR
            peak = peak_of(larger, context)
        lowest = min((limit for limit in limits_bytes if limit > resting), default=first + 1)
        while first > lowest and batch * context >= FACTOR * LEAST_TOKENS:
            batch, context = (batch // FACTOR, context) if batch >= FACTOR else (1, context // FACTOR)
            first = peak_of(batch, context)
    return points


def trained_weights(blueprint: Blueprint) -> list[torch.nn.Parameter]:
    """Return the weights that a step changes."""
    network: Any = blueprint.network
    return [weight for weight in network.parameters() if weight.requires_grad]


def _step_of(
    blueprint: Blueprint, optimizers: Sequence[torch.optim.Optimizer], trial: Trial
) -> Callable[[int, int], None]:
    """Return a function of batch and sequence length that takes a training step. The optimizers already have state."""
    network: Any = blueprint.network
    mode = mode_of(trial.case.precision, trial.case.device)

    def update() -> None:
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def step(batch: int, context: int) -> None:
        inputs: Any = blueprint.inputs
        with mode.autocast():
            loss = network(*(torch.zeros(batch, context, dtype=tensor.dtype) for tensor in inputs))
        loss.backward()
        update()

    for weight in trained_weights(blueprint):
        weight.grad = torch.zeros_like(weight)
    update()
    return step
