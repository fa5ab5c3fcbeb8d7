"""Reads NCCL's log: its version, and whether GPUs and network cards exchange data directly."""

import re
from pathlib import Path

LOG = "nccl.log"
SETTINGS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
"""Environment variables that make NCCL write its log."""


def told(log: Path) -> str:
    """Return a short description from the log of one process; empty if the log has no information."""
    if not log.exists():
        return ""
    text = log.read_text(errors="replace")
    version = re.search(r"NCCL version (\S+)", text)
    parts = [f"NCCL {version[1]}"] if version else []
    if "via NET/" in text:
        parts.append(f"GPUDirect RDMA {'used' if '/GDRDMA' in text else 'not used'}")
    return ", ".join(parts)
