"""Device, host and software facts for rows; memory limit of integrated cards. No torch; stores no host or user name."""

import contextlib
import getpass
import hashlib
import os
import platform
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import platformdirs
import psutil

import gpubench
from gpubench.hardware import host
from gpubench.hardware.state import SWITCHES
from gpubench.suite.precisions import LINEAR_ONLY, PRECISIONS, UNPROVED, unsupported

SHARED_SHARE = 0.7
"""Share of an integrated card's memory for a batch search. More can hang the machine (pytorch/pytorch#174358)."""


@dataclass(frozen=True)
class Device:
    """One device that torch may compute on; `unsupported` has the reason for each precision that it cannot use."""

    device: str
    kind: str
    """cuda, cpu, mps or xpu."""
    card: str
    memory_bytes: int | None = None
    capability: str = ""
    driver: str = ""
    device_hash: str = ""
    """Salted hash of its UUID (CUDA_VISIBLE_DEVICES renumbers cards); without a UUID, of machine, name and index."""
    unsupported: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    """Why torch cannot compute on it in any precision, or empty."""
    uuid: str = ""
    """UUID that the driver identifies the card by; never stored in a row."""
    bus: str = ""
    """PCI address: domain:bus:device."""
    integrated: bool = False
    """Whether its memory is the host's (GB10, Thor)."""
    available_bytes: int | None = None
    """Memory that was free before the run, in bytes; None if unknown. For an integrated card, the host's."""
    rocm: bool = False
    """Whether torch computes on it through ROCm (HIP), whose library of convolutions is MIOpen."""

    @property
    def shares_memory(self) -> bool:
        """Whether host and device use the same memory, so that a search must not fill all of it."""
        return self.integrated or self.kind in {"cpu", "mps"}

    @property
    def default_limit_bytes(self) -> int | None:
        """The memory limit of searches without --memory-limit on an integrated card; None on others.

        A share of all memory, not of what is free now, so that a resumed run has the same limit.
        """
        return int(self.memory_bytes * SHARED_SHARE) if self.integrated and self.memory_bytes else None

    @property
    def precisions(self) -> list[str]:
        """The precisions that it supports; on a CPU without those of 8 bits, whose rate means nothing there."""
        without = {*self.unsupported, *(LINEAR_ONLY if self.kind == "cpu" else ())}
        return [precision for precision in PRECISIONS if precision not in without]

    @property
    def mixed(self) -> str:
        """The precision that `mixed` means on this device: bf16 on a CPU, fp16 on everything else."""
        return "bf16" if self.kind == "cpu" else "fp16"


class TorchFacts(TypedDict):
    """Facts about torch and its devices, collected by a child process."""

    torch: str
    cuda: str
    """Version of CUDA or ROCm that torch was built for; empty if built for neither."""
    cudnn: str
    devices: list[dict[str, Any]]
    """Fields of each Device."""
    cudnn_refusal: NotRequired[str]
    """Why cuDNN refuses all cards, or empty."""
    cuda_refusal: NotRequired[str]
    """Why torch sees no NVIDIA card, or empty."""


@dataclass(frozen=True)
class Environment:
    """Host and software facts, the same for every trial of a run."""

    torch: str
    torchvision: str
    fastai: str
    cuda: str
    cudnn: str
    python: str
    gpubench: str
    commit: str
    cpu: str
    cpu_count: int
    os: str
    cpu_governor: str = ""
    numa_nodes: int | None = None
    container: str = ""
    switches: str = ""
    load_average: float | None = None
    host_reference_seconds: float | None = None


def devices_of(facts: TorchFacts) -> list[Device]:
    """Return the devices that the child described."""
    return [Device(**fields) for fields in facts["devices"]]


def environment_of(facts: TorchFacts) -> Environment:
    """Return software and host facts; `facts` has torch's, collected by the child."""
    return Environment(
        torch=facts["torch"], torchvision=_version("torchvision"), fastai=_version("fastai"),
        cuda=facts["cuda"], cudnn=facts["cudnn"], python=platform.python_version(),
        gpubench=gpubench.__version__, commit=_commit(), cpu=cpu_name(), cpu_count=cpu_count(),
        os=f"{platform.system()} {platform.release()}", cpu_governor=host.cpu_governor(),
        numa_nodes=host.numa_nodes(), container=host.container(), switches=switches(os.environ),
        load_average=host.load_average(),
    )  # fmt: skip


def switches(environ: Mapping[str, str]) -> str:
    """Return the variables in SWITCHES that are set, as `NAME=value`, joined by spaces."""
    return " ".join(f"{name}={environ[name]}" for name in SWITCHES if environ.get(name))


