"""Counts the work of one training step: FLOPs, bytes moved and calls, computed from shapes. Measures no time."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import mul
from typing import Any

import torch

# torch documents this extension point ("Extending PyTorch"), despite the underscore in its path.
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from gpubench.training.operands import OperandWatch, family_of, have_subclass

UNTOUCHED = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view"}
"""Names of calls that only allocate a tensor or change its shape. Views are recognised by `is_view`."""
PICKS = {"embedding", "index", "index_select", "gather", "take"}
"""Names of calls that read only as many bytes of their first operand as they return."""
PRODUCTS = re.compile(r"_int_mm|_scaled_mm(_v2)?|(_scaled)?_grouped_mm(_v2)?")
"""Pattern of names of calls that multiply their first two operands. Some releases of torch lack their formulas."""
TENSOR_CORE_MULTIPLE = 8
"""Tensor cores are most efficient if the dimensions of 16-bit products are multiples of this number (NVIDIA, Deep
Learning Performance Guide: matrix multiplication, "Tensor Core requirements")."""


class Work(TorchDispatchMode):
    """Counts FLOPs, bytes and calls below autograd and autocast, backward pass and optimizer included.

    FLOPs follow the formulas of torch's FlopCounterMode: 2 per multiply-add of products and
    convolutions, none for element-wise work. FlopCounterMode itself would disturb the step that proves the
    precision: it has global module hooks and refuses higher-order operators.

    Bytes are counted as if there were no fusion and no caches, so they are an upper bound: each call reads its tensors
    once (see PICKS) and writes its results once. Views and allocations move nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        """Calls that compute or copy: about one kernel each."""
        self.bytes = 0
        self.odd_flops = 0
        """FLOPs of products with a dimension that is not a multiple of 8."""
        self.unseen: set[str] = set()
        """Names of products, convolutions and RNNs whose FLOPs are not counted: there is no formula, or it failed."""
        self._flops = 0
        self._formulas = FlopCounterMode(display=False).flop_registry

    @property
    def flops(self) -> int | None:
        """FLOPs of the step; None if some are not counted (see `unseen`), or there was no product."""
        return None if self.unseen or not self._flops else self._flops

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        """Run the call, then count it. Tensor subclasses turn it into calls on plain tensors: those are counted."""
        if have_subclass(types):
            return NotImplemented
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func.__name__.partition(".")[0]
        if not getattr(func, "is_view", False) and name not in UNTOUCHED:
            self.calls += 1
            self.bytes += moved_bytes(name, list(tensors_in((args, kwargs))), list(tensors_in(out)))
        formula: Callable[..., int] | None = self._formulas.get(getattr(func, "overloadpacket", None))
        if PRODUCTS.fullmatch(name):
            formula = product_flops
        if formula is not None:
            self._count(name, args, lambda: int(formula(*args, **kwargs, out_val=out)))
        elif family_of(name):
            self.unseen.add(name)
        return out

    def _count(self, name: str, args: Sequence[object], flops_of: Callable[[], int]) -> None:
        try:
            flops, sizes = flops_of(), product_sizes(name, list(tensors_in(args)))
        except Exception:  # a formula that fails on these operands must not end the trial
            self.unseen.add(name)
            return
        self._flops += flops
        if any(size % TENSOR_CORE_MULTIPLE for size in sizes):
            self.odd_flops += flops


def work_fields(
    works: Sequence[Work], factors: Sequence[float], samples: int, of_suite: float | None
) -> dict[str, Any]:
    """Return fields of a Measurement from the work of a watched step of each stage; without calls it was not counted.

    `factors` are those of `Clock.per_sample`. `samples` is the number in the first of these steps. `of_suite`, the
    suite's FLOPs per sample, replaces the count if it is not None.
    """
    if not factors or not all(work.calls for work in works):
        return {"flops_per_sample": of_suite}
    flops = [work.flops or 0 for work in works]
    counted = sum(map(mul, flops, factors)) if all(flops) else None
    return {
        "step_samples": samples,
        "flops_per_sample": counted if of_suite is None else of_suite,
        "bytes_per_sample": sum(work.bytes * factor for work, factor in zip(works, factors, strict=True)),
        "ops_per_step": works[0].calls,
        "odd_flops_share": works[0].odd_flops / flops[0] if flops[0] else None,
    }


@contextmanager
def beside(work: Work, watch: AbstractContextManager[object]) -> Iterator[None]:
    """Count work inside the context `watch`, which sees each call first."""
    with work, watch:
        yield


def watched_steps(watch: OperandWatch, works: list[Work], counted: bool) -> Iterator[AbstractContextManager[Any]]:
    """Yield the contexts of a stage's untimed steps: those of the first stage check operands.

    If `counted`, the stage's Work, which is added to `works`, counts one of them.
    """
    works.append(Work())
    if len(works) == 1:
        yield from watch.steps(beside(works[0], watch) if counted else watch)
    elif counted and not watch.compiled_regions:
        yield works[-1]


def product_flops(a: torch.Tensor, b: torch.Tensor, *others: object, **options: object) -> int:
    """Return the FLOPs of a matrix product: a single one, a batch, or groups side by side in one dimension."""
    groups = a.shape[0] if a.ndim == b.ndim == 3 else 1
    return 2 * groups * a.shape[-2] * a.shape[-1] * b.shape[-1]


def moved_bytes(name: str, read: list[torch.Tensor], written: list[torch.Tensor]) -> int:
    """Return the bytes that a call reads and writes, as `Work` counts them."""
    results = sum(map(_bytes, written))
    if name in PICKS:
        return results + sum(map(_bytes, read[1:])) + results
    return sum(map(_bytes, read)) + results


def product_sizes(name: str, operands: list[torch.Tensor]) -> list[int]:
    """Return the sizes that tensor cores tile: channels of convolutions, attention's head size, or matrices' sides."""
    if name.startswith("convolution"):
        weight = operands[2 if name == "convolution_backward" else 1]
        return list(weight.shape[:2])
    if "attention" in name:
        return [operands[0].shape[-1]]
    if PRODUCTS.fullmatch(name):
        operands = operands[:2]
    return [size for operand in operands[-2:] for size in operand.shape[-2:]]


def _bytes(tensor: torch.Tensor) -> int:
    size = tensor.numel() * tensor.element_size()
    # An expanded tensor has fewer bytes in memory than all its elements would need.
    return min(size, tensor.untyped_storage().nbytes()) if tensor.layout == torch.strided else size


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in `value`, which may be a tensor or nested lists, tuples and dictionaries of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(part)
