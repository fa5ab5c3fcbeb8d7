"""Warms the devices of a run and measures their highest rates, which are stored in the user's cache (peaks.json)."""

import json
import os
from collections.abc import Callable, Iterable
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
from gpubench.runner.session import Session
from gpubench.suite.precisions import multiplied_in
from gpubench.suite.trial import Case

SOAK_SECONDS = 30.0
"""How long an accelerator is warmed before its first trial: a cold one has a higher clock."""
SOAK_AFTER_SEARCH_SECONDS = 10.0
"""SOAK_SECONDS after a batch search, which has already warmed the device."""
CPU_SOAK_SECONDS = 2.0
"""How long a CPU is warmed before its peak is measured: enough to leave its idle clock."""
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
    """Rows and columns of the matrices of the fastest product."""
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

    The peak is stored for later runs. If other programs used the device meanwhile, `say` prints a note instead.
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
    """Return the key in the cache; empty for a device without identity, whose peaks are not stored."""
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


class WarmUp:
    """Warms the session's accelerators and measures the peaks of its devices; a quick run does neither."""

    def __init__(self, session: Session, run_child: RunChild, say: Callable[[str], None]) -> None:
        self._session, self._run_child, self._say = session, run_child, say
        self._soaked: set[str] = set()
        self._peaks: dict[tuple[str, str, int], Peak | None] = {}

    def before(self, case: Case, planned: Iterable[Case], *, searched: bool) -> None:
        """Before a trial of `case`, warm the devices of all planned cases, and measure the peak of the case's device.

        `searched`: whether a batch search of this run has used a device.
        """
        is_warm = searched and len(self._session.devices) == 1
        devices = {device for planned_case in planned for device in planned_case.devices}
        self._soak(devices, SOAK_AFTER_SEARCH_SECONDS if is_warm else SOAK_SECONDS)
        self._find_peak(case)

    def peak_of(self, case: Case) -> Peak | None:
        """Return the peak of the case's device in its precision, or None."""
        return self._peaks.get(_peak_key(case))

    def _soak(self, devices: set[str], seconds: float) -> None:
        """Warm each device once, all at the same time."""
        options = self._session.options
        names = sorted(device for device in devices - self._soaked if not device.startswith("cpu"))
        self._soaked.update(names)
        if not names or options.mode == "quick" or not options.soak:
            return
        self._say(f"warming {', '.join(names)} for {seconds:.0f} s, untimed")
        self._run_child({"task": "soak", "devices": names, "seconds": seconds}, time_limit_seconds=seconds + 120)

    def _find_peak(self, case: Case) -> None:
        session, key = self._session, _peak_key(case)
        if not session.suites[case.suite].suite.torch or key in self._peaks:
            return
        name, precision, threads = key
        device, torch = session.devices[name], session.environment.torch
        self._peaks[key] = stored(device, torch, precision, threads)
        if self._peaks[key] or session.options.mode == "quick" or not session.options.peaks:
            return
        self._say(f"measuring the peak of {name} in {precision} (once per torch version)")
        try:
            seconds = CPU_SOAK_SECONDS  # enough for an accelerator too: it was warmed before
            self._peaks[key] = measure(device, torch, precision, threads, seconds, self._say, self._run_child)
        except UserError as error:
            self._say(f"{error}; rows will have no peak")


def _peak_key(case: Case) -> tuple[str, str, int]:
    return case.device, multiplied_in(case.precision), int(case.params["threads"])
