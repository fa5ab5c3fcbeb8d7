"""Describes, opens, warms and synchronises devices; measures peak memory, and recognises out-of-memory errors."""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import psutil
import torch

from gpubench.hardware import environment, host
from gpubench.hardware.advice import nvidia_cards, unseen_advice
from gpubench.hardware.environment import Device, TorchFacts, machine_id, salted_hash
from gpubench.hardware.makers import nvidia
from gpubench.suite.precisions import unsupported, without_low_precision


def describe() -> TorchFacts:
    """Return the facts about torch and its devices that the parent needs, as plain data."""
    cudnn = refusal = cuda_refusal = ""
    devices = _accelerators()
    try:
        cudnn = str(torch.backends.cudnn.version() or "")
    except RuntimeError as error:  # cuDNN refuses all cards if one is too old
        refusal = _first_line(error)
        devices = [replace(device, problem=device.problem or refusal) for device in devices]
    if not devices:
        cuda_refusal = _cuda_refusal()
        devices = _unseen(cuda_refusal)
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or torch.version.hip or "",
        "cudnn": cudnn,
        "cudnn_refusal": refusal,
        "cuda_refusal": cuda_refusal,
        "devices": [asdict(device) for device in (*devices, environment.cpu_device())],
    }


def _cuda_refusal() -> str:
    try:
        torch.cuda.init()
    except Exception as error:  # an AssertionError if torch was built without CUDA
        return _first_line(error)
    return "torch counts no device"


def _unseen(refusal: str) -> list[Device]:
    """Return the NVIDIA cards that torch cannot use, so that no run silently uses the CPU instead.

    The list is empty if they were hidden on purpose: an empty CUDA_VISIBLE_DEVICES (or -1) means the CPU.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        return []
    return [
        Device(
            f"cuda:{index}",
            "cuda",
            card.name,
            driver=card.driver,
            device_hash=_hash_of_nth(card.name, index),
            problem="; ".join(filter(None, (card.problem, refusal, unseen_advice(card, torch.version.cuda or "")))),
        )
        for index, card in enumerate(nvidia_cards())
    ]


def _accelerators() -> list[Device]:
    # torch 2.6 raises if there is no accelerator.
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return []
    kind = accelerator.type
    describe_one = {"cuda": _cuda, "xpu": _xpu}.get(kind, _other)
    return [describe_one(kind, index) for index in range(torch.accelerator.device_count())]


def _cuda(kind: str, index: int) -> Device:
    properties = torch.cuda.get_device_properties(index)
    lacking = {}
    if torch.version.cuda and properties.major < 8:
        lacking["tf32"] = f"{properties.name} (sm_{properties.major}{properties.minor}) has no TF32"
    if torch.version.hip:
        lacking["tf32"] = "tf32 means NVIDIA's TF32"
    problem = ""
    try:
        with torch.cuda.device(index):
            torch.zeros(8, device=f"cuda:{index}").add_(1).sum().item()
            if not torch.cuda.is_bf16_supported(including_emulation=False):
                lacking["bf16"] = f"{properties.name} only emulates bf16"
    except RuntimeError as error:  # no kernel image for this card
        problem = _first_line(error)
    capability = None if torch.version.hip else (properties.major, properties.minor)
    low = without_low_precision(properties.name, capability, getattr(properties, "gcnArchName", ""))
    uuid = str(getattr(properties, "uuid", ""))
    integrated = bool(getattr(properties, "is_integrated", False))
    return Device(
        f"{kind}:{index}",
        kind,
        properties.name,
        int(properties.total_memory),
        capability=f"{properties.major}.{properties.minor}",
        driver=_driver(),
        device_hash=salted_hash(uuid) if uuid else _hash_of_nth(properties.name, index),
        unsupported=unsupported(lacking) | low,
        problem=problem,
        uuid=uuid,
        bus=bus_address(properties),
        integrated=integrated,
        available_bytes=int(psutil.virtual_memory().available) if integrated else None,
        rocm=bool(torch.version.hip),
    )


def bus_address(properties: object) -> str:
    """Return the PCI address, domain:bus:device; empty with torch before 2.8."""
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    numbers = [int(part) for part in parts if part is not None]
    return "{:04x}:{:02x}:{:02x}".format(*numbers) if len(numbers) == len(parts) else ""


def _xpu(kind: str, index: int) -> Device:
    properties = torch.xpu.get_device_properties(index)
    return replace(
        _other(kind, index),
        card=properties.name,
        device_hash=_hash_of_nth(properties.name, index),
        memory_bytes=int(properties.total_memory),
        driver=str(getattr(properties, "driver_version", "")),
    )


def _other(kind: str, index: int) -> Device:
    return Device(
        f"{kind}:{index}",
        kind,
        f"{environment.cpu_name()} ({kind})",
        device_hash=_hash_of_nth(kind, index),
        unsupported=unsupported({"tf32": f"{kind} has no TF32"}) | without_low_precision(kind, None),
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _hash_of_nth(name: str, index: int) -> str:
    """Return the hash of machine, name and index, for a device whose UUID is unknown."""
    return salted_hash(f"{machine_id()} {name} {index}")


def _driver() -> str:
    """Return the version of NVIDIA's or AMD's driver; empty if it cannot be read."""
    if torch.version.hip:
        return host.text_of(Path("/sys/module/amdgpu/version"))  # missing if the driver came with the kernel
    nvml = nvidia.library()  # None under WSL and in some containers
    return str(nvml.nvmlSystemGetDriverVersion()) if nvml else ""


LARGEST_CONTEXT_BYTES = 1 << 30
"""Upper limit for a CUDA context, which takes 0.2 to 0.8 GiB with its loaded kernels."""


def open_device(name: str, memory_limit_bytes: int | None) -> torch.device:
    """Make `name` the current device, limit its allocator, and return it.

    On CUDA the limit is `memory_limit_bytes` minus the context; under WSL2 at most the free memory minus a margin.
    """
    device = torch.device(name)
    if device.type == "cpu":
        return device
    if torch.version.hip:
        # Else MIOpen's convolutions copy images and weights that are channels last (pytorch/pytorch#64427).
        os.environ.setdefault("PYTORCH_MIOPEN_SUGGEST_NHWC", "1")
    torch.accelerator.set_device_index(device.index or 0)
    torch.zeros(1, device=device)
    in_wsl = host.in_wsl()
    if device.type == "cuda" and (memory_limit_bytes or in_wsl):
        free = total = torch.cuda.get_device_properties(device).total_memory
        with suppress(RuntimeError):  # it may fail on integrated cards
            free, total = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device)
        # `total - free` includes the memory of other programs; a context alone is at most LARGEST_CONTEXT_BYTES.
        context = min(total - free - reserved, LARGEST_CONTEXT_BYTES)
        allowed = memory_limit_bytes - context if memory_limit_bytes else total
        if in_wsl:
            allowed = min(allowed, free + reserved - int(host.WSL_MARGIN * total))
        torch.cuda.set_per_process_memory_fraction(min(1.0, max(0, allowed) / total), device)
    return device


def soak(names: Sequence[str], seconds: float) -> None:
    """Multiply matrices on all devices for `seconds`, so that they are as warm for the first trial as for the last."""
    devices = [open_device(name, None) for name in names]
    # Random values, because constant ones draw less power. Half precision uses the units that draw the most.
    matrices = [
        torch.randn(512, 512) if device.type == "cpu" else torch.randn(4096, 4096, device=device).half()
        for device in devices
    ]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(8):
            for matrix in matrices:
                torch.mm(matrix, matrix)
        for device in devices:
            synchronize(device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queue; a CPU has none."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def event_of(device: torch.device) -> Callable[[], torch.cuda.Event] | None:
    """Return a function that makes events for timing this device's queue; None if it is no CUDA device."""
    return partial(torch.cuda.Event, enable_timing=True) if device.type == "cuda" else None