def cpu_facts() -> TorchFacts:
    """Return facts with the CPU as the only device and no torch, for suites that do not use torch."""
    return {"torch": "", "cuda": "", "cudnn": "", "devices": [asdict(cpu_device())]}


def cpu_device() -> Device:
    """Return the CPU."""
    return Device(
        "cpu",
        "cpu",
        cpu_name(),
        int(psutil.virtual_memory().total),
        device_hash=salted_hash(machine_id()),
        unsupported=unsupported({"tf32": "a CPU has no TF32", **_cpu_bf16()})
        | {name: f"torch has no matrix products in {name} on a CPU" for name in UNPROVED},
    )


def cpu_count() -> int:
    """Return the number of logical CPUs for this process: its affinity, or a smaller limit of its container or job."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cpus()
    return bound if quota is None else max(1, min(bound, round(quota)))


def cgroup_cpus(root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")) -> float | None:
    """Return the CPU limit of this process's control groups (version 2), in CPUs, or None without a limit."""
    limits = _limits("cpu.max", root, groups)
    return min((int(quota) / int(period) for quota, period in limits if int(period)), default=None)


def memory_for_files(root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")) -> int:
    """Return how many bytes of files the page cache can keep: available memory, or a lower limit of control groups."""
    limits = [int(limit) for (limit,) in _limits("memory.max", root, groups)]
    return min([int(psutil.virtual_memory().available), *limits])


def _limits(name: str, root: Path, groups: Path) -> list[list[str]]:
    """Return the words of file `name` in the folders of this process's control group and its parents, without `max`."""
    with contextlib.suppress(OSError):
        # In a container the path is often that of the host; `root` itself is then the folder of the group.
        group = root / groups.read_text().partition("0::/")[2].partition("\n")[0]
        files = [folder / name for folder in (group, *group.parents)]
        limits = [file.read_text().split() for file in files if file.is_file()]
        return [words for words in limits if words and words[0] != "max"]
    return []


def cpu_name() -> str:
    """Return the name of the CPU's model."""
    if sys.platform == "darwin":
        return _output(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.machine()
    name = _cpuinfo().get("model name", "")
    return name if name and name != "unknown" else f"{platform.machine()} CPU"


def salted_hash(identity: str) -> str:
    """Return a hash of `identity` (12 hex digits) with this account's secret salt; empty if no salt can be stored."""
    folder = Path(platformdirs.user_data_dir("gpubench"))
    salt_file = folder / "salt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not salt_file.exists() or not salt_file.stat().st_size:  # empty: the disk was full
            salt_file.write_text(secrets.token_hex(16))
        salt = salt_file.read_text()
    except OSError:
        return ""  # without a salt the specimen is unknown, and its rows are pooled with no others
    return hashlib.sha256(f"{salt} {identity}".encode()).hexdigest()[:12]


def without_names(text: str) -> str:
    """Return `text` with this account's home folder, user and host name replaced: rows are published."""
    user = home = ""
    with contextlib.suppress(RuntimeError):
        home = str(Path.home())
    with contextlib.suppress(KeyError, OSError):  # a container may run as a number that has no name
        user = getpass.getuser()
    if len(home) > 1:
        text = text.replace(home, "~")
    node = platform.node()
    for name, stand_in in ((user, "USER"), (node, "HOST"), (node.partition(".")[0], "HOST")):
        if len(name) > 2 and name not in {"root", "localhost"}:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", stand_in, text)
    return text


def _cpu_bf16() -> dict[str, str]:
    """Return why bf16 is unsupported on this CPU, or an empty dict. Emulated bf16 is slower than fp32."""
    if sys.platform == "darwin":
        real = _output(["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]) == "1"
    else:
        info = _cpuinfo()
        flags = f" {info.get('flags', '')} {info.get('Features', '')} "
        real = any(f" {flag} " in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    return {} if real else {"bf16": "this CPU has no bf16 arithmetic (AVX512-bf16, AMX or Arm's)"}


def _cpuinfo() -> dict[str, str]:
    text = host.text_of(Path("/proc/cpuinfo"))
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def machine_id() -> str:
    """Return this machine's id; only its salted hash is stored."""
    files = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
    return next(filter(None, map(host.text_of, files)), platform.node())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _commit() -> str:
    """Return the short commit of the checkout that this package runs from, with + if edited; empty for a wheel."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    commit = _output(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"])
    edited = _output(["git", "-C", str(root), "status", "--porcelain", "gpubench", "suites"])
    return f"{commit}+" if commit and edited else commit


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
