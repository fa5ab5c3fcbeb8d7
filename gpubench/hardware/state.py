"""The state of card and host (power, clocks, load, other processes) as facts, and `doctor`'s checks of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

SLOWED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"})
"""Reasons for a low clock that are faults. A power cap is none: it is how a card under load is meant to run."""

SWITCHES = {
    "CUDA_LAUNCH_BLOCKING": "every launch waits for its kernel",
    "PYTORCH_CUDA_ALLOC_CONF": "torch's allocator is not as it comes",
    "PYTORCH_ALLOC_CONF": "torch's allocator is not as it comes",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor asks the driver for its memory",
    "NVIDIA_TF32_OVERRIDE": "TF32 is switched behind torch's back",
}
"""Environment variables that change figures without a word, and how."""

IDLE_UTILISATION = 0.05
"""A card that nobody uses is less busy than this."""

FREE_CLOCK = 0.8
"""A loaded card below this share of its highest SM clock, with no reason named, is held there by a lock."""

BUSY_SHARE = 0.25
"""Load per CPU above which other programs disturb."""

FEW_CPUS = 4
"""Fewer than this cannot feed a card and run Python beside it."""

ROOMY_SWAP_BYTES = 500_000_000
"""Swapped-out pages of sleeping programs are normal up to about here."""

SMALL_SHARED_MEMORY_BYTES = 1 << 30
"""Loader workers hand batches over in /dev/shm; a container's default of 64 MiB ends in a bus error."""


@dataclass(frozen=True)
class Check:
    """One line of `gpubench doctor`: `ok`, a `note`, or something to `fix`, with advice."""

    level: Literal["ok", "note", "fix"]
    text: str
    advice: str = ""


@dataclass(frozen=True)
class CardState:
    """How a card is set up; None and empty where it does not say. The fields are columns of the row."""

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
    """What a card's maker gives to put it right; empty where there is no such command."""

    settings: str = ""
    """The beginning of those that switch something."""
    power_limit: str = ""
    """With a place for `watts`."""
    clocks: str = ""
    """Gives the clocks back to the card."""
    processes: str = ""
    """Lists who is on it."""


@dataclass(frozen=True)
class Reading:
    """What a card says at one moment; None where it does not say."""

    power_watts: float | None = None
    energy_joules: float | None = None
    """A counter that starts anywhere."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    utilisation: float | None = None
    """Share of the last moments in which anything ran, 0 to 1."""
    memory_used_bytes: float | None = None
    """By everyone, reserved memory included."""
    pcie_generation: float | None = None
    pcie_width: float | None = None
    reasons: frozenset[str] | None = None
    """Why the clock is not higher: names as in the row's `throttle`."""


@dataclass(frozen=True)
class Processes:
    """Ids of the processes that have a context on a card, as the driver counts them."""

    compute: frozenset[int] = frozenset()
    graphics: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CardCheck:
    """One card as the doctor found it."""

    device: str
    commands: Commands
    state: CardState
    idle: Reading
    """Before anything of ours ran on it."""
    processes: Processes | None
    """Before anything of ours ran on it; None where the driver does not tell."""
    loaded: Sequence[Reading] = field(default=())
    """While matrices were multiplied on it."""
    load_failure: str = ""
    """Why they were not."""
    strays: bool = False
    """Whether this process may run on CPUs of another memory node than the card's."""


@dataclass(frozen=True)
class Host:
    """The host as the doctor found it."""

    cpu_count: int
    cpu_governor: str
    load_average: float
    """Processes that wanted a CPU in the last minute, before we began."""
    container: str
    """docker, podman, kubernetes, another's name, or `none`."""
    all_processes_visible: bool
    """Whether process ids here are the kernel's own, as the driver reports them."""
    swap_used_bytes: int
    shared_memory_bytes: int | None
    cpu_energy_hidden: bool = False
    """Whether the CPU counts its energy, but not for this user."""


def of_card(check: CardCheck) -> list[Check]:
    """What to fix on a card, and what to know about it."""
    found = [*_of_settings(check), *_of_company(check), *_under_load(check)]
    return found or [Check("ok", f"{check.device}: nothing on the card is in the way")]


def _of_settings(check: CardCheck) -> list[Check]:
    device, state, commands = check.device, check.state, check.commands
    found = []
    limit, default = state.power_limit_watts, state.default_power_limit_watts
    if limit and default and limit < default:
        text = f"{device}: power limit {limit:.0f} W, below the default of {default:.0f} W"
        found.append(Check("fix", text, commands.power_limit.format(watts=default)))
    elif limit and default and limit > default:
        text = f"{device}: power limit {limit:.0f} W, above the default of {default:.0f} W; rows say so"
        found.append(Check("note", text, f"{commands.power_limit.format(watts=default)} makes it a stock card"))
    if state.clocks_policy not in {"", "default"}:
        advice = f"{commands.clocks}; an offset is taken back where it was set (nvidia-settings, a tuning tool)"
        found.append(Check("fix", f"{device}: clocks are not the card's own: {state.clocks_policy}", advice))
    if state.mig == "on":
        text = f"{device}: MIG is on: this is a slice of a card, its power and energy cannot be told"
        found.append(
            Check("note", text, f"{commands.settings} -mig 0 gives the whole card (nothing may run on it then)")
        )
    if state.ecc == "off":
        text = f"{device}: ECC is off; a card with ECC on has less memory and may be slower"
        found.append(Check("note", text, f"compare with rows of ecc=off only, or {commands.settings} -e 1 and restart"))
    if state.persistence == "off":
        text = f"{device}: persistence mode is off: each trial may wait seconds for the driver"
        found.append(Check("note", text, f"{commands.settings} -pm 1"))
    if check.strays:
        node = state.numa_node
        text = f"{device}: attached to memory node {node}, but this process may run on the CPUs of others"
        found.append(Check("note", text, f"numactl --cpunodebind={node} --membind={node} gpubench run ..."))
    return found


