"""The checks of `gpubench doctor`, with advice: torch and driver, cards, host, data, disk."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pynvml

from gpubench.data import datasets
from gpubench.errors import UserError
from gpubench.hardware.environment import Device, TorchFacts, devices_of
from gpubench.hardware.state import IDLE_UTILISATION, SLOWED, SWITCHES, CardState, Commands, Host, Processes, Reading
from gpubench.printed import size_text
from gpubench.suite.precisions import UNPROVED

ROOMY_BYTES = 1_000_000_000
"""Enough free space for a dataset's archive, its files, and the rows of many runs, in bytes."""
OLDEST_OF_CUDA_13 = (7, 5)
"""torch's builds for CUDA 13 have kernels for Turing and newer cards (pytorch/pytorch#190385)."""
LEGACY_BUILD = "pip install 'torch>=2.6,<2.15' torchvision --index-url https://download.pytorch.org/whl/cu126"
"""CUDA 12.6 builds are the last with kernels for Maxwell, Pascal and Volta; torch 2.14 is the last release
with these builds (pytorch/pytorch#157517, #172352, #190385)."""
LEGACY_CONSTRAINTS = "in the commands of README.md, replace constraints.txt by constraints-pascal.txt"
"""constraints.txt would install the newer torch again."""
FREE_CLOCK = 0.8
"""A loaded card below this share of its highest SM clock, without a reported reason, has a clock lock."""
BUSY_SHARE = 0.25
"""Load average per CPU above which other programs affect results."""
USED_BYTES = 2 << 30
"""If more memory of a card is in use than this, programs use the card, listed or not. A guess, not measured."""
FEW_CPUS = 4
"""Fewer CPUs than this cannot load data for a card and run Python at the same time."""
SMALL_SHARED_MEMORY_BYTES = 1 << 30
"""Loader workers pass batches through /dev/shm; a container's default of 64 MiB causes a bus error."""


@dataclass(frozen=True)
class Check:
    """One line of `gpubench doctor`: `ok`, a `note`, or something to `fix`, with advice."""

    level: Literal["ok", "note", "fix"]
    text: str
    advice: str = ""


@dataclass(frozen=True)
class CardCheck:
    """The doctor's measurements of one card."""

    device: str
    commands: Commands
    state: CardState
    idle: Reading
    """Sensors before gpubench used the card."""
    processes: Processes | None
    """Processes before gpubench used the card; None if the driver does not list them."""
    loaded: Sequence[Reading] = field(default=())
    """Sensors while gpubench multiplied matrices on it."""
    load_failure: str = ""
    """Why the multiplication failed, or empty."""
    integrated: bool = False
    """Whether its memory is the host's."""
    leaves_node: bool = False
    """Whether this process may run on CPUs outside the card's memory node."""


@dataclass(frozen=True)
class Card:
    """A card as the NVIDIA driver reports it, whether or not torch can use it."""

    name: str
    driver: str
    driver_cuda: str
    """Newest CUDA version the driver runs."""
    problem: str = ""
    """Why the driver does not answer, or empty."""
    memory_bytes: int | None = None


def of_torch(facts: TorchFacts, cards: Sequence[Card] = ()) -> list[Check]:
    """Return the checks of torch and its devices, given torch's facts (`process.describe`) and the driver's cards."""
    cudnn = facts["cudnn"] or "refused"
    build = f"CUDA {facts['cuda']}, cuDNN {cudnn}" if facts["cuda"] else "no CUDA"
    checks = [Check("ok", f"torch {facts['torch']} ({build})")]
    # A CUDA device without a capability is not visible to torch.
    devices = devices_of(facts)
    visible = [device for device in devices if device.kind != "cuda" or device.capability]
    if cards and not any(device.kind == "cuda" for device in visible):
        card, refusal = cards[0], facts.get("cuda_refusal", "")
        supports = f", which supports CUDA {card.driver_cuda}" if card.driver_cuda else ""
        text = f"torch does not see the {card.name} (driver {card.driver or 'unknown'}{supports})"
        why = "; ".join(filter(None, (card.problem, refusal)))
        checks.append(Check("fix", f"{text}: {why}" if why else text, unseen_advice(card, facts["cuda"])))
    elif all(device.kind == "cpu" for device in visible):
        advice = "if it has a card: install the card's driver, restart, and check that nvidia-smi or rocm-smi lists it"
        checks.append(Check("note", "No GPU found: runs here measure the CPU", advice))
    for device in visible:
        checks += _check_device(device, facts, devices)
    return checks


