"""Which devices a run measures, and how many of them together; raises UserError where the machine lacks them."""

from collections.abc import Sequence
from typing import NoReturn

from gpubench.errors import UserError
from gpubench.hardware.environment import Device
from gpubench.runner.options import Options


def choose_devices(wish: str, devices: Sequence[Device]) -> list[Device]:
    """The devices that `--device` names; raises UserError listing those there are."""
    accelerators = [device for device in devices if device.kind != "cpu"]
    usable = [device for device in accelerators if not device.problem]
    if wish in {"auto", "all"}:
        if accelerators and not usable:  # never the CPU in their place without a word
            _refuse(wish, accelerators[0])
        # A card that torch cannot use is part of `all`: its rows say why they are empty.
        return (usable[:1] if wish == "auto" else accelerators) or list(devices)
    chosen = []
    for name in wish.split(","):
        full = f"{name}:0" if name in {"cuda", "xpu", "mps"} else name
        found = [device for device in devices if device.device == full]
        if not found:
            there = ", ".join(device.device for device in devices)
            raise UserError(f"--device {name}: not on this machine, which has {there}; `gpubench doctor` says more")
        if found[0].problem:
            _refuse(name, found[0])
        chosen += [device for device in found if device not in chosen]
    return chosen


def _refuse(wish: str, device: Device) -> NoReturn:
    raise UserError(
        f"--device {wish}: torch cannot compute on {device.device}, {device.card} ({device.problem});"
        " `gpubench doctor` says what to install, --device cpu measures the CPU"
    )


def check_processes(
    options: Options, chosen: Sequence[Device], devices: Sequence[Device], cpu_count: int | None = None
) -> None:
    """Raise UserError where a machine lacks the devices or CPUs, or --nodes and --rendezvous do not go together."""
    if options.nodes > 1 and not options.rendezvous:
        raise UserError(f"--nodes {options.nodes} needs --rendezvous HOST:PORT, the same on every machine")
    if options.rendezvous and options.nodes == 1:
        raise UserError("--rendezvous needs --nodes N, the number of machines")
    most = max(options.processes)
    on_cards = any(device.kind != "cpu" for device in chosen)
    if on_cards and cpu_count is not None and cpu_count < most:
        raise UserError(
            f"--processes {most}: this machine gives {cpu_count} CPU{'s' * (cpu_count > 1)}, and each needs one of its"
            " own; give the container or job more (--slurm exclusive=user, or cpus_per_task=N)"
        )
    for device in chosen:
        first = [each.device for each in devices if each.kind == device.kind].index(device.device)
        there = len([each for each in devices if each.kind == device.kind and not each.problem]) - first
        if device.kind != "cpu" and most > there:
            together = f"--processes {most}: one for each device, and from {device.device} on this machine has {there}"
            if len(chosen) > 1:
                raise UserError(
                    f"{together}; with --device {chosen[0].device} alone a group takes that one and those after it,"
                    " without --processes each of several devices is measured in turn"
                )
            raise UserError(f"{together}; give fewer, or another --device to begin with")
