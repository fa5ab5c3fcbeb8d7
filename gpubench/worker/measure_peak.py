"""Measures peak rates of a device in one precision: FLOP/s of matrix products, bytes/s of copies, seconds per call."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

import torch

from gpubench.hardware.environment import memory_for_files
from gpubench.training import device as devices
from gpubench.training.flops import Work
from gpubench.training.low_precision import random_product
from gpubench.training.precision import KINDS, mode_of, set_flags

SIDES = (256, 512, 1024, 2048, 4096, 8192, 16384)
"""Sides of square matrices, small ones first: the fastest one depends on the device's caches and cores."""
LONGEST_PRODUCT_SECONDS = 0.2
"""After LEAST_SIDES sides, the next one is tried only if its product (8 times the work) takes at most this time."""
REPEATS = 5
REPEAT_SECONDS = 0.05
"""A repeat makes calls for at least this time, so that timer and synchronisation do not matter."""
SUSTAINED_SECONDS = 2.0
"""At the end an accelerator multiplies matrices of the best size for this time: its power limit then takes effect."""
CPU_COPY_BYTES, ACCELERATOR_COPY_BYTES = 2**28, 2**30
"""Size of the copied tensor, larger than caches: an accelerator's L2 has at most 126 MB. `copy_bytes` adapts it."""
COPY_SHARE = 0.25
"""Largest share of the free memory for each of the two tensors of a copy."""
LEAST_SIDES = 3
"""Number of first sides with the higher limit TOO_LONG_SECONDS: another program may slow one of them down."""
TOO_LONG_SECONDS = 0.5
"""No larger side is tried if its product would take longer, as in fp16 on most CPUs (torch has only a slow kernel)."""
TINY_LAYERS, TINY_WIDTH = 24, 8


def measure_rates(name: str, precision: str, threads: int, soak_seconds: float) -> dict[str, float]:
    """Return peak rates of device `name` in `precision`, with random data: medians over repeats.

    The result has `flops_per_second` of the fastest matrix product (an accelerator's mean over SUSTAINED_SECONDS) and
    its `side`, `bytes_per_second` of a copy (read and written), and `op_seconds` per call of a training step with
    almost nothing to compute.

    Products are measured as in S. Bekman's mamf-finder (ml-engineering): several sizes, and new random data for each
    repeat, because constant data draw less power and run faster.
    """
    if threads:
        torch.set_num_threads(threads)
    device = devices.open_device(name, None)
    set_flags(precision, False, True)
    devices.soak([name], soak_seconds)
    torch.manual_seed(0)
    side, flops_per_second = fastest_product(lambda side: _product_rate(side, device, precision))
    if device.type != "cpu":
        flops_per_second = _product_rate(side, device, precision, SUSTAINED_SECONDS)
    return {
        "flops_per_second": flops_per_second,
        "side": side,
        "bytes_per_second": _copy_rate(device),
        "op_seconds": _call_seconds(device, precision),
    }


def fastest_product(rate_of: Callable[[int], float]) -> tuple[int, float]:
    """Return (side, FLOP/s) of the fastest square matrix product, up to sizes that do not fit or take too long."""
    best_side, best = 0, 0.0
    for tried, side in enumerate(SIDES, start=1):
        try:
            rate = median(rate_of(side) for _ in range(REPEATS))
        except torch.OutOfMemoryError:
            if best:
                break
            raise
        if rate > best:
            best_side, best = side, rate
        next_seconds = 8 * 2 * side**3 / best
        if next_seconds > (LONGEST_PRODUCT_SECONDS if tried >= LEAST_SIDES else TOO_LONG_SECONDS):
            break
    return best_side, best


def _product_rate(side: int, device: torch.device, precision: str, least_seconds: float = REPEAT_SECONDS) -> float:
    """Return the FLOP/s of one square product of fresh random matrices."""
    if KINDS[precision].linears:
        multiply = random_product(precision, side, device)
    else:
        a, b, out = (torch.randn(side, side, device=device).to(KINDS[precision].operand) for _ in range(3))
        multiply = partial(torch.mm, a, b, out=out)
    return 2 * side**3 / _seconds(multiply, device, least_seconds)


def _copy_rate(device: torch.device) -> float:
    """Return the bytes/s of a large copy, read and written."""
    source = torch.randn(copy_bytes(device) // 4, device=device)
    target = torch.empty_like(source)
    seconds = [_seconds(lambda: target.copy_(source), device) for _ in range(REPEATS)]
    return 2 * source.nbytes / median(seconds)


def copy_bytes(device: torch.device) -> int:
    """Return the bytes of the tensor to copy: fewer with little free memory, more on a CPU with a large L3."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # frees the memory of the products
        with suppress(RuntimeError):  # it may fail on integrated cards
            return min(ACCELERATOR_COPY_BYTES, int(torch.cuda.mem_get_info(device)[0] * COPY_SHARE))
    if device.type != "cpu":
        return ACCELERATOR_COPY_BYTES
    return max(CPU_COPY_BYTES, min(l3_bytes(), int(memory_for_files() * COPY_SHARE)))


def l3_bytes(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return the total of the host's L3 caches in bytes, 0 if unknown."""
    sizes = {}
    for cache in cpus.glob("cpu*/cache/index3"):
        with suppress(OSError, ValueError):
            kib = int((cache / "size").read_text().strip().removesuffix("K"))
            sizes[(cache / "shared_cpu_list").read_text()] = 1024 * kib
    return sum(sizes.values())


def _call_seconds(device: torch.device, precision: str) -> float:
    """Return the seconds per call (as counted by `Work`) of a training step with almost nothing to compute.

    The layers are eight wide, so the time is Python, autograd, dispatch and launches, as in real training.
    """
    layers = [m for _ in range(TINY_LAYERS) for m in (torch.nn.Linear(TINY_WIDTH, TINY_WIDTH), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    mode = mode_of(precision, str(device))
    x = torch.randn(TINY_WIDTH, TINY_WIDTH, device=device)

    def step() -> None:
        optimizer.zero_grad()
        with mode.autocast():
            loss = model(x).float().mean()
        loss.backward()
        optimizer.step()

    step()
    work = Work()
    with work:
        step()
    return median([_seconds(step, device) for _ in range(REPEATS)]) / work.calls


def _seconds(call: Callable[[], object], device: torch.device, least_seconds: float = REPEAT_SECONDS) -> float:
    """Return the mean wall time of a call, in seconds, over at least `least_seconds`."""
    call()  # warm-up: algorithms are chosen, pages are mapped
    devices.synchronize(device)
    calls = 1
    while True:
        started = time.perf_counter()
        for _ in range(calls):
            call()
        devices.synchronize(device)
        spent = time.perf_counter() - started
        if spent >= least_seconds:
            return spent / calls
        calls = max(2 * calls, int(1.2 * calls * least_seconds / max(spent, 1e-6)))
