"""Where a row comes from: device, host, software as plain fields. Never imports torch, keeps no host or user name."""

import contextlib
import getpass
import hashlib
import os
import platform
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NotRequired, TypedDict

import platformdirs

import gpubench
from gpubench.hardware import host
from gpubench.hardware.state import SWITCHES
from gpubench.suite.precisions import unsupported


@dataclass(frozen=True)
class Device:
    """One device that torch could compute on; `unsupported` says per precision why it cannot."""

    device: str
    kind: str
    """cuda, cpu, mps or xpu."""
    card: str
    memory_bytes: int | None
    capability: str
    driver: str
    device_hash: str
    unsupported: Mapping[str, str]
    problem: str = ""
    """Why torch cannot compute on it at all, or empty."""
    uuid: str = ""
    """The maker's own, by which the driver is asked; it never gets into a row."""
    bus: str = ""
    """PCI address: domain:bus:device."""
    integrated: bool = False
    """Whether its memory is the host's (GB10, Thor)."""

    @property
    def shares_memory(self) -> bool:
        """Whether what it takes is missing elsewhere, so that nothing may aim at all of it."""
        return self.integrated or self.kind in {"cpu", "mps"}

    @property
    def mixed(self) -> str:
        """What `mixed` means here: bf16 on a CPU, fp16 on everything else."""
        return "bf16" if self.kind == "cpu" else "fp16"


class DeviceFacts(TypedDict):
    """A Device as a child process describes it, with what tells it from others of its name, before that is hashed."""

    device: str
    kind: str
    card: str
    memory_bytes: int | None
    capability: str
    driver: str
    identity: str
    unsupported: Mapping[str, str]
    problem: NotRequired[str]
    uuid: NotRequired[str]
    bus: NotRequired[str]
    integrated: NotRequired[bool]


class TorchFacts(TypedDict):
    """What a child process says of torch and its devices."""

    torch: str
    cuda: str
    """The version of CUDA or ROCm that it was built for; empty for none."""
    cudnn: str
    arch_list: Sequence[str]
    devices: list[DeviceFacts]
    cudnn_refusal: NotRequired[str]
    """Why cuDNN computes on no card, or empty."""
    cuda_refusal: NotRequired[str]
    """Why torch sees no NVIDIA card, or empty."""


@dataclass(frozen=True)
class Environment:
    """Host and software, the same for every trial of a session."""

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
    """The devices in what the child described, their identities salted and hashed."""
    return [
        Device(
            device=each["device"],
            kind=each["kind"],
            card=each["card"],
            memory_bytes=each["memory_bytes"],
            capability=each["capability"],
            driver=each["driver"],
            device_hash=salted_hash(each["identity"]),  # not the ordinal: CUDA_VISIBLE_DEVICES renumbers cards
            unsupported=each["unsupported"],
            problem=each.get("problem", ""),
            uuid=each.get("uuid", ""),
            bus=each.get("bus", ""),
            integrated=each.get("integrated", False),
        )
        for each in facts["devices"]
    ]


def environment_of(facts: TorchFacts) -> Environment:
    """Software and host facts; `facts` is what the child found of torch."""
    return Environment(
        torch=facts["torch"],
        torchvision=_version("torchvision"),
        fastai=_version("fastai"),
        cuda=facts["cuda"],
        cudnn=facts["cudnn"],
        python=platform.python_version(),
        gpubench=gpubench.__version__,
        commit=_commit(),
        cpu=cpu_name(),
        cpu_count=cpu_count(),
        os=f"{platform.system()} {platform.release()}",
        cpu_governor=host.cpu_governor(),
        numa_nodes=host.numa_nodes(),
        container=host.container(),
        switches=switches(os.environ),
        load_average=host.load_average(),
    )


def switches(environ: Mapping[str, str]) -> str:
    """Those of SWITCHES that are set, as `NAME=value`."""
    return " ".join(f"{name}={environ[name]}" for name in SWITCHES if environ.get(name))


