"""Chooses the devices of a run, checks that the machine has enough of them, and finds lost ones."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NoReturn

from gpubench.errors import UserError
from gpubench.hardware.environment import Device
from gpubench.runner.options import Options
from gpubench.suite.trial import Case


class DeviceLost(Exception):
    """A device of the run no longer computes: its driver lost it, or it left the bus."""


def lost_device(before: Iterable[Device], now: Sequence[Device]) -> str:
    """Return the first accelerator that was usable `before` and is not `now`, and why; empty if there is none."""
    for device in before:
        same = [other for other in now if (other.device_hash or other.device) == (device.device_hash or device.device)]
        problem = same[0].problem if same else "torch does not list it any more"
        if device.kind != "cpu" and not device.problem and problem:
            return f"{device.device} ({device.card}) is lost: {problem}"
    return ""


def choose_devices(option: str, devices: Sequence[Device]) -> list[Device]:
    """Return the devices that `--device` names; raises UserError if one is missing or unusable."""
    accelerators = [device for device in devices if device.kind != "cpu"]
    usable = [device for device in accelerators if not device.problem]
    if option in {"auto", "all"}:
        if accelerators and not usable:  # the CPU must not replace them silently
            _refuse(option, accelerators[0])
        # `all` includes a card that torch cannot use: its rows have the reason.
        return (usable[:1] if option == "auto" else accelerators) or list(devices)
    chosen = []
    for name in option.split(","):
        full = f"{name}:0" if name in {"cuda", "xpu", "mps"} else name
        device = next((device for device in devices if device.device == full), None)
        if device is None:
            names = ", ".join(device.device for device in devices)
            raise UserError(f"--device {name}: not on this machine, which has {names}; see `gpubench doctor`")
        if device.problem:
            _refuse(name, device)
        chosen += [device] * (device not in chosen)
    return chosen


def _refuse(option: str, device: Device) -> NoReturn:
    raise UserError(
        f"--device {option}: torch cannot compute on {device.device}, {device.card} ({device.problem});"
        " see `gpubench doctor`, or measure the CPU with --device cpu"
    )


def with_devices(case: Case, devices: Sequence[Device]) -> Case:
    """Return the case, refused if the machine lacks a device for one of the processes that its suite asks for."""
    usable = {device.device for device in devices if not device.problem}
    missing = [name for name in case.devices if name not in usable]
    if not missing or case.refusal or case.processes == 1:
        return case
    return replace(case, refusal=f"it trains on {len(case.devices)} devices; this machine has no {', '.join(missing)}")


def check_processes(options: Options, chosen: Sequence[Device], devices: Sequence[Device], cpu_count: int) -> None:
    """Raise UserError if the machine has too few devices or CPUs, or only one of --nodes and --rendezvous is given."""
    if options.nodes > 1 and not options.rendezvous:
        raise UserError(f"--nodes {options.nodes} needs --rendezvous HOST:PORT, the same on every machine")
    if options.rendezvous and options.nodes == 1:
        raise UserError("--rendezvous needs --nodes N, the number of machines")
    most = max(options.processes)
    on_cards = any(device.kind != "cpu" for device in chosen)
    if on_cards and cpu_count < most:
        more = "give the container or job more CPUs (--slurm exclusive=user or cpus_per_task=N)"
        raise UserError(f"--processes {most}: each needs one CPU, and there are {cpu_count}; {more}")
    for device in chosen:
        same_kind = [other for other in devices if other.kind == device.kind]
        available = sum(not other.problem for other in same_kind[same_kind.index(device) :])
        if device.kind != "cpu" and most > available:
            count = f"from {device.device} on there are {available}; give fewer, or only the first device as --device"
            raise UserError(f"--processes {most}: each needs one device, and {count}")
