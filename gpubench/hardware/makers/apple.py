"""Apple's GPU through zeus-apple-silicon, which reads its energy. Nothing reads its clock or temperature."""

from importlib import import_module
from types import ModuleType
from typing import Protocol

from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState, Commands, Processes, Reading

KIND = "mps"
MISSING = "pip install zeus-apple-silicon tells energy; close other programs by hand"


class Energy(Protocol):
    """What the chip has used since some moment."""

    gpu_mj: float | None
    """In millijoules; None on a chip that does not tell."""


class Monitor(Protocol):
    """What is used of the library's AppleEnergyMonitor."""

    def get_cumulative_energy(self) -> Energy:
        """All its counters."""


def library() -> ModuleType | None:
    """The library; None where it is not installed."""
    try:
        return import_module("zeus_apple_silicon")
    except Exception:  # no package, another machine: no telemetry, and no reason not to measure
        return None


def find(zeus: ModuleType, device: Device) -> "AppleGpu | None":
    """The one GPU of this machine; None where its counters cannot be opened."""
    try:
        return AppleGpu(zeus.AppleEnergyMonitor())
    except Exception:  # a machine whose counters the library does not find
        return None


class AppleGpu:
    """The GPU of this machine's chip, by its energy counter."""

    commands = Commands()

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def state(self) -> CardState:
        """Nothing about it can be set."""
        return CardState()

    def read(self) -> Reading:
        """Its energy since some moment; the counter is in millijoules."""
        try:
            millijoules = self._monitor.get_cumulative_energy().gpu_mj
        except Exception:  # a chip that the library does not know
            return Reading()
        return Reading(energy_joules=None if millijoules is None else millijoules / 1000)

    def processes(self) -> Processes | None:
        """Not told."""
        return None
