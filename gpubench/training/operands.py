"""Watches a model's calls below autocast, and checks by the dtypes of their operands which precision they used."""

import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

# torch documents this extension point ("Extending PyTorch"), despite the underscore in its path.
from torch.utils._python_dispatch import TorchDispatchMode

from gpubench.training.precision import KINDS, PrecisionError, dtype_name
from gpubench.training.trace import KERNELS, Operand, Trace

NARROW = re.compile(r"_int_mm|_scaled_(grouped_)?mm(_v2)?|gemm_4bit")
"""Pattern of torch's names of matrix products with 8 bits or fewer; their further operands are scales."""
EIGHT_BITS = frozenset().union(*(kind.linears for kind in KINDS.values()))
"""dtypes that only float8 and int8-mixed multiply."""
FAMILIES = {
    "convolution": re.compile(r".*(convolution|conv[123]d|conv_).*"),
    "RNN": re.compile(r".*(cudnn_rnn|miopen_rnn|mkldnn_rnn|thnn_\w+_(lstm|gru)|lstm_mps).*"),
    "matmul": re.compile(
        r"(add|b|baddb|addb)?mm_?|(add)?mv_?|_addmm_activation|_grouped_mm|(mkldnn_)?linear(_backward.*)?"
        rf"|_(scaled_dot_product|flash|efficient|cudnn)_.*attention.*|{NARROW.pattern}"
    ),
}
"""Pattern of torch's call names by family, backward pass included."""


