"""Which library reads which device: NVIDIA's, AMD's or Apple's. None reads Intel's."""

from collections.abc import Iterable
from dataclasses import replace

from gpubench.hardware import amd, apple, host, nvidia
from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState
from gpubench.hardware.telemetry import CardReader


def readers(devices: Iterable[Device]) -> dict[str, CardReader | None]:
    """By name of the device, what reads it; None where nothing does, as for a CPU."""
    found: dict[str, CardReader | None] = {}
    nvml, radeon, silicon = nvidia.library(), amd.library(), apple.library()
    for device in devices:
        card: CardReader | None = None
        if device.kind == "cuda":  # torch calls AMD's so too
            card = nvidia.find(nvml, device.uuid) if nvml else None
            card = card or (amd.find(radeon, device.bus) if radeon else None)
        elif device.kind == "mps" and silicon:
            card = apple.AppleGpu(silicon)
        found[device.device] = card
    return found


def state_of(device: Device, card: CardReader | None) -> CardState:
    """How the card is set up, and the memory node that it is attached to."""
    return replace(card.state() if card else CardState(), numa_node=host.numa_node(device.bus))
