"""Returns the sensor reader of each device. Each maker has a file in `makers/`, listed in MAKERS."""

from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType

from gpubench.hardware import host
from gpubench.hardware.advice import Check
from gpubench.hardware.environment import Device
from gpubench.hardware.makers import amd, nvidia
from gpubench.hardware.state import CardState
from gpubench.hardware.telemetry import CardReader

MAKERS: tuple[ModuleType, ...] = (nvidia, amd)
"""The first one that can read a card is used."""


def readers(devices: Iterable[Device]) -> dict[str, CardReader | None]:
    """Return the sensor reader by device name; None for devices without one, such as a CPU."""
    all_devices = list(devices)
    by_device: dict[str, CardReader | None] = {device.device: None for device in all_devices}
    for maker in MAKERS:
        wanted = [device for device in all_devices if device.kind == maker.KIND and not by_device[device.device]]
        library = maker.library() if wanted else None
        if library is not None:
            by_device.update((device.device, maker.find(library, device)) for device in wanted)
    return by_device


FOREIGN_BYTES = 1 << 28
"""On a card that nobody uses, drivers report up to about this much memory as used."""


def with_free_memory(device: Device, card: CardReader | None) -> Device:
    """Return the device with the memory that other programs leave free now."""
    used = card.read().memory_used_bytes if card and not device.integrated else None
    if not used or used < FOREIGN_BYTES or not device.memory_bytes:
        return device
    return replace(device, available_bytes=max(0, device.memory_bytes - int(used)))


def state_of(device: Device, card: CardReader | None) -> CardState:
    """Return the settings of the card, and the memory node that it is attached to."""
    return replace(card.state() if card else CardState(), numa_node=host.numa_node(device.bus))


def unread_sensors(device: Device) -> Check:
    """Return the check for an accelerator whose sensors cannot be read, with advice."""
    text = f"{device.device}: cannot read power, energy, clocks, temperature and other programs"
    advice = "; ".join(maker.MISSING for maker in MAKERS if device.kind == maker.KIND)
    watch = "watch the card with its maker's tool while gpubench runs"
    return Check("note", text, advice or f"no library reads this kind of card: {watch}")