def cpu_facts() -> TorchFacts:
    """The CPU as a device, and no torch: for suites that use none."""
    return {
        "torch": "",
        "cuda": "",
        "cudnn": "",
        "arch_list": [],
        "devices": [cpu_device()],
    }


def cpu_device() -> DeviceFacts:
    """The CPU as one of the described devices."""
    return {
        "device": "cpu",
        "kind": "cpu",
        "card": cpu_name(),
        "memory_bytes": _host_memory(),
        "capability": "",
        "driver": "",
        "identity": _machine_id(),
        "unsupported": unsupported({"tf32": "a CPU has no TF32", **_cpu_bf16()}),
    }


def cpu_count() -> int:
    """Logical CPUs this process may use: those it is bound to, or fewer where a container or job may use less time."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cpus()
    return bound if quota is None else max(1, min(bound, round(quota)))


def cgroup_cpus(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float | None:
    """CPUs' worth of time that Linux gives the groups this process is in; None where there is no such limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        tree = root if not controllers else root / controllers
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Inside a container the path is often the host's; what is mounted is the group's own folder then.
        for group in (tree / path.lstrip("/"), *(tree / path.lstrip("/")).parents):
            found += _quota(group)
            if group == tree:
                break
    return min(found, default=None)


def _quota(group: Path) -> list[float]:
    """CPUs that one cgroup gives, by version 2's file or version 1's, if it limits them."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{part}_us").read_text().strip() for part in ("quota", "period"))
        return [int(quota) / int(period)] if quota not in {"max", "-1"} else []
    except (OSError, ValueError, ZeroDivisionError):
        return []


def cpu_name() -> str:
    """The CPU's model, as its maker calls it."""
    if sys.platform == "darwin":
        return _output(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.machine()
    name = _cpuinfo().get("model name", "")
    return name if name and name != "unknown" else f"{platform.machine()} CPU"


def salted_hash(identity: str) -> str:
    """Twelve hex digits that stay the same on this account and say nothing to anyone else."""
    folder = Path(platformdirs.user_data_dir("gpubench"))
    salt_file = folder / "salt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not salt_file.exists():
            salt_file.write_text(secrets.token_hex(16))
        salt = salt_file.read_text()
    except OSError:
        return ""  # no place for a salt: an unknown specimen, which nothing is pooled with
    return hashlib.sha256(f"{salt} {identity}".encode()).hexdigest()[:12]


def without_names(text: str) -> str:
    """`text` without this account's folder, user and host: a row is made to be passed on."""
    user = home = ""
    with contextlib.suppress(RuntimeError):
        home = str(Path.home())
    with contextlib.suppress(KeyError, OSError):  # a container may run as a number that has no name
        user = getpass.getuser()
    if len(home) > 1:
        text = text.replace(home, "~")
    for name, stand_in in ((user, "USER"), (platform.node(), "HOST")):
        if len(name) > 2 and name not in {"root", "localhost"}:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", stand_in, text)
    return text


def _cpu_bf16() -> dict[str, str]:
    """Empty where the CPU multiplies bf16 itself; emulated bf16 is slower than fp32 and proves nothing."""
    if sys.platform == "darwin":
        real = _output(["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]) == "1"
    else:
        info = _cpuinfo()
        flags = f" {info.get('flags', '')} {info.get('Features', '')} "
        real = any(f" {flag} " in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    return {} if real else {"bf16": "this CPU has no bf16 arithmetic (AVX512-bf16, AMX or Arm's)"}


def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _machine_id() -> str:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            return Path(path).read_text().strip()
        except OSError:
            continue
    return platform.node()  # hashed with the salt before it goes anywhere


def _host_memory() -> int | None:
    import psutil

    return int(psutil.virtual_memory().total)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _commit() -> str:
    """Short commit of the checkout this package runs from, with + where it was edited; empty for a wheel."""
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
