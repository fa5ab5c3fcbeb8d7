"""Reads the energy of Apple's GPU through zeus-apple-silicon. Clock and temperature cannot be read."""

from types import ModuleType
from typing import Any

from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState, Commands, Processes, Reading, library_named

KIND = "mps"
MISSING = "pip install zeus-apple-silicon to read energy; close other programs by hand"


def library() -> ModuleType | None:
    """Return the library, or None if it is not installed."""
    return library_named("zeus_apple_silicon")


def find(zeus: ModuleType, device: Device) -> "AppleGpu | None":
    """Return the GPU of this machine, or None if its counters cannot be opened."""
    try:
        return AppleGpu(zeus.AppleEnergyMonitor())
    except Exception:  # a machine without counters that the library supports
        return None


class AppleGpu:
    """The energy counter of this machine's GPU."""

    commands = Commands()

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor

    def state(self) -> CardState:
        """Return no settings: the GPU has none."""
        return CardState()

    def read(self) -> Reading:
        """Return the energy counter, in joules."""
        try:
            millijoules = self._monitor.get_cumulative_energy().gpu_mj
        except Exception:  # a chip that the library does not support
            return Reading()
        return Reading(energy_joules=None if millijoules is None else millijoules / 1000)

    def processes(self) -> Processes | None:
        """Return None: not available."""
        return None
