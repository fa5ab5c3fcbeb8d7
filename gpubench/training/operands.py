"""Watches a model's calls below autocast, and checks by the dtypes of their operands which precision they used."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

# torch documents this extension point ("Extending PyTorch"), despite the underscore in its path.
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
"""Pattern of torch's call names by family, backward pass included."""


class Call(Protocol):
    """An operation of torch, as passed to a dispatch mode."""

    __name__: str

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Compute it."""


class OperandWatch(TorchDispatchMode):
    """Records the operand dtypes and devices of the model's matmuls, convolutions and RNNs, below autocast.

    Output dtypes are not enough: a GRU under bf16 autocast computes in 16 bits and returns float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[tuple[str, torch.dtype]] = Counter()
        self.devices: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Call, types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        """Count the call, then run it."""
        family = family_of(func.__name__.partition(".")[0])
        if family:
            tensors = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
            if tensors:
                self.seen[family, tensors[0].dtype] += 1
                self.devices[str(tensors[0].device)] += 1
        return func(*args, **(kwargs or {}))

    def check(self, name: str, device: str = "cpu") -> str:
        """Return a summary of the operands for the row; raises PrecisionError if precision or device are wrong.

        Under autocast a few calls may stay in float32 (such as a loss computed as a matmul), so in each family
        most calls must have the precision's dtype; for fp32 and tf32 all of them.
        """
        if not self.seen:
            raise PrecisionError(f"asked for {name}, but no matmul, convolution or RNN call was seen to prove it")
        if elsewhere := sorted(set(self.devices) - {device}):
            raise PrecisionError(
                f"asked for {device}, but {sum(self.devices[name] for name in elsewhere)} of the model's"
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
        """Families, dtypes and counts as text."""
        counts = sorted(self.seen.items(), key=lambda item: (item[0][0], str(item[0][1])))
        return ", ".join(f"{family} {dtype_name(dtype)} x{n}" for (family, dtype), n in counts)


def family_of(call: str) -> str:
    """Return the family of a call, given its name in torch, or an empty string."""
    return next((family for family, names in FAMILIES.items() if names.fullmatch(call)), "")