def unseen_advice(card: Card, cuda: str) -> str:
    """Return advice for a torch, built for CUDA version `cuda` (empty: none), that does not see the driver's card."""
    if not cuda:
        return "this torch is built without CUDA: pip install --force-reinstall torch"
    if card.problem:
        return "restart the machine, so that driver and library match; start a container with docker run --gpus all"
    if _version(card.driver_cuda) < (_version(cuda)[0], 0):
        return f"this torch is built for CUDA {cuda}: install a newer NVIDIA driver, or an older build: {LEGACY_BUILD}"
    return "unset CUDA_VISIBLE_DEVICES; start a container with the card (docker run --gpus all)"


def _check_device(device: Device, facts: TorchFacts, devices: Sequence[Device]) -> list[Check]:
    memory = f", {device.memory_bytes / 2**30:.1f} GiB" if device.memory_bytes else ""
    driver = f", driver {device.driver}" if device.driver else ""
    name = f"{device.device}: {device.card}{memory}{driver}"
    capability, problem = device.capability, device.problem
    if problem and capability and _lacks_kernels(device, facts["cuda"]):
        text = f"{name}: torch {facts['torch']} has no kernels for sm_{capability.replace('.', '')} ({problem})"
        return [Check("fix", text, _other_build(capability))]
    if problem:
        advice = "update the driver, then restart the machine"
        if problem == facts.get("cudnn_refusal"):
            advice = _without_old_cards(devices)
        return [Check("fix", f"{name}: torch cannot compute on it ({problem})", advice)]
    reasons = dict.fromkeys(why for name, why in device.unsupported.items() if name not in UNPROVED)
    lacks = f" (no others: {'; '.join(reasons)})" if reasons else ""
    return [Check("ok", f"{name}; precisions {', '.join(device.precisions)}{lacks}")]


def _without_old_cards(devices: Sequence[Device]) -> str:
    """Return advice to hide older cards: cuDNN refuses all cards if the oldest visible one is too old for it."""
    cards = [device for device in devices if device.kind == "cuda"]
    newer = [card for card in cards if _version(card.capability) >= OLDEST_OF_CUDA_13]
    if not newer or len(newer) == len(cards):
        return f"install a build with an older cuDNN: {LEGACY_BUILD}"
    names = [f"GPU-{card.uuid}" if card.uuid else card.device.partition(":")[2] for card in newer]
    return f"hide the older card from torch: export CUDA_VISIBLE_DEVICES={','.join(names)}"


def _lacks_kernels(device: Device, cuda: str) -> bool:
    """Return whether torch, built for CUDA version `cuda`, fails on a card because it has no kernels for that card."""
    too_old = bool(cuda) and _version(cuda) >= (13, 0) and _version(device.capability) < OLDEST_OF_CUDA_13
    return too_old or "no kernel image" in device.problem


def _other_build(capability: str) -> str:
    if _version(capability) < (5, 0):
        return "no torch that gpubench runs on (2.6 and later) has kernels for a card as old as this"
    if _version(capability) < OLDEST_OF_CUDA_13:
        return f"install a build for CUDA 12.6: {LEGACY_BUILD}; {LEGACY_CONSTRAINTS}"
    return "install a newer torch: pip install -U torch torchvision"


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor.partition(".")[0] or 0)


def of_card(check: CardCheck) -> list[Check]:
    """Return the checks of a card: settings, other processes, and clocks and links under load."""
    checks = [*_check_settings(check), *_check_other_processes(check), *_check_load(check)]
    return checks or [Check("ok", f"{check.device}: no problems on the card")]