class MemoryUse:
    """Measures how much of `device`'s memory a training needs.

    In the first steps cuDNN tries algorithms; torch allocates a workspace for each, or frees its cache and retries
    (Conv_v8.cpp). That does not mean that the batch is too large, so the peak is measured from the end of the first lap
    on, and retries are counted in the steps on a resident batch. Neither includes the steps whose operands are watched:
    a profiler or uncompiled code needs more memory.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._retries_before = device, 0
        self._peak_before: int | None = None
        self.resting_bytes: int | None = None
        """Bytes allocated between two steps: weights, optimizer, data. None if unknown."""

    def trained(self) -> None:
        """Reset the peak, after the first lap of training."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def resting(self) -> None:
        """Read the resting memory, before the steps on a resident batch."""
        self._peak_before = self._peak()
        if self._device.type == "cuda":
            self.resting_bytes = torch.cuda.memory_allocated(self._device)

    def watched(self) -> None:
        """Leave out the peak and the retries of the watched steps, which have just ended."""
        self._retries_before = self._all_retries()
        self.trained()

    @property
    def peak_bytes(self) -> int | None:
        """Peak memory so far in bytes: torch's on an accelerator, resident memory on a CPU; None if unknown.

        It is reset only on CUDA; elsewhere it is the peak before the watched steps.
        """
        if self._device.type == "cuda" and self._peak_before is not None:
            return max(self._peak_before, self._peak() or 0)
        return self._peak() if self._peak_before is None else self._peak_before

    def _peak(self) -> int | None:
        kind = self._device.type
        if kind == "cpu":
            return peak_resident_bytes()
        if kind in {"cuda", "xpu"}:
            return int(getattr(torch, kind).max_memory_allocated(self._device))
        return None

    @property
    def retries(self) -> int:
        """How often the allocator freed its cache and retried since the watched steps: never if the batch fits well."""
        return self._all_retries() - self._retries_before

    def _all_retries(self) -> int:
        if self._device.type != "cuda":
            return 0
        return int(torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0))


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process, imports included, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's pages from before exec
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cudnn_status_alloc_failed",
    "cublas_status_alloc_failed",
    "cublas_status_not_initialized",
)
"""Texts of errors that mean out of memory."""
DISGUISED = (
    "unable to find a valid cudnn algorithm",
    "unable to find an engine to execute this computation",
    "cudnn_status_not_supported",
    "cudnn_status_internal_error",
)
"""Texts of errors that mean out of memory or a missing kernel (pytorch/benchmark#496, huggingface/accelerate)."""


def is_out_of_memory(error: BaseException, device: str = "cpu", memory_limit_bytes: int | None = None) -> bool:
    """Return whether `error`, raised in a training on `device`, means that the batch was too large.

    On CUDA, the texts in DISGUISED only count if more than half of the memory was in use.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower() if isinstance(error, RuntimeError) else ""
    if any(words in text for words in DISGUISED):
        return not device.startswith("cuda") or _mostly_taken(device, memory_limit_bytes)
    return any(words in text for words in OUT_OF_MEMORY)


def _mostly_taken(device: str, memory_limit_bytes: int | None) -> bool:
    available = min(torch.cuda.get_device_properties(device).total_memory, memory_limit_bytes or math.inf)
    return torch.cuda.max_memory_reserved(device) > available / 2
