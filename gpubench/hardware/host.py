"""Reads facts of the host: governor, container, load, energy counters, CPU time. Stores no host or user name."""

import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import psutil

from gpubench.hardware.state import Host

FIRST_NAMESPACE = "pid:[4026531836]"
"""Linux's first process namespace (PROC_PID_INIT_INO); a container without --pid=host has another."""


def host(cpu_count: int) -> Host:
    """Return the state of the host now."""
    shm = Path("/dev/shm")
    return Host(
        cpu_count=cpu_count,
        cpu_governor=cpu_governor(),
        load_average=load_average(),
        container=container(),
        all_processes_visible=all_processes_visible(),
        shared_memory_bytes=shutil.disk_usage(shm).total if shm.exists() else None,
        in_wsl=in_wsl(),
    )


def cpu_governor(root: Path = Path("/sys/devices/system/cpu")) -> str:
    """Return the frequency governors of the CPUs, joined by +; empty if there are none (a virtual machine)."""
    governors = set(map(text_of, root.glob("cpu[0-9]*/cpufreq/scaling_governor")))
    return "+".join(sorted(governors - {""}))


def numa_nodes(root: Path = Path("/sys/devices/system/node")) -> int | None:
    """Return the number of the host's memory nodes, or None if unknown."""
    return len(list(root.glob("node[0-9]*"))) or None


def numa_node(bus: str, root: Path = Path("/sys/bus/pci/devices")) -> int | None:
    """Return the memory node that the card at this PCI address is attached to, or None if unknown."""
    text = text_of(root / f"{bus}.0" / "numa_node") if bus else ""
    return int(text) if text.isdigit() else None  # -1: the host has no memory nodes


def may_leave_node(node: int, root: Path = Path("/sys/devices/system/node")) -> bool:
    """Return whether this process may run on CPUs outside memory node `node`."""
    ranges = [part.partition("-") for part in text_of(root / f"node{node}" / "cpulist").split(",") if part]
    cpus = {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}
    return bool(cpus) and hasattr(os, "sched_getaffinity") and bool(os.sched_getaffinity(0) - cpus)


def load_average() -> float:
    """Return the load average of the last minute: processes that used or waited for a CPU."""
    return os.getloadavg()[0]


SHARED_CPU = 0.1
"""The CPUs are `shared` if other programs take more than this share; background work of the system takes less."""
LEAST_SHARE = 0.05
"""Least share of a CPU that a thread of this process is assumed to get."""


class CpuLoad:
    """Measures the share of CPU time that other programs took since its creation.

    Finished child processes count as this process. A share of 1 is the whole time of all visible CPUs.
    """

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def others(self) -> float:
        """Return the share of other programs, 0 to 1, including time that a hypervisor gave to other machines."""
        available = (time.monotonic() - self._began) * (psutil.cpu_count() or 1)
        taken = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        return max(0.0, taken / available) if available > 0 else 0.0

    def slowdown(self) -> float:
        """Return how many times as long work on all CPUs takes because of other programs.

        Assumes that one thread of this process has worked without a pause since the creation.
        """
        own_share = (_own_seconds() - self._own) / (time.monotonic() - self._began)
        # On two CPUs, work takes 0.5 + 1 times as long beside one thread of others, and 0.67 + 1.5 beside two.
        return self.others() + 1 / min(1.0, max(LEAST_SHARE, own_share))


def cpu_load(cpu_count: int) -> CpuLoad | None:
    """Return a measurement of the load from now on, or None if only some CPUs (`cpu_count`) are usable.

    In that case the load may be on CPUs that this process does not use.
    """
    return CpuLoad() if cpu_count == os.cpu_count() else None


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    # Guests' time is part of the user's.
    idle = ("idle", "iowait", "guest", "guest_nice")
    return float(sum(seconds for name, seconds in times._asdict().items() if name not in idle))


def _own_seconds() -> float:
    times = os.times()  # psutil lacks the time of children on macOS
    return times.user + times.system + times.children_user + times.children_system


def container(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> str:
    """Return the kind of container that this process runs in, or `none`."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in environ or "SINGULARITY_CONTAINER" in environ:
        return "apptainer"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    return environ.get("container") or "none"  # systemd-nspawn, lxc


WSL_MARGIN = 0.1
"""Share of a card's memory that trials leave free under WSL2. Chosen, not measured."""


def in_wsl() -> bool:
    """Return whether this is WSL2, which uses the host's memory when the card's memory is almost full.

    Training is then many times slower, without an error (microsoft/WSL#11050, #41176).
    """
    return "microsoft" in platform.release().lower()


def all_processes_visible(link: Path = Path("/proc/self/ns/pid")) -> bool:
    """Return whether process ids match the driver's. In a container with its own PID namespace they do not."""
    try:
        return str(link.readlink()) == FIRST_NAMESPACE
    except OSError:
        return False


def cpu_energy(root: Path = Path("/sys/class/powercap")) -> Callable[[], float | None]:
    """Return a function that reads RAPL's energy counter of all CPU packages, in joules.

    The function returns None if the counter is not readable; on most systems only root may read it.
    """
    # intel-rapl:0 is a package (on AMD too), intel-rapl:0:0 a part of it.
    zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if text_of(zone / "name").startswith("package")]
    ranges = {zone: int(text_of(zone / "max_energy_range_uj") or 0) for zone in zones}
    last: dict[Path, int] = {}
    overflows: dict[Path, int] = dict.fromkeys(zones, 0)

    def read() -> float | None:
        for zone in zones:
            text = text_of(zone / "energy_uj")
            if not text:
                return None
            count = int(text)
            if count < last.get(zone, 0):
                overflows[zone] += 1  # the counter overflows after some minutes of full load
            last[zone] = count
        return sum(last[zone] + overflows[zone] * ranges[zone] for zone in zones) / 1e6 if zones else None

    return read


def reference_seconds() -> float:
    """Return the median time of five runs of a fixed task, a Python loop and a copy of 64 MiB, in seconds.

    In launch-bound work, identical cards on different hosts differ by up to 13% (published rates of 39 hosts).
    """
    block = bytes(range(256)) * (1 << 18)

    def once() -> float:
        started = time.perf_counter()
        total = 0
        for number in range(1_000_000):
            total += number & 7
        bytearray(block)
        return time.perf_counter() - started

    return median(once() for _ in range(5))


def text_of(file: Path) -> str:
    """Return the text of a file without white space around it; empty if it cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
