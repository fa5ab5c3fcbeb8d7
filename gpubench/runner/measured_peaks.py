"""The highest rates measured on each device, kept in the user's cache: matrix products, copies, calls."""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

from gpubench.console import Screen
from gpubench.errors import UserError
from gpubench.hardware import host
from gpubench.hardware.environment import Device, cpu_count, devices_of
from gpubench.hardware.readers import readers
from gpubench.hardware.telemetry import PROCESSES_SECONDS, foreign
from gpubench.runner.cases import choose_precisions
from gpubench.runner.devices import choose_devices
from gpubench.runner.process import RunChild, describe, run_child
from gpubench.suite.precisions import multiplied_in as multiplied_in

SOAK_SECONDS = 30.0
CPU_SOAK_SECONDS = 2.0
"""A CPU only has to leave its idle clock."""
TIME_LIMIT_SECONDS = 300.0
METHOD = "sustained"
"""How an accelerator's products are measured; a peak of another method is measured again."""


@dataclass(frozen=True)
class Peak:
    """Rates of one device in one precision."""

    flops_per_second: float
    """Of the fastest matrix product."""
    bytes_per_second: float | None
    """Of a large copy, read and written; None where there was no memory for it."""
    op_seconds: float | None
    """Per call of a training step on tiny tensors."""
    side: int
    """Rows and columns of that matrix product."""
    shared: bool = False
    """Whether other programs computed meanwhile; such a peak is not kept."""

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return self.bytes_per_second is not None and self.op_seconds is not None


def cache_file() -> Path:
    """Where the measured peaks are kept."""
    return Path(platformdirs.user_cache_dir("gpubench")) / "peaks.json"


def known(device: Device, torch: str, precision: str, threads: int) -> Peak | None:
    """What was measured earlier on this very device, with this torch and as many threads, or None."""
    found = _read().get(_key(device, torch, precision, threads), {})
    names = {field.name for field in fields(Peak)} - {"shared"}
    # It may be of another version, or one that somebody edited.
    if not isinstance(found, dict) or set(found) != names:
        return None
    return Peak(**found) if all(isinstance(value, int | float) for value in found.values()) else None


def measure(
    device: Device,
    torch: str,
    precision: str,
    threads: int,
    soak_seconds: float,
    say: Callable[[str], None],
    run_child: RunChild = run_child,
) -> Peak:
    """Measure in a child of its own; raises UserError with the reason where it cannot be done.

    Remembered for later runs unless other programs computed on the device meanwhile, which `say` is told.
    """
    task = {"task": "peak", "device": device.device, "precision": precision, "threads": threads}
    watch = _Others(device)
    outcome = run_child(
        {**task, "soak_seconds": soak_seconds}, on_wake=watch.look, time_limit_seconds=TIME_LIMIT_SECONDS
    )
    answer = outcome.answer or {}
    if "rates" not in answer:
        why = answer.get("reason") or outcome.reason
        raise UserError(f"the peak of {device.device} in {precision} could not be measured: {why}")
    peak = Peak(**answer["rates"])
    if others := watch.found():
        say(f"{others} computed on {device.device} meanwhile: its peak in {precision} is not kept for later runs")
        return replace(peak, shared=True)
    if peak.whole:
        _remember(_key(device, torch, precision, threads), peak)
    return peak


class _Others:
    """Whether other programs compute on a device while its peak is measured."""

    def __init__(self, device: Device) -> None:
        self._card = readers([device])[device.device]
        self._visible = host.all_processes_visible()
        self._load = host.cpu_load(cpu_count()) if device.kind == "cpu" else None
        self._looked, self._most = 0.0, 0

    def look(self, pid: int) -> None:
        """At the processes on the card, where `pid` is ours."""
        if self._card is None or time.monotonic() - self._looked < PROCESSES_SECONDS:
            return
        self._looked = time.monotonic()
        there = foreign(self._card.processes(), pid, all_visible=self._visible)
        self._most = max(self._most, there.compute if there else 0)

    def found(self) -> str:
        """Who they were, in words; empty where there was nobody, or where nobody can tell."""
        share = self._load.others() if self._load else 0.0
        if share > host.SHARED_CPU:
            return f"other programs ({share:.0%} of the CPUs)"
        return f"{self._most} other program{'s' * (self._most > 1)}" if self._most else ""


def soak_seconds(device: Device) -> float:
    """How long a device is warmed before its peak is measured."""
    return CPU_SOAK_SECONDS if device.kind == "cpu" else SOAK_SECONDS


def report(device_wish: str, precision_wish: str, threads: int) -> Iterator[tuple[Device, str, Peak | str]]:
    """Measure every device and precision wished for; for each its peak, or why there is none."""
    console = Screen(stderr=True)
    facts = describe()
    for device in choose_devices(device_wish, devices_of(facts)):
        seconds = soak_seconds(device)
        for precision in dict.fromkeys(map(multiplied_in, choose_precisions(precision_wish, device))):
            if precision in device.unsupported:
                yield device, precision, device.unsupported[precision]
                continue
            console.print(f"measuring {device.device} in {precision}, after {seconds:.0f} s of warming", markup=False)
            try:
                yield device, precision, measure(device, facts["torch"], precision, threads, seconds, console.print)
            except UserError as error:
                yield device, precision, str(error)
            seconds = CPU_SOAK_SECONDS  # warm by now


def _key(device: Device, torch: str, precision: str, threads: int) -> str:
    """Empty for a device without identity: it has no place in the cache."""
    if not device.device_hash:
        return ""
    if device.kind == "cpu":  # what it reaches is a matter of its threads
        own = f"{threads}/{os.environ.get('OMP_NUM_THREADS', '')}/{cpu_count()}"
    else:
        own = f"driver={device.driver} {_power_limit(device)} {METHOD}"
    return " ".join([device.device_hash, torch, precision, own])


def _power_limit(device: Device) -> str:
    """What the card may draw at present; empty where nobody tells."""
    card = readers([device])[device.device]
    watts = card.state().power_limit_watts if card else None
    return f"{watts:.0f} W" if watts else ""


def _read() -> dict[str, Any]:
    try:
        kept = json.loads(cache_file().read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _remember(key: str, peak: Peak) -> None:
    """Add to the cache; one that cannot be written is none."""
    if not key:
        return
    file = cache_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock"):
            rates = {name: value for name, value in asdict(peak).items() if name != "shared"}
            kept = {**_read(), key: rates}
            fresh = file.with_suffix(".new")
            fresh.write_text(json.dumps(kept, indent=1, sort_keys=True))
            fresh.replace(file)
    except OSError:
        return
