"""Apple's GPU through zeus-apple-silicon, which reads its energy. Nothing reads its clock or temperature."""

from typing import Any

from gpubench.hardware.state import CardState, Commands, Processes, Reading


def library() -> Any | None:
    """The energy monitor; None where there is none."""
    try:
        from zeus_apple_silicon import AppleEnergyMonitor

        return AppleEnergyMonitor()
    except Exception:  # no package, another machine: no telemetry, and no reason not to measure
        return None


class AppleGpu:
    """The GPU of this machine's chip, by its energy counter."""

    commands = Commands()

    def __init__(self, monitor: Any) -> None:
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