def _check_settings(check: CardCheck) -> Iterator[Check]:
    device, state, commands = check.device, check.state, check.commands
    limit, default = state.power_limit_watts, state.default_power_limit_watts
    if limit and default and limit < default:
        text = f"{device}: power limit {limit:g} W, below the default of {default:g} W"
        yield Check("fix", text, commands.power_limit.format(watts=default))
    elif limit and default and limit > default:
        text = f"{device}: power limit {limit:g} W, above the default of {default:g} W; rows record both limits"
        yield Check("note", text, f"{commands.power_limit.format(watts=default)} restores the default")
    if state.clocks_policy not in {"", "default"}:
        advice = f"{commands.clocks}; remove an offset with the tool that set it (nvidia-settings, a tuning tool)"
        yield Check("fix", f"{device}: clocks are not the card's defaults: {state.clocks_policy}", advice)
    if state.mig == "on":
        text = f"{device}: MIG is on: this is a slice of a card, its power and energy cannot be measured"
        yield Check("note", text, f"{commands.settings} -mig 0 gives the whole card (end all programs on it first)")
    if state.ecc == "off":
        text = f"{device}: ECC is off; a card with ECC on has less memory and may be slower"
        yield Check("note", text, f"compare with rows of ecc=off only, or {commands.settings} -e 1 and restart")
    if state.persistence == "off":
        text = f"{device}: persistence mode is off: each trial may wait seconds for the driver"
        yield Check("note", text, f"{commands.settings} -pm 1")
    if check.leaves_node:
        node = state.numa_node
        text = f"{device}: attached to memory node {node}, but this process may run on CPUs of other nodes"
        yield Check("note", text, f"numactl --cpunodebind={node} --membind={node} gpubench run ...")


def _check_other_processes(check: CardCheck) -> Iterator[Check]:
    device, listing = check.device, check.commands.processes
    compute = len(check.processes.compute) if check.processes else 0
    busy, used = check.idle.utilisation, check.idle.memory_used_bytes or 0.0
    draws = bool(check.processes and check.processes.graphics - check.processes.compute)
    if compute:
        text = f"{device}: {compute} other process(es) compute on the card"
        yield Check("fix", text, f"{listing} lists them; wait until they end, or use another card")
    elif busy is not None and busy > IDLE_UTILISATION:
        text = f"{device}: busy {busy:.0%} of the time before gpubench started"
        yield Check("fix", text, f"end the programs on the card: {listing} lists them (in a container: on the host)")
    elif used > USED_BYTES and not draws and not check.integrated:
        text = f"{device}: programs use {size_text(used)} of its memory"
        advice = f"close windows if it draws a desktop; {listing} lists programs (in a container: on the host)"
        yield Check("note", text, advice)
    if draws:
        text = f"{device}: the card also draws a desktop, which takes memory and time"
        yield Check("note", text, "close its windows, or stop it: sudo systemctl isolate multi-user.target")


def _check_load(check: CardCheck) -> Iterator[Check]:
    device, state = check.device, check.state
    if check.load_failure:
        text = f"{device}: multiplying matrices on it failed: {check.load_failure}"
        yield Check("fix", text, "end programs that fill its memory; restart the machine if it fails again")
    # Between two batches of work a card is idle, with low clocks and a slow link.
    loaded = [reading for reading in check.loaded if "idle" not in (reading.reasons or ())]
    width = max((r.pcie_width or 0 for r in loaded), default=0)
    generation = max((r.pcie_generation or 0 for r in loaded), default=0)
    narrow = width and state.max_pcie_width and width < state.max_pcie_width
    slow = generation and state.max_pcie_generation and generation < state.max_pcie_generation
    if narrow or slow:
        links = ((int(generation), int(width)), (state.max_pcie_generation, state.max_pcie_width))
        under_load, possible = (f"generation {number or '?'} x{lanes or '?'}" for number, lanes in links)
        text = f"{device}: PCIe link under load is {under_load} of a possible {possible}"
        advice = "reseat the card, use the slot next to the CPU, no riser; set the slot's speed to auto in the BIOS"
        yield Check("fix", text, advice)
    reasons = set().union(*(r.reasons or () for r in loaded))
    hot = max((r.temperature_celsius or 0 for r in loaded), default=0)
    if reasons & {"sw_thermal", "hw_thermal"}:
        text = f"{device}: slowed by heat within seconds of load ({hot:.0f} degrees Celsius)"
        yield Check("fix", text, "clean fans and filters, improve the airflow, raise the fan speed; let the card cool")
    elif reasons & SLOWED:
        text = f"{device}: slowed by its hardware under load ({', '.join(sorted(reasons & SLOWED))})"
        yield Check("fix", text, "check the power supply and each power cable of the card")
    clocks = [r.sm_clock_mhz for r in loaded if r.sm_clock_mhz]
    top = state.card_max_sm_clock_mhz
    if clocks and top and not reasons and max(clocks) < FREE_CLOCK * top:
        text = f"{device}: SM clock stays at {max(clocks):.0f} of {top} MHz under load with no reason given: locked"
        yield Check("fix", text, check.commands.clocks)


