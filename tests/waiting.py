"""Counts what makes the host wait for a device."""

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2", "unique_dim"}
"""Calls whose result, or its size, the host has to know."""


class Waits(TorchDispatchMode):
    """By name, the calls on tensors of `device` for which the host waits until the device is done.

    `copied_bytes` are those of all copies between the two, waited for or not.
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.kind = torch.device(device).type
        self.seen: Counter[str] = Counter()
        self.copied_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        here = any(each.device.type == self.kind for each in tensors)
        masks = name in {"index", "index_put", "index_put_"} and any(
            each is not None and each.dtype is torch.bool for each in args[1]
        )
        copies = name in {"_to_copy", "copy_"} and self._between(name, out, args)
        self.copied_bytes += out.nbytes if copies else 0
        if (copies and self._blocks(name, out, args, kwargs or {})) or (here and (name in READS or masks)):
            self.seen[name] += 1
        return out

    def _between(self, name: str, out: torch.Tensor, args: Any) -> bool:
        """Whether a copy goes from host to device or back."""
        source = args[1] if name == "copy_" else args[0]
        return isinstance(source, torch.Tensor) and source.device.type != out.device.type

    def _blocks(self, name: str, out: torch.Tensor, args: Any, kwargs: Any) -> bool:
        """Whether such a copy waits: it was not told otherwise, or the host's side may move."""
        source = args[1] if name == "copy_" else args[0]
        told = kwargs.get("non_blocking", args[2] if name == "copy_" and len(args) > 2 else False)
        host = source if source.device.type == "cpu" else out
        return not told or not host.is_pinned()
