"""What `gpubench` alone prints: this machine's card, whether it is ready, and three commands. It imports no torch."""

import importlib.util
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubench.hardware.advice import Card

COMPARED_WITH = ("A100-SXM4-80GB", "RTX 3090", "RTX 4090")
"""Cards that many people know."""


def overview() -> list[str]:
    """Return the lines: the device, its published speed, and three commands."""
    from gpubench.hardware import advice
    from gpubench.show.wrap import line_width, wrapped
    from gpubench.studies.cards.figures import data_sheets, short_name

    cards = advice.nvidia_cards()
    version, cuda = installed_torch()
    torch = f"torch {version}" if version else "no torch"
    first = ""
    if cards:
        first = short_name(cards[0].name)
        more = f" (and {len(cards) - 1} more)" if len(cards) > 1 else ""
        memory = f", {cards[0].memory_bytes / 2**30:.0f} GiB" if cards[0].memory_bytes else ""
        build = f" (CUDA {cuda})" if cuda else ""
        device = f"{first}{more}{memory}, driver {cards[0].driver or 'unknown'}, {torch}{build}."
        lines = wrapped(f"{device} {readiness(cards[0], cuda)}") + wrapped(published_speed(first))
    elif accelerator := other_accelerator():
        lines = wrapped(f"{cpu_text()}, {torch} for {accelerator}: `gpubench doctor` lists the cards.")
    else:
        lines = wrapped(f"No GPU found: {cpu_text()}, {torch}. A CPU is far slower, and CPUs are not ranked.")
    known = [first] if first in data_sheets() else []
    one, other = list(dict.fromkeys([*known, "RTX 4090", "RTX 5090"]))[:2]
    commands = {
        "gpubench run --quick": "a first rate, in about 1 min",
        "gpubench run": "with intervals; an hour or more",
        f"gpubench cards {one} {other}": "compare published cards",
    }
    width = max(map(len, commands)) + 2
    lines.append("")
    for command, text in commands.items():
        line = f"  {command:<{width}}{text}"
        lines += [line] if len(line) <= line_width() else [f"  {command}", f"    {text}"]
    return lines


def installed_torch() -> tuple[str, str]:
    """Return the version of the installed torch and of its CUDA, without importing it; empty if there is none."""
    return _torch_version_of("__version__").partition("+")[0], _torch_version_of("cuda")


def _torch_version_of(name: str) -> str:
    """Return the text of a name in torch's version.py; empty if there is no torch, or it has no such name."""
    spec = importlib.util.find_spec("torch")
    text = Path(spec.origin).with_name("version.py").read_text() if spec and spec.origin else ""
    match = re.search(rf"^{name}\b.*?= '([^']+)'", text, re.MULTILINE)
    return match[1] if match else ""


def other_accelerator() -> str:
    """Return the platform of the installed torch if it is not CUDA, such as ROCm; empty for CUDA or for CPUs only."""
    if _torch_version_of("__version__") and (sys.platform, platform.machine()) == ("darwin", "arm64"):
        return "Apple's Metal"
    return "ROCm" if _torch_version_of("hip") else "Intel's XPU" if _torch_version_of("xpu") else ""


def readiness(card: "Card", cuda: str) -> str:
    """Return whether the card can be measured, in a sentence."""
    problem = card.problem
    if not problem and not cuda:
        problem = "torch is missing or built without CUDA"
    elif not problem and int(cuda.partition(".")[0]) > int(card.driver_cuda.partition(".")[0]):
        problem = f"the driver runs CUDA {card.driver_cuda} at most"
    return f"Not ready: {problem}; see `gpubench doctor`." if problem else "Ready to measure."


def published_speed(card: str) -> str:
    """Return the speed of a card relative to two of COMPARED_WITH, by published figures or its data sheet."""
    from gpubench.studies.cards.figures import data_sheets
    from gpubench.studies.cards.ratio import published_speeds

    if card not in data_sheets():
        return f"{card}: not in our data of published speeds."
    speeds = published_speeds("half")
    ratios = [f"{speeds.ratio(card, other).value:.2f}x an {other}" for other in COMPARED_WITH if other != card]
    source = "published figures" if card in speeds.cards else "its data sheet"
    return f"By {source}: {', '.join(ratios[:2])} (mixed precision)."


def cpu_text() -> str:
    """Return the name of the CPU with its cores and memory."""
    from gpubench.hardware.environment import cpu_count, cpu_device

    cpu, cores = cpu_device(), cpu_count()
    return f"{cpu.card}, {cores} core{'s' * (cores > 1)}, {(cpu.memory_bytes or 0) / 2**30:.0f} GiB"
