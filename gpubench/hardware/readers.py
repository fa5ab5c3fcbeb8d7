"""Finds what reads the sensors of each device. Each maker has a file in `makers/`, named in MAKERS."""

from collections.abc import Iterable
from dataclasses import replace

from gpubench.hardware import host
from gpubench.hardware.environment import Device
from gpubench.hardware.makers import amd, apple, nvidia
from gpubench.hardware.state import CardState, Check
from gpubench.hardware.telemetry import CardReader, Maker

MAKERS: tuple[Maker, ...] = (nvidia, amd, apple)
"""In the order in which they are asked for a card."""


def readers(devices: Iterable[Device]) -> dict[str, CardReader | None]:
    """By name of the device, what reads it; None where nothing does, as for a CPU."""
    every = list(devices)
    found: dict[str, CardReader | None] = {device.device: None for device in every}
    for maker in MAKERS:
        wanted = [device for device in every if device.kind == maker.KIND and not found[device.device]]
        library = maker.library() if wanted else None
        if library is not None:
            found.update((device.device, maker.find(library, device)) for device in wanted)
    return found


def state_of(device: Device, card: CardReader | None) -> CardState:
    """How the card is set up, and the memory node that it is attached to."""
    return replace(card.state() if card else CardState(), numa_node=host.numa_node(device.bus))


def untold(device: Device) -> Check:
    """That nothing can be read of an accelerator, and what would change that."""
    text = f"{device.device}: power, energy, clocks, heat and other programs cannot be read"
    advice = "; ".join(maker.MISSING for maker in MAKERS if device.kind == maker.KIND)
    watch = "watch the card with its maker's tool while gpubench runs"
    return Check("note", text, advice or f"no library tells of this kind here: {watch}")
