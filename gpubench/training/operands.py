"""Watches the calls of a model below autocast, and proves by their operands which precision it computed in."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

# The extension point that torch documents for this (docs "Extending PyTorch"), for all the underscore in its path.
from torch.utils._python_dispatch import TorchDispatchMode

from gpubench.training.precision import KINDS, PrecisionError, dtype_name

FAMILIES = {
    "convolution": re.compile(r".*(convolution|conv[123]d|conv_).*"),
    "RNN": re.compile(r".*(cudnn_rnn|miopen_rnn|mkldnn_rnn|thnn_\w+_(lstm|gru)|lstm_mps).*"),
    "matmul": re.compile(
        r"(add|b|baddb|addb)?mm_?|(add)?mv_?|_addmm_activation|_grouped_mm|(mkldnn_)?linear(_backward.*)?"
        r"|_(scaled_dot_product|flash|efficient|cudnn)_.*attention.*"
    ),
}
"""The calls of each family by torch's names for them, those of the backward pass included."""


class Call(Protocol):
    """An operation of torch, as a dispatch mode gets it."""

    __name__: str

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Compute it."""


class OperandWatch(TorchDispatchMode):
    """Sees the dtypes that the model's own matmuls, convolutions and RNNs get, below autocast, and their device.

    An output dtype proves nothing: a GRU under bf16 autocast computes in 16 bits and returns float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[tuple[str, torch.dtype]] = Counter()
        self.devices: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Call, types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        """Count the call and pass it on."""
        family = family_of(func.__name__.partition(".")[0])
        if family:
            tensors = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
            if tensors:
                self.seen[family, tensors[0].dtype] += 1
                self.devices[str(tensors[0].device)] += 1
        return func(*args, **(kwargs or {}))

    def check(self, name: str, device: str = "cpu") -> str:
        """What was seen, for the row; raises PrecisionError where it contradicts the label, or was on another device.

        Under autocast a few calls may keep float32 (a loss computed as a matmul, say), so in each family
        most calls have to have the label's dtype; for fp32 and tf32 all of them.
        """
        if not self.seen:
            raise PrecisionError(f"asked for {name}, but no matmul, convolution or RNN call was seen to prove it")
        if elsewhere := sorted(set(self.devices) - {device}):
            raise PrecisionError(
                f"asked for {device}, but {sum(self.devices[each] for each in elsewhere)} of the model's"
                f" {sum(self.devices.values())} calls ran on {', '.join(elsewhere)}"
            )
        wanted = KINDS[name].operand
        for family in sorted({family for family, _ in self.seen}):
            total = sum(n for (f, _), n in self.seen.items() if f == family)
            right = self.seen[family, wanted]
            enough = right == total if wanted is torch.float32 else right * 2 > total
            if not enough:
                raise PrecisionError(
                    f"asked for {name}, but {total - right} of the model's {total} {family} calls"
                    f" had operands other than {dtype_name(wanted)}: {self.summary}"
                )
        return f"operands {self.summary} on {device}"

    @property
    def summary(self) -> str:
        """Families, dtypes and counts in words."""
        counts = sorted(self.seen.items(), key=lambda item: (item[0][0], str(item[0][1])))
        return ", ".join(f"{family} {dtype_name(dtype)} x{n}" for (family, dtype), n in counts)


def family_of(call: str) -> str:
    """The family that a call belongs to by its name in torch, or an empty string."""
    return next((family for family, names in FAMILIES.items() if names.fullmatch(call)), "")
