"""How the processes of a trial are connected (NVLink, PCIe, network, NCCL), without machine names. Imports no torch."""

import contextlib
import re
import socket
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import psutil
import pynvml

from gpubench.hardware.state import ask
from gpubench.suite.trial import Case

_PATHS = {
    "NVML_TOPOLOGY_INTERNAL": "one board",
    "NVML_TOPOLOGY_SINGLE": "PCIe, one switch",
    "NVML_TOPOLOGY_MULTIPLE": "PCIe, several switches",
    "NVML_TOPOLOGY_HOSTBRIDGE": "PCIe, through the host bridge",
    "NVML_TOPOLOGY_NODE": "PCIe, inside one NUMA node",
    "NVML_TOPOLOGY_SYSTEM": "PCIe, between CPU sockets",
}


def interconnect(cards: Sequence[str], case: Case, address: str) -> str:
    """Return how NVIDIA `cards` (UUIDs) of a machine are connected; for several machines also their network."""
    inside = _between_cards(cards) if len(cards) > 1 else ""
    if case.nodes > 1:
        return "; ".join(part for part in (inside, _network(address)) if part)
    return inside or "loopback"


def interface_of(address: str) -> str:
    """Return the network interface with `address`, or an empty string."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(assigned.address == address for assigned in addresses):
            return str(name)
    return ""


def address_towards(host: str, port: int) -> str:
    """Return this machine's address on the route to `host`. Raises OSError if there is no route."""
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # sends nothing: only the route is looked up
        return str(probe.getsockname()[0])


def _network(address: str) -> str:
    name = interface_of(address)
    stats = psutil.net_if_stats().get(name)
    speed = f" {stats.speed} Mbit/s" if stats and stats.speed > 0 else ""
    infiniband = Path("/sys/class/infiniband")
    fabric = f", InfiniBand {' '.join(sorted(p.name for p in infiniband.iterdir()))}" if infiniband.is_dir() else ""
    return f"network {name}{speed}{fabric}" if name else "network"


def _between_cards(uuids: Sequence[str]) -> str:
    """Return how these NVIDIA cards are connected: by NVLink, or else by the longest PCIe path from the first card."""
    with contextlib.suppress(Exception):  # without NVML (in a container) the trial still runs
        pynvml.nvmlInit()
        cards = [pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}") for uuid in uuids]
        by_nvlink = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        statuses = {pynvml.nvmlDeviceGetP2PStatus(*pair, by_nvlink) for pair in combinations(cards, 2)}
        if statuses == {pynvml.NVML_P2P_STATUS_OK}:
            links = range(pynvml.NVML_NVLINK_MAX_LINKS)
            active = [[ask(pynvml, "nvmlDeviceGetNvLinkState", card, link) for link in links] for card in cards]
            return f"NVLink, {min(sum(map(bool, states)) for states in active)} links a card"
        worst = max(pynvml.nvmlDeviceGetTopologyCommonAncestor(cards[0], card) for card in cards[1:])
        return next(text for name, text in _PATHS.items() if getattr(pynvml, name) == worst)
    return "unknown"


NCCL_LOG = "nccl.log"
NCCL_SETTINGS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
"""Environment variables that make NCCL write its log."""


def nccl_facts(log: Path) -> str:
    """Return NCCL's version and use of RDMA, from the log of one process; empty if the log has neither."""
    if not log.exists():
        return ""
    text = log.read_text(errors="replace")
    version = re.search(r"NCCL version (\S+)", text)
    parts = [f"NCCL {version[1]}"] if version else []
    if "via NET/" in text:
        parts.append(f"GPUDirect RDMA {'used' if '/GDRDMA' in text else 'not used'}")
    return ", ".join(parts)
