"""Reads NCCL's log: algorithm, protocol, and whether GPUs and network cards exchange data directly."""

import re
from collections import Counter
from pathlib import Path

from gpubench.suite.trial import Mode

LOG = "nccl.log"

_CHOICE = re.compile(r"AllReduce: (\d+) Bytes -> Algo (\w+) proto (\w+)")
_VERSION = re.compile(r"NCCL version (\S+)")


def settings(mode: Mode) -> dict[str, str]:
    """The environment variables that make it tell.

    Which algorithm a collective takes is a line for each of them, which takes time: only --quick, by whose seconds
    nothing is judged, asks for it.
    """
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET" + ",TUNING" * (mode == "quick")}


def told(log: Path) -> str:
    """In a few words, from the log of one process; empty where it says nothing."""
    if not log.exists():
        return ""
    text = log.read_text(errors="replace")
    parts = [f"NCCL {found[1]}" for found in [_VERSION.search(text)] if found]
    moved: Counter[tuple[str, str]] = Counter()
    for size, algorithm, protocol in _CHOICE.findall(text):
        moved[algorithm, protocol] += int(size)
    if moved:
        # Small messages are often sent another way; what most bytes went by counts.
        algorithm, protocol = moved.most_common(1)[0][0]
        parts.append(f"mostly {algorithm} {protocol}")
    if "via NET/" in text:
        parts.append(f"GPUDirect RDMA {'used' if '/GDRDMA' in text else 'not used'}")
    return ", ".join(parts)
