"""Reads NCCL's log: version, algorithm, protocol, and whether GPUs and network cards exchange data directly."""

import re
from collections import Counter
from pathlib import Path

from gpubench.suite.trial import Mode

LOG = "nccl.log"

_CHOICE = re.compile(r"AllReduce: (\d+) Bytes -> Algo (\w+) proto (\w+)")
_VERSION = re.compile(r"NCCL version (\S+)")


def settings(mode: Mode) -> dict[str, str]:
    """Return the environment variables that make NCCL write its log.

    Logging the algorithm of every collective takes time, so only --quick does it: its times are never compared.
    """
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET" + ",TUNING" * (mode == "quick")}


def told(log: Path) -> str:
    """Return a short description from the log of one process; empty if the log has no information."""
    if not log.exists():
        return ""
    text = log.read_text(errors="replace")
    version = _VERSION.search(text)
    parts = [f"NCCL {version[1]}"] if version else []
    byte_counts: Counter[tuple[str, str]] = Counter()
    for size, algorithm, protocol in _CHOICE.findall(text):
        byte_counts[algorithm, protocol] += int(size)
    if byte_counts:
        # Small messages often use another algorithm; the one that moved most bytes is reported.
        algorithm, protocol = byte_counts.most_common(1)[0][0]
        parts.append(f"mostly {algorithm} {protocol}")
    if "via NET/" in text:
        parts.append(f"GPUDirect RDMA {'used' if '/GDRDMA' in text else 'not used'}")
    return ", ".join(parts)
