"""Reads NVIDIA cards through NVML, without a CUDA context. A value that cannot be read is None or empty, no error."""

from types import ModuleType
from typing import Any

from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState, Commands, Processes, Reading, ask, library_named

KIND = "cuda"
MISSING = (
    "NVIDIA: in a container, start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility, else reinstall the driver with"
    " its NVML library"
)
REASONS = {
    0x1: "idle", 0x2: "application_clocks", 0x4: "power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "power_brake", 0x100: "display_clocks", 0x200: "board_limit",
    0x400: "reliability",
}  # fmt: skip
"""Name by bit of NVML's clocks event reasons (NVML API reference; called throttle reasons until driver 535)."""
NOT_AVAILABLE = {2**32 - 1, 2**64 - 1}
"""NVML's missing values (NVML_VALUE_NOT_AVAILABLE)."""


def library() -> ModuleType | None:
    """Return NVML's Python binding, initialised, or None without an NVIDIA driver."""
    return library_named("pynvml", "nvmlInit")


def find(nvml: ModuleType, device: Device) -> "NvmlCard | None":
    """Return the card or MIG slice with the device's UUID, or None.

    The index is of no use: NVML sorts all cards by bus; CUDA puts the fastest first, and may not see all cards.
    """
    bare = device.uuid.removeprefix("GPU-").removeprefix("MIG-")
    for prefix in ("GPU-", "MIG-"):
        handle = ask(nvml, "nvmlDeviceGetHandleByUUID", f"{prefix}{bare}") if bare else None
        if handle is not None:
            return NvmlCard(nvml, handle, f"{prefix}{bare}", integrated=device.integrated)
    return None


def nvidia_commands(identity: str) -> Commands:
    """Return the nvidia-smi commands for the card or slice with this UUID."""
    settings = f"sudo nvidia-smi -i {identity}"
    return Commands(
        settings=settings,
        power_limit=f"{settings} -pl {{watts:.0f}}",
        clocks=f"{settings} -rac; {settings} -rgc",
        processes="nvidia-smi",
    )


class NvmlCard:
    """One NVIDIA card, or one MIG slice and its card. An integrated card has no PCIe link, whatever NVML reports."""

    def __init__(self, nvml: ModuleType, handle: object, identity: str, *, integrated: bool) -> None:
        self._nvml, self._slice, self._integrated = nvml, handle, integrated
        self.identity = identity
        self.commands = nvidia_commands(identity)
        whole = ask(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
        self._card = handle if whole is None else whole
        modes = ask(nvml, "nvmlDeviceGetMigMode", self._card)
        self._mig = whole is not None or bool(modes and modes[0] == 1)

    def state(self) -> CardState:
        """Return the settings of the card."""
        graphics, sm, memory = (getattr(self._nvml, f"NVML_CLOCK_{kind}") for kind in ("GRAPHICS", "SM", "MEM"))
        modes = self._first("nvmlDeviceGetEccMode")
        return CardState(
            power_limit_watts=_thousandth(self._number("nvmlDeviceGetPowerManagementLimit")),
            default_power_limit_watts=_thousandth(self._number("nvmlDeviceGetPowerManagementDefaultLimit")),
            card_max_sm_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", sm),
            card_max_memory_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", memory),
            clocks_policy=_policy(
                self._number("nvmlDeviceGetApplicationsClock", graphics),
                self._number("nvmlDeviceGetDefaultApplicationsClock", graphics),
                self._number("nvmlDeviceGetGpcClkVfOffset"),
            ),
            ecc=_switch(modes[0] if modes else None),
            mig="on" if self._mig else _switch((self._first("nvmlDeviceGetMigMode") or [None])[0]),
            persistence=_switch(self._number("nvmlDeviceGetPersistenceMode")),
            max_pcie_generation=self._link("nvmlDeviceGetMaxPcieLinkGeneration"),
            max_pcie_width=self._link("nvmlDeviceGetMaxPcieLinkWidth"),
        )

    def read(self) -> Reading:
        """Return the sensors' values now; no power and energy with MIG, because they are those of the whole card."""
        sm, memory = self._nvml.NVML_CLOCK_SM, self._nvml.NVML_CLOCK_MEM
        mask = self._number("nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons")
        rates = ask(self._nvml, "nvmlDeviceGetUtilizationRates", self._slice)
        used = ask(self._nvml, "nvmlDeviceGetMemoryInfo", self._slice)
        return Reading(
            power_watts=None if self._mig else _thousandth(self._number("nvmlDeviceGetPowerUsage")),
            energy_joules=None if self._mig else _thousandth(self._number("nvmlDeviceGetTotalEnergyConsumption")),
            sm_clock_mhz=self._number("nvmlDeviceGetClockInfo", sm),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", memory),
            temperature_celsius=self._number(
                "nvmlDeviceGetTemperature nvmlDeviceGetTemperatureV", self._nvml.NVML_TEMPERATURE_GPU
            ),
            utilisation=rates.gpu / 100 if rates else None,
            memory_used_bytes=used.used if used else None,
            pcie_generation=self._link("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width=self._link("nvmlDeviceGetCurrPcieLinkWidth"),
            reasons=None if mask is None else reason_names(mask),
        )

    def processes(self) -> Processes | None:
        """Return the processes on the card, all slices included, or None if the driver does not list them."""
        compute = self._first("nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetComputeRunningProcesses_v2")
        if compute is None:
            return None
        shared = self._first("nvmlDeviceGetMPSComputeRunningProcesses") or []
        graphics = self._first("nvmlDeviceGetGraphicsRunningProcesses") or []
        return Processes(frozenset(p.pid for p in [*compute, *shared]), frozenset(p.pid for p in graphics))

    def _first(self, names: str, *more: object) -> Any:
        """Return the result of the first function in `names` that works: drivers and bindings rename them."""
        answers = (ask(self._nvml, name, self._card, *more) for name in names.split())
        return next((answer for answer in answers if answer is not None), None)

    def _number(self, names: str, *more: object) -> int | None:
        value = self._first(names, *more)
        return None if value is None or value in NOT_AVAILABLE else int(value)

    def _link(self, name: str) -> int | None:
        return None if self._integrated else self._number(name)


def reason_names(mask: int) -> frozenset[str]:
    """Return the names of the bits that are set; an unknown bit is named by its number."""
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return frozenset(REASONS.get(bit, f"{bit:#x}") for bit in bits)


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _switch(value: int | None) -> str:
    return {0: "off", 1: "on"}.get(value, "") if value is not None else ""


def _policy(application: int | None, default: int | None, offset: int | None) -> str:
    """Return the clocks' changes, or `default`; empty if unknown. A lock (nvidia-smi -lgc) shows only under load."""
    available = application is not None and default is not None
    changed = [f"application clock {application} MHz of {default}"] if available and application != default else []
    changed += [f"offset {offset:+d} MHz"] if offset else []
    return ", ".join(changed) or ("default" if available or offset == 0 else "")