class OperandWatch(TorchDispatchMode):
    """Records the operand dtypes and devices of the model's matmuls, convolutions and RNNs, below autocast.

    Output dtypes are not enough: a GRU under bf16 autocast computes in 16 bits and returns float32. Compiled code does
    not run under a dispatch mode, so the profiler watches it.
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self._device = device
        self.seen: Counter[tuple[str, torch.dtype]] = Counter()
        self.devices: Counter[str] = Counter()
        self.float8_tensors = 0
        """Number of calls with a float8 operand. Emulated float8 has such calls, but no float8 products."""
        self.low_flops = 0
        """FLOPs of products in 8 bits; 0 if a CUDA graph hides some."""
        self.compiled_regions = 0
        """Number of calls of compiled code in the watched step."""
        self.note = ""
        """How the operands were seen in compiled code, for the end of the summary; empty for eager code."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        """Count the call, then run it. Tensor subclasses turn it into calls on plain tensors: those are counted."""
        if have_subclass(types):
            return NotImplemented
        tensors = [tensor for tensor in args if isinstance(tensor, torch.Tensor)]
        self.float8_tensors += any(tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1 for tensor in tensors)
        devices = {tensor.dtype: str(tensor.device) for tensor in reversed(tensors)}
        if dtype := self._count(func.__name__.partition(".")[0], [(one.dtype, one.shape) for one in tensors]):
            self.devices[devices[dtype]] += 1
        return func(*args, **(kwargs or {}))

    def _count(self, name: str, operands: Sequence[Operand]) -> torch.dtype | None:
        """Count a call by the dtype of its first operand, or of its narrowest if it has scales; return that dtype."""
        narrow = NARROW.fullmatch(name)
        if narrow:
            dtypes = sorted((dtype for dtype, _ in operands), key=lambda dtype: dtype.itemsize)
        else:
            dtypes = [dtype for dtype, _ in operands if dtype.is_floating_point or dtype in EIGHT_BITS]
        family = family_of(name)
        if not family or not dtypes:
            return None
        self.seen[family, dtypes[0]] += 1
        if narrow and dtypes[0] in EIGHT_BITS:
            (_, left), (_, right) = operands[:2]
            self.low_flops += 2 * math.prod(left) * right[-1]
        return dtypes[0]

    def steps(self, eager: AbstractContextManager[Any]) -> Iterator[AbstractContextManager[Any]]:
        """Yield the context of each untimed step that the proof needs; `eager` is the context of an uncompiled step.

        The profiler watches compiled code. If it shows no operands of products there, the same step runs uncompiled
        (as the "eager twin") and is watched.
        """
        if _has_compiled():
            on_cuda = [ProfilerActivity.CUDA] if self._device.startswith("cuda") else []
            # Without `acc_events` torch 2.11 warns that a next cycle would clear the events.
            profiler = profile(activities=[ProfilerActivity.CPU, *on_cuda], record_shapes=True, acc_events=True)
            yield profiler
            if inside := self._read(profiler):
                self.note = f", {inside} of {self.seen.total()} in compiled code ({self.compiled_regions} calls)"
                return
            if self.compiled_regions:
                self.note = ", proved on its eager twin"
            self.low_flops = 0
            self.seen.clear()
            self.devices.clear()
            # Without this, torch 2.11 runs code uncompiled in the timed steps too, once it ran under a dispatch mode.
            with torch.compiler.set_stance("force_eager"):
                yield eager
        else:
            yield eager

    def _read(self, profiler: profile) -> int:
        """Count the calls in a profile by operands; return how many are of compiled code; 0 if Triton hides dtypes."""
        trace = Trace(profiler)
        inside = 0
        for name, operands, is_compiled in trace.calls(lambda name: bool(family_of(name)), NARROW.fullmatch):
            inside += bool(self._count(name, operands)) and is_compiled
        self.compiled_regions = trace.compiled_regions
        if self.compiled_regions and (kernels := trace.kernels).total() >= self.seen.total():
            # Kernels also show what CUDA graphs hide. Families without known kernel names are still counted by calls.
            hidden = kernels.total() - self.seen.total()
            if low_calls(kernels) > low_calls(self.seen):
                self.low_flops = 0
            self.seen = kernels + Counter({key: n for key, n in self.seen.items() if key[0] not in KERNELS})
            inside += hidden
        self.devices = trace.devices or Counter({self._device: self.seen.total()})
        return 0 if trace.has_templates else inside

    def check(self, name: str, device: str = "cpu", low_products: int = 0) -> str:
        """Return a summary of the operands for the row; raises PrecisionError if precision or device are wrong.

        `low_products` is the least number of 8-bit products in the step. Under autocast a few calls may stay in
        float32 (such as a loss computed as a matmul), so in each family most calls must have the precision's dtype;
        for fp32 and tf32 all of them.
        """
        if not self.seen:
            raise PrecisionError(f"asked for {name}, but no matmul, convolution or RNN call was seen to prove it")
        if elsewhere := sorted(set(self.devices) - {device}):
            raise PrecisionError(
                f"asked for {device}, but {sum(self.devices[name] for name in elsewhere)} of the model's"
                f" {sum(self.devices.values())} calls ran on {', '.join(elsewhere)}"
            )
        self._check_low(name, low_products)
        wanted = KINDS[name].operand
        for family in sorted({family for family, _ in self.seen}):
            total = sum(n for (f, _), n in self.seen.items() if f == family)
            right = sum(self.seen[family, dtype] for dtype in {wanted, *KINDS[name].linears})
            enough = right == total if wanted is torch.float32 else right * 2 > total
            if not enough:
                raise PrecisionError(
                    f"asked for {name}, but {total - right} of the model's {total} {family} calls"
                    f" had operands other than {dtype_name(wanted)}: {self.summary}"
                )
        return f"operands {self.summary} on {device}{self.note}"

    def _check_low(self, name: str, low_products: int) -> None:
        """Raise PrecisionError if 8-bit products are missing or not asked for, or if no other call is in bfloat16."""
        low = KINDS[name].linears
        if low and not low_products:
            raise PrecisionError(f"asked for {name}: the suite must use mode.prepare and a Stepper")
        right = sum(n for (_, dtype), n in self.seen.items() if dtype in low)
        if right < low_products:
            raise PrecisionError(
                f"asked for {name}, but only {right} products had 8-bit operands, and its linear layers have"
                f" {low_products} in a step, both gradients included: {self.summary}"
            )
        if low and not any(dtype is KINDS[name].operand for _, dtype in self.seen):
            raise PrecisionError(f"asked for {name}, but no call beside 8-bit products was in bfloat16: {self.summary}")
        if wrong := sum(n for (_, dtype), n in self.seen.items() if dtype in EIGHT_BITS - low):
            raise PrecisionError(
                f"asked for {name}, but {wrong} products had 8-bit operands of another precision: {self.summary}"
            )
        if self.float8_tensors and torch.float8_e4m3fn not in low:
            raise PrecisionError(
                f"asked for {name}, but {self.float8_tensors} calls had operands in float8 (emulated?)"
            )

    @property
    def summary(self) -> str:
        """Families, dtypes and counts as text."""
        counts = sorted(self.seen.items(), key=lambda item: (item[0][0], str(item[0][1])))
        return ", ".join(f"{family} {dtype_name(dtype)} x{n}" for (family, dtype), n in counts)


def family_of(call: str) -> str:
    """Return the family of a call, given its name in torch, or an empty string."""
    return next((family for family, names in FAMILIES.items() if names.fullmatch(call)), "")


def low_calls(seen: Mapping[tuple[str, torch.dtype], int]) -> int:
    """Return how many of the products had operands in 8 bits."""
    return sum(n for (_, dtype), n in seen.items() if dtype in EIGHT_BITS)


def have_subclass(types: Sequence[type]) -> bool:
    """Return whether one of these types of operands is a subclass of Tensor, which has operations of its own."""
    return bool(set(types) - {torch.Tensor, torch.nn.Parameter})


def _has_compiled() -> bool:
    dynamo = sys.modules.get("torch._dynamo")
    return bool(dynamo and dynamo.utils.counters["stats"]["unique_graphs"])
