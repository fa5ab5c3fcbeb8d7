"""Data about cards and host: settings, sensors, processes, commands, switches. Filled by `makers/` and `host.py`."""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

SLOWED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"})
"""Reasons for a low clock that are faults. A power cap is normal under load."""
SWITCHES = {
    "CUDA_LAUNCH_BLOCKING": "every launch waits for its kernel",
    "PYTORCH_CUDA_ALLOC_CONF": "torch's allocator has other settings than the default",
    "PYTORCH_ALLOC_CONF": "torch's allocator has other settings than the default",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor is allocated by the driver, which is slow",
    "NVIDIA_TF32_OVERRIDE": "it overrides torch's TF32 setting",
}
"""Environment variables that change results, and how."""
IDLE_UTILISATION = 0.05
"""A card with a higher utilisation than this share is in use."""


@dataclass(frozen=True)
class CardState:
    """Settings of a card; None or empty if unknown. The fields are columns of the row."""

    power_limit_watts: float | None = None
    default_power_limit_watts: float | None = None
    card_max_sm_clock_mhz: int | None = None
    card_max_memory_clock_mhz: int | None = None
    clocks_policy: str = ""
    ecc: str = ""
    mig: str = ""
    persistence: str = ""
    max_pcie_generation: int | None = None
    max_pcie_width: int | None = None
    numa_node: int | None = None


@dataclass(frozen=True)
class Commands:
    """Commands of a card's maker that change settings or list processes; empty if there is none."""

    settings: str = ""
    """Beginning of the commands that switch a setting."""
    power_limit: str = ""
    """Sets the power limit; a format string with `watts`."""
    clocks: str = ""
    """Resets the clocks."""
    processes: str = ""
    """Lists the processes on the card."""


@dataclass(frozen=True)
class Reading:
    """A card's sensors at one moment; None if unknown."""

    power_watts: float | None = None
    energy_joules: float | None = None
    """A counter: only differences are meaningful."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    utilisation: float | None = None
    """Share of the last moments in which a kernel ran, 0 to 1."""
    memory_used_bytes: float | None = None
    """Memory used by all processes, reserved memory included."""
    pcie_generation: float | None = None
    pcie_width: float | None = None
    reasons: frozenset[str] | None = None
    """Why the clock is not higher: names as in the row's `throttle`."""


@dataclass(frozen=True)
class Processes:
    """Ids of the processes with a context on a card, as the driver reports them."""

    compute: frozenset[int] = frozenset()
    graphics: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Host:
    """The doctor's measurements of the host."""

    cpu_count: int
    cpu_governor: str
    load_average: float
    """Load average of the last minute, before gpubench started."""
    container: str
    """docker, podman, kubernetes, another name, or `none`."""
    all_processes_visible: bool
    """Whether process ids here are the kernel's, which the driver reports too."""
    shared_memory_bytes: int | None
    in_wsl: bool = False
    """Whether it is WSL2, where a full card uses the host's memory."""


def library_named(module: str, start: str = "") -> ModuleType | None:
    """Return a maker's library after calling its function `start`; None without the package, library or driver."""
    try:
        library = import_module(module)
        if start:
            getattr(library, start)()
    except Exception:  # something is missing: the trial runs without telemetry
        return None
    return library


def ask(library: ModuleType, name: str, *arguments: object) -> Any:
    """Return the answer of a function of a maker's library; None after an error, or if this release lacks it."""
    try:
        return getattr(library, name)(*arguments)
    except Exception:  # of the library or of its binding
        return None