def _of_company(check: CardCheck) -> list[Check]:
    device, found = check.device, []
    compute = len(check.processes.compute) if check.processes else 0
    busy = check.idle.utilisation
    if compute:
        text = f"{device}: {compute} other process(es) compute on the card"
        found.append(
            Check("fix", text, f"{check.commands.processes} lists them; wait for their end, or take another card")
        )
    elif busy is not None and busy > IDLE_UTILISATION:
        text = f"{device}: busy {busy:.0%} of the time before we began"
        advice = f"end what uses the card: {check.commands.processes} lists it, on the host where this is a container"
        found.append(Check("fix", text, advice))
    if check.processes and check.processes.graphics - check.processes.compute:
        text = f"{device}: the card also draws a desktop, which takes memory and moments of time"
        found.append(Check("note", text, "close its windows, or stop it: sudo systemctl isolate multi-user.target"))
    return found


def _under_load(check: CardCheck) -> list[Check]:
    device, state, found = check.device, check.state, []
    if check.load_failure:
        text = f"{device}: multiplying matrices on it failed: {check.load_failure}"
        found.append(Check("fix", text, "end what fills its memory, and restart the machine if it goes on"))
    # Between two batches of work a card is at rest, with the clocks and the link of one.
    loaded = [reading for reading in check.loaded if "idle" not in (reading.reasons or ())]
    width = max((r.pcie_width or 0 for r in loaded), default=0)
    generation = max((r.pcie_generation or 0 for r in loaded), default=0)
    narrow = width and state.max_pcie_width and width < state.max_pcie_width
    slow = generation and state.max_pcie_generation and generation < state.max_pcie_generation
    if narrow or slow:
        text = (
            f"{device}: PCIe link under load is generation {generation:.0f} x{width:.0f}"
            f" of generation {state.max_pcie_generation} x{state.max_pcie_width}"
        )
        advice = "seat the card anew, use the slot next to the CPU, no riser; in the BIOS set the slot's speed to auto"
        found.append(Check("fix", text, advice))
    reasons = set().union(*(r.reasons or () for r in loaded))
    hot = max((r.temperature_celsius or 0 for r in loaded), default=0)
    if reasons & {"sw_thermal", "hw_thermal"}:
        text = f"{device}: slowed by heat within seconds of load ({hot:.0f} degrees Celsius)"
        found.append(Check("fix", text, "clean fans and filters, give it air, raise the fan speed; let it cool"))
    elif reasons & SLOWED:
        text = f"{device}: slowed by its hardware under load ({', '.join(sorted(reasons & SLOWED))})"
        found.append(Check("fix", text, "check the power supply and each power cable of the card"))
    clocks = [r.sm_clock_mhz for r in loaded if r.sm_clock_mhz]
    top = state.card_max_sm_clock_mhz
    if clocks and top and not reasons and max(clocks) < FREE_CLOCK * top:
        text = f"{device}: SM clock stays at {max(clocks):.0f} of {top} MHz under load with no reason given: locked"
        found.append(Check("fix", text, check.commands.clocks))
    return found


def of_host(host: Host, *, accelerator: bool) -> list[Check]:
    """What to fix on the host; `accelerator` says whether it has to feed one."""
    found = []
    if host.cpu_governor not in {"", "performance"}:
        text = f"CPU governor is {host.cpu_governor}: clocks follow the load, and launches wait for them"
        found.append(Check("fix", text, "sudo cpupower frequency-set -g performance"))
    if host.load_average > BUSY_SHARE * host.cpu_count:
        text = f"load average {host.load_average:.1f} on {host.cpu_count} CPUs: other programs compute"
        found.append(Check("fix", text, "see which with top; end them or wait"))
    if accelerator and host.cpu_count < FEW_CPUS:
        text = f"{host.cpu_count} CPU(s) to feed an accelerator: it may wait for data (data_stall in the rows)"
        found.append(Check("note", text, "give the machine or container more, for example docker run --cpus 8"))
    if host.swap_used_bytes > ROOMY_SWAP_BYTES:
        text = f"{host.swap_used_bytes / 1e9:.1f} GB are swapped out: memory is or was short"
        found.append(Check("note", text, "end what fills the memory, then sudo swapoff -a && sudo swapon -a"))
    if accelerator and not host.all_processes_visible:
        where = f"a container ({host.container})" if host.container != "none" else "a process namespace of its own"
        text = f"this is {where}: other programs' processes on the card cannot be seen, foreign_load is unknown"
        found.append(Check("note", text, "start it with docker run --pid=host (Kubernetes: hostPID: true)"))
    if host.cpu_energy_hidden:
        text = "the CPU counts its energy, but only for the superuser: cpu_energy_joules stays empty"
        found.append(Check("note", text, "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"))
    shared = host.shared_memory_bytes
    if shared is not None and shared < SMALL_SHARED_MEMORY_BYTES:
        text = f"/dev/shm holds {shared / 2**20:.0f} MiB: loader workers may die of a bus error"
        found.append(Check("fix", text, "docker run --shm-size=8g, or --ipc=host"))
    return found or [Check("ok", "nothing on the host is in the way")]


def of_switches(set_here: str) -> list[Check]:
    """What environment variables change; `set_here` has them as `NAME=value`, with a space between."""
    return [
        Check("fix", f"{each}: {SWITCHES[each.partition('=')[0]]}", f"unset {each.partition('=')[0]}")
        for each in set_here.split()
        if each.partition("=")[0] in SWITCHES
    ]
