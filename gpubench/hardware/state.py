"""The state of card and host (power, clocks, load, other processes) as data, and `doctor`'s checks of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

SLOWED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"})
"""Reasons for a low clock that are faults. A power cap is normal under load."""

SWITCHES = {
    "CUDA_LAUNCH_BLOCKING": "every launch waits for its kernel",
    "PYTORCH_CUDA_ALLOC_CONF": "torch's allocator has other settings than the default",
    "PYTORCH_ALLOC_CONF": "torch's allocator has other settings than the default",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor is allocated by the driver, which is slow",
    "NVIDIA_TF32_OVERRIDE": "it overrides torch's TF32 setting",
}
"""Environment variables that change results, and how."""

IDLE_UTILISATION = 0.05
"""An unused card has a lower utilisation than this share."""

FREE_CLOCK = 0.8
"""A loaded card below this share of its highest SM clock, without a reported reason, has a clock lock."""

BUSY_SHARE = 0.25
"""Load per CPU above which other programs affect results."""

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
class CardState:
    """Settings of a card; None or empty if unknown. The fields are columns of the row."""

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
    """Commands of a card's maker that change settings; empty if there is none."""

    settings: str = ""
    """Beginning of the commands that switch a setting."""
    power_limit: str = ""
    """Sets the power limit; a format string with `watts`."""
    clocks: str = ""
    """Resets the clocks."""
    processes: str = ""
    """Lists the processes on the card."""


@dataclass(frozen=True)
class Reading:
    """A card's sensors at one moment; None if unknown."""

    power_watts: float | None = None
    energy_joules: float | None = None
    """A counter: only differences are meaningful."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    utilisation: float | None = None
    """Share of the last moments in which a kernel ran, 0 to 1."""
    memory_used_bytes: float | None = None
    """Memory used by all processes, reserved memory included."""
    pcie_generation: float | None = None
    pcie_width: float | None = None
    reasons: frozenset[str] | None = None
    """Why the clock is not higher: names as in the row's `throttle`."""


@dataclass(frozen=True)
class Processes:
    """Ids of the processes with a context on a card, as the driver reports them."""

    compute: frozenset[int] = frozenset()
    graphics: frozenset[int] = frozenset()


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
    strays: bool = False
    """Whether this process may run on CPUs outside the card's memory node."""


@dataclass(frozen=True)
class Host:
    """The doctor's measurements of the host."""

    cpu_count: int
    cpu_governor: str
    load_average: float
    """Load average of the last minute, before gpubench started."""
    container: str
    """docker, podman, kubernetes, another name, or `none`."""
    all_processes_visible: bool
    """Whether process ids here are the kernel's, which the driver reports too."""
    shared_memory_bytes: int | None
    in_wsl: bool = False
    """Whether it is WSL2, where a full card uses the host's memory."""


def library_named(module: str, start: str = "") -> ModuleType | None:
    """Return a maker's library after calling its function `start`; None without the package, library or driver."""
    try:
        library = import_module(module)
        if start:
            getattr(library, start)()
    except Exception:  # whatever is missing: the trial runs without telemetry
        return None
    return library


def ask(library: ModuleType, name: str, *arguments: object) -> Any:
    """Return the answer of a function of a maker's library; None for an error, or if this release has no such one."""
    try:
        return getattr(library, name)(*arguments)
    except Exception:  # of the library or of its binding
        return None


def of_card(check: CardCheck) -> list[Check]:
    """Return the checks of a card: settings, other processes, and clocks and links under load."""
    checks = [*_check_settings(check), *_check_other_processes(check), *_check_load(check)]
    return checks or [Check("ok", f"{check.device}: no problems on the card")]


def _check_settings(check: CardCheck) -> Iterator[Check]:
    device, state, commands = check.device, check.state, check.commands
    limit, default = state.power_limit_watts, state.default_power_limit_watts
    if limit and default and limit < default:
        text = f"{device}: power limit {limit:.0f} W, below the default of {default:.0f} W"
        yield Check("fix", text, commands.power_limit.format(watts=default))
    elif limit and default and limit > default:
        text = f"{device}: power limit {limit:.0f} W, above the default of {default:.0f} W; rows have both"
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
    if check.strays:
        node = state.numa_node
        text = f"{device}: attached to memory node {node}, but this process may run on the CPUs of others"
        yield Check("note", text, f"numactl --cpunodebind={node} --membind={node} gpubench run ...")


def _check_other_processes(check: CardCheck) -> Iterator[Check]:
    device, listing = check.device, check.commands.processes
    compute = len(check.processes.compute) if check.processes else 0
    busy = check.idle.utilisation
    if compute:
        text = f"{device}: {compute} other process(es) compute on the card"
        yield Check("fix", text, f"{listing} lists them; wait until they end, or use another card")
    elif busy is not None and busy > IDLE_UTILISATION:
        text = f"{device}: busy {busy:.0%} of the time before gpubench started"
        yield Check("fix", text, f"end the programs on the card: {listing} lists them (in a container: on the host)")
    if check.processes and check.processes.graphics - check.processes.compute:
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
        text = (
            f"{device}: PCIe link under load is generation {generation:.0f} x{width:.0f}"
            f" of generation {state.max_pcie_generation} x{state.max_pcie_width}"
        )
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
    """Return the checks of the host; `accelerator`: whether trials use an accelerator."""
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
        text = "this is WSL2: a full card uses the host's memory, many times slower, so trials leave a tenth of it free"
        yield Check("note", text, "close programs of Windows that draw; for all of the card, start Linux itself")
    shared = host.shared_memory_bytes
    if shared is not None and shared < SMALL_SHARED_MEMORY_BYTES:
        text = f"/dev/shm has only {shared / 2**20:.0f} MiB: loader workers may crash with a bus error"
        yield Check("fix", text, "docker run --shm-size=8g, or --ipc=host")


def of_switches(set_here: str) -> list[Check]:
    """Return a check for each variable of SWITCHES in `set_here` (`NAME=value`, separated by spaces)."""
    return [
        Check("fix", f"{setting}: {SWITCHES[setting.partition('=')[0]]}", f"unset {setting.partition('=')[0]}")
        for setting in set_here.split()
        if setting.partition("=")[0] in SWITCHES
    ]