def of_host(host: Host, *, accelerator: bool) -> list[Check]:
    """Return the checks of the host; `accelerator` is whether trials use one."""
    return [*_check_host(host, accelerator)] or [Check("ok", "no problems on the host")]


def _check_host(host: Host, accelerator: bool) -> Iterator[Check]:
    if host.cpu_governor not in {"", "performance"}:
        text = f"CPU governor is {host.cpu_governor}: CPU clocks change with the load, which delays kernel launches"
        yield Check("fix", text, "sudo cpupower frequency-set -g performance")
    if host.load_average > BUSY_SHARE * host.cpu_count:
        text = f"load average {host.load_average:.1f} on {host.cpu_count} CPUs: other programs are running"
        yield Check("fix", text, "top lists them; end them or wait")
    if accelerator and host.cpu_count < FEW_CPUS:
        text = f"only {host.cpu_count} CPU(s) for an accelerator: it may wait for data (data_stall in the rows)"
        yield Check("note", text, "give the machine or container more CPUs, for example docker run --cpus 8")
    if accelerator and not host.all_processes_visible:
        where = f"a container ({host.container})" if host.container != "none" else "a separate process namespace"
        text = f"this is {where}: other programs' processes on the card cannot be seen, foreign_load is unknown"
        yield Check("note", text, "start it with docker run --pid=host (Kubernetes: hostPID: true)")
    if accelerator and host.in_wsl:
        text = "this is WSL2: a full card uses the host's memory and is many times slower, so trials leave 10% free"
        yield Check("note", text, "close Windows programs that use the GPU; to use all its memory, boot Linux instead")
    shared = host.shared_memory_bytes
    if shared is not None and shared < SMALL_SHARED_MEMORY_BYTES:
        text = f"/dev/shm has only {shared / 2**20:.0f} MiB: loader workers may crash with a bus error"
        yield Check("fix", text, "docker run --shm-size=8g, or --ipc=host")


def of_switches(environ: Mapping[str, str]) -> list[Check]:
    """Return a check for each variable of SWITCHES that is set."""
    set_here = {name: why for name, why in SWITCHES.items() if environ.get(name)}
    return [Check("fix", f"{name}={environ[name]}: {why}", f"unset {name}") for name, why in set_here.items()]


def of_data_and_disk(data: Path | None = None, out: Path = Path("results")) -> Iterator[Check]:
    """Yield the checks of data and disk: whether datasets are complete, and the space for rows and downloads."""
    for name in datasets.DATASETS:
        yield _check_data(name, data)
    for purpose, folder in (("results", out), ("downloads", datasets.cache_folder())):
        existing = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
        free = shutil.disk_usage(existing).free
        text = f"{free / 1e9:,.1f} GB free for {purpose} ({folder})"
        if free < ROOMY_BYTES:
            yield Check("fix", text, f"free at least {ROOMY_BYTES / 1e9:.0f} GB")
        else:
            yield Check("ok", text)


def _check_data(name: str, data: Path | None) -> Check:
    try:
        root = datasets.locate([name], data)
    except UserError as error:
        # A --data folder for one dataset may lack the others.
        return Check("note", f"{name}: {error}", f"use --data with its folder, or gpubench data fetch {name}")
    if root is None:
        return Check("note", f"{name}: not downloaded", f"gpubench data fetch {name}")
    return Check("ok", f"{name}: in {root}")


DRIVER_TRACES = (Path("/dev/nvidia0"), Path("/proc/driver/nvidia/version"))
"""Files that exist where NVIDIA's driver is loaded, whether or not its library works."""


def nvidia_cards() -> list[Card]:
    """Return the cards of the NVIDIA driver, read through NVML, which opens no CUDA context.

    If NVML fails although the driver is loaded, return one `NVIDIA card` whose `problem` has the reason.
    """
    try:
        pynvml.nvmlInit()
        newest = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        return [
            Card(
                name=str(pynvml.nvmlDeviceGetName(handle)),
                driver=driver,
                driver_cuda=f"{newest // 1000}.{newest % 1000 // 10}",
                memory_bytes=_memory_of(handle),
            )
            for handle in map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        ]
    except pynvml.NVMLError as error:
        if any(trace.exists() for trace in DRIVER_TRACES):
            return [Card("NVIDIA card", "", "", f"its driver does not answer (NVML: {error})")]
        return []  # no NVIDIA driver here


def _memory_of(handle: object) -> int | None:
    """Return the memory of a card in bytes; None for an integrated card, which uses the host's memory."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        return None
