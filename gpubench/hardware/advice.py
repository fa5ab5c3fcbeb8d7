"""`doctor`'s checks of torch, driver, data, disk and Apex, with advice. A child process collects torch's facts."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pynvml

from gpubench.data import datasets
from gpubench.errors import UserError
from gpubench.hardware.apex import why_no_apex
from gpubench.hardware.environment import Device, TorchFacts, devices_of
from gpubench.hardware.state import Check
from gpubench.suite.precisions import PRECISIONS, UNPROVED, means_something

ROOMY_BYTES = 1_000_000_000
"""Enough free space for a dataset's archive, its files, and the rows of many runs, in bytes."""

OLDEST_OF_CUDA_13 = (7, 5)
"""CUDA 13 builds kernels from Turing on (pytorch/pytorch#190385)."""

LEGACY_BUILD = "pip install 'torch>=2.6,<2.15' torchvision --index-url https://download.pytorch.org/whl/cu126"
"""CUDA 12.6 builds are the last with kernels for Maxwell, Pascal and Volta; 2.14 is the last release that has
them (pytorch/pytorch#157517, #172352, #190385)."""

LEGACY_CONSTRAINTS = "from then on give constraints-pascal.txt where README.md has constraints.txt"
"""constraints.txt would install the newer torch again."""


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
    unsupported = {name: why for name, why in device.unsupported.items() if name not in UNPROVED}
    can = ", ".join(p for p in PRECISIONS if p not in unsupported and means_something(p, device.kind))
    checks = [Check("ok", f"{name}; precisions {can}")]
    advice = "nothing to do: cases in this precision are skipped and listed"
    checks += [Check("note", f"{device.device}: no {p}: {why}", advice) for p, why in unsupported.items()]
    return checks


def _without_old_cards(devices: Sequence[Device]) -> str:
    """Return advice to hide older cards: cuDNN refuses all cards if the oldest visible one is too old for it."""
    cards = [device for device in devices if device.kind == "cuda"]
    newer = [card for card in cards if _version(card.capability) >= OLDEST_OF_CUDA_13]
    if not newer or len(newer) == len(cards):
        return f"install a build with an older cuDNN: {LEGACY_BUILD}"
    names = [f"GPU-{card.uuid}" if card.uuid else card.device.partition(":")[2] for card in newer]
    return f"hide the older card from torch: export CUDA_VISIBLE_DEVICES={','.join(names)}"


def _lacks_kernels(device: Device, cuda: str) -> bool:
    """Return whether the problem of a card is that torch, built for CUDA version `cuda`, has no kernels for it."""
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


def of_apex() -> Check:
    """Return the check of the installed Apex; gpubench does not need one."""
    why = why_no_apex() or "NVIDIA Apex is complete"
    return Check("ok", f"{why} (only `--set engine=apex` of wordlm needs it)")


def surroundings(data: Path | None = None, out: Path = Path("results")) -> Iterator[Check]:
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

    If NVML fails although the driver is loaded, return one card without a name whose `problem` has the reason.
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
    """Return the memory of a card in bytes; None of an integrated one, which has none of its own."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        return None
