"""Reads AMD cards through amdsmi, without a HIP context. A value that cannot be read is None or empty, no error."""

import contextlib
import io
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState, Commands, Processes, Reading, ask, library_named

KIND = "cuda"
MISSING = "AMD: install amd-smi-lib and the package amdsmi of the same ROCm release"
RESIDENCIES = {
    "prochot_residency_acc": "hw_slowdown",
    "ppt_residency_acc": "power_cap",
    "socket_thm_residency_acc": "sw_thermal",
    "hbm_thm_residency_acc": "sw_thermal",
    "vr_thm_residency_acc": "hw_thermal",
}
"""Name of a limit in rows, by the counter of its active time (AMD SMI's gpu_metrics, MI300 and later).

Older cards only report that some limit is active. This is always true under a power cap, so it is not used.
"""
GENERATIONS = {2500: 1, 5000: 2, 8000: 3, 16000: 4, 32000: 5, 64000: 6}
"""PCIe generation by megatransfers per second."""
MOST_WATTS = 10_000
"""Some releases of amdsmi report power caps in watts, others in microwatts: a larger number is in microwatts."""


def library() -> ModuleType | None:
    """Return amdsmi, initialised, or None if it or AMD's driver is missing."""
    with contextlib.redirect_stdout(io.StringIO()):  # amdsmi prints if the system's library is missing
        return library_named("amdsmi", "amdsmi_init")


def find(smi: ModuleType, device: Device) -> "AmdCard | None":
    """Return the card at the device's PCI address (domain:bus:device), or None if unknown or shared by partitions."""
    handles = ask(smi, "amdsmi_get_processor_handles") or []
    bus = device.bus.lower()
    addresses = [str(ask(smi, "amdsmi_get_gpu_device_bdf", handle) or "") for handle in handles]
    matches = [index for index, address in enumerate(addresses) if address.lower().rpartition(".")[0] == bus]
    if not bus or len(matches) != 1:
        return None
    return AmdCard(smi, handles[matches[0]], addresses[matches[0]], integrated=device.integrated)


class AmdCard:
    """One AMD card. An integrated one has no PCIe link."""

    def __init__(self, smi: ModuleType, handle: object, address: str, *, integrated: bool) -> None:
        self._smi, self._handle, self._integrated = smi, handle, integrated
        self._residencies: dict[str, float | None] = {}
        self.commands = Commands(
            settings="sudo amd-smi set",
            power_limit=f"sudo amd-smi set -g {address} --power-cap {{watts:.0f}}",
            clocks=f"sudo amd-smi set -g {address} --perf-level AUTO",
            processes="amd-smi process",
        )

    def state(self) -> CardState:
        """Return the settings of the card."""
        cap = self._ask("amdsmi_get_power_cap_info") or {}
        link = self._link("pcie_static")
        level = str(self._ask("amdsmi_get_gpu_perf_level") or "").removeprefix("AMDSMI_DEV_PERF_LEVEL_").lower()
        return CardState(
            power_limit_watts=_watts(cap.get("power_cap")),
            default_power_limit_watts=_watts(cap.get("default_power_cap")),
            card_max_sm_clock_mhz=_whole(self._clock("GFX").get("max_clk")),
            card_max_memory_clock_mhz=_whole(self._clock("MEM").get("max_clk")),
            clocks_policy={"": "", "unknown": "", "auto": "default"}.get(level, f"performance level {level}"),
            max_pcie_generation=_generation(link.get("max_pcie_speed")),
            max_pcie_width=_whole(link.get("max_pcie_width")),
        )

    def read(self) -> Reading:
        """Return the sensors' values now."""
        power = self._ask("amdsmi_get_power_info") or {}
        energy = self._ask("amdsmi_get_energy_count") or {}
        link = self._link("pcie_metric")
        busy = _number((self._ask("amdsmi_get_gpu_activity") or {}).get("gfx_activity"))
        count = _number(energy.get("energy_accumulator", energy.get("power")))
        microjoules = _number(energy.get("counter_resolution"))
        names = ("current_socket_power", "socket_power", "average_socket_power")
        return Reading(
            power_watts=next((watts for name in names if (watts := _number(power.get(name)))), None),
            energy_joules=count * microjoules / 1e6 if count is not None and microjoules else None,
            sm_clock_mhz=_current(self._clock("GFX")),
            memory_clock_mhz=_current(self._clock("MEM")),
            temperature_celsius=self._temperature("HOTSPOT") or self._temperature("EDGE"),
            utilisation=None if busy is None else busy / 100,
            memory_used_bytes=_number(self._ask("amdsmi_get_gpu_memory_usage", self._smi.AmdSmiMemoryType.VRAM)),
            pcie_generation=_generation(link.get("pcie_speed")),
            pcie_width=_number(link.get("pcie_width")),
            reasons=self._reasons(),
        )

    def processes(self) -> Processes | None:
        """Return the processes that compute on the card, or None if the driver does not list them."""
        with contextlib.suppress(TypeError):  # no list; or, until ROCm 6.0, handles instead of dicts
            return Processes(frozenset(int(process["pid"]) for process in self._ask("amdsmi_get_gpu_process_list")))
        return None

    def _reasons(self) -> frozenset[str] | None:
        """Return the limits that were active at some time since the last reading."""
        metrics = self._ask("amdsmi_get_gpu_metrics_info") or {}
        now = {name: _number(metrics.get(name)) for name in RESIDENCIES}
        before, self._residencies = self._residencies, now
        pairs = {name: (before.get(name), count) for name, count in now.items()}
        complete = {name: (old, new) for name, (old, new) in pairs.items() if old is not None and new is not None}
        if not complete:
            return None
        return frozenset(RESIDENCIES[name] for name, (old, new) in complete.items() if new > old)

    def _link(self, part: str) -> Mapping[str, object]:
        info: Mapping[str, Mapping[str, object]] = self._ask("amdsmi_get_pcie_info") or {}
        return {} if self._integrated else info.get(part, {})

    def _clock(self, kind: str) -> Mapping[str, object]:
        return self._ask("amdsmi_get_clock_info", getattr(self._smi.AmdSmiClkType, kind)) or {}

    def _temperature(self, sensor: str) -> float | None:
        now = self._smi.AmdSmiTemperatureMetric.CURRENT
        return _number(self._ask("amdsmi_get_temp_metric", getattr(self._smi.AmdSmiTemperatureType, sensor), now))

    def _ask(self, name: str, *more: object) -> Any:
        return ask(self._smi, name, self._handle, *more)


def _number(value: object) -> float | None:
    """Return a number, or None for amdsmi's missing values: N/A, or all bits set."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return None if value in {0xFFFF, 2**32 - 1, 2**64 - 1} else float(value)


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _current(clock: Mapping[str, object]) -> float | None:
    return _number(clock.get("clk", clock.get("cur_clk")))  # renamed in ROCm 6.1


def _watts(value: object) -> float | None:
    number = _number(value)
    return number / 1e6 if number and number > MOST_WATTS else number or None


def _generation(speed: object) -> int | None:
    number = _number(speed)  # megatransfers per second; gigatransfers in some releases
    return GENERATIONS.get(round(number if number >= 1000 else number * 1000)) if number else None
