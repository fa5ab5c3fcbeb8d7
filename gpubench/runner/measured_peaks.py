"""Measures the highest rates of a device (matrix products, copies, calls) and stores them in the user's cache."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

from gpubench.errors import UserError
from gpubench.hardware import host
from gpubench.hardware.environment import Device, cpu_count
from gpubench.hardware.readers import readers
from gpubench.hardware.telemetry import Sampler
from gpubench.runner.process import RunChild, run_child

CPU_SOAK_SECONDS = 2.0
"""Enough for a CPU to leave its idle clock."""
TIME_LIMIT_SECONDS = 300.0
METHOD = "sustained"
"""How matrix products are measured on an accelerator. A stored peak of another method is measured again."""


@dataclass(frozen=True)
class Peak:
    """The highest rates of one device in one precision."""

    flops_per_second: float
    """Rate of the fastest matrix product."""
    bytes_per_second: float
    """Rate of a large copy, bytes read plus written."""
    op_seconds: float
    """Seconds per call in a training step on tiny tensors."""
    side: int
    """Rows and columns of that matrix product."""
    shared: bool = False
    """Whether other programs used the device meanwhile; such a peak is not stored."""


def cache_file() -> Path:
    """Return the file of stored peaks."""
    return Path(platformdirs.user_cache_dir("gpubench")) / "peaks.json"


def stored(device: Device, torch: str, precision: str, threads: int) -> Peak | None:
    """Return the stored peak of this device, torch, precision and number of threads, or None."""
    rates = _read().get(_key(device, torch, precision, threads), {})
    names = {field.name for field in fields(Peak)} - {"shared"}
    # The file may be of another version, or edited.
    if not isinstance(rates, dict) or set(rates) != names:
        return None
    return Peak(**rates) if all(isinstance(value, int | float) for value in rates.values()) else None


def measure(
    device: Device,
    torch: str,
    precision: str,
    threads: int,
    soak_seconds: float,
    say: Callable[[str], None],
    run_child: RunChild = run_child,
) -> Peak:
    """Measure a peak in a child process; raises UserError with the reason if that fails.

    Stored for later runs unless other programs used the device meanwhile; then `say` prints a note.
    """
    task = {"device": device.device, "precision": precision, "threads": threads, "soak_seconds": soak_seconds}
    sampler = Sampler(readers([device])[device.device], all_processes_visible=host.all_processes_visible())
    cpu_load = host.cpu_load(cpu_count()) if device.kind == "cpu" else None
    outcome = run_child({"task": "peak", **task}, on_wake=sampler.tick, time_limit_seconds=TIME_LIMIT_SECONDS)
    answer = outcome.answer or {}
    if "rates" not in answer:
        why = answer.get("reason") or outcome.reason
        raise UserError(f"the peak of {device.device} in {precision} could not be measured: {why}")
    peak = Peak(**answer["rates"])
    others = sampler.others()
    if (others and others["compute"]) or (cpu_load and cpu_load.others() > host.SHARED_CPU):
        say(f"other programs used {device.device} meanwhile: its peak in {precision} is not stored")
        return replace(peak, shared=True)
    _store(_key(device, torch, precision, threads), peak)
    return peak


def _key(device: Device, torch: str, precision: str, threads: int) -> str:
    """Return the key in the cache; empty for a device without identity, which is not stored."""
    if not device.device_hash:
        return ""
    if device.kind == "cpu":
        setup = f"{threads}/{os.environ.get('OMP_NUM_THREADS', '')}/{cpu_count()}"
    else:
        card = readers([device])[device.device]
        watts = card.state().power_limit_watts if card else None
        setup = f"driver={device.driver} {f'{watts:.0f} W' if watts else ''} {METHOD}"
    return " ".join([device.device_hash, torch, precision, setup])


def _read() -> dict[str, Any]:
    try:
        peaks = json.loads(cache_file().read_text())
    except (OSError, ValueError):
        return {}
    return peaks if isinstance(peaks, dict) else {}


def _store(key: str, peak: Peak) -> None:
    """Add a peak to the cache, if the cache can be written."""
    if not key:
        return
    file = cache_file()
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock"):
            rates = {name: value for name, value in asdict(peak).items() if name != "shared"}
            new_file = file.with_suffix(".new")
            new_file.write_text(json.dumps({**_read(), key: rates}, indent=1, sort_keys=True))
            new_file.replace(file)
