"""Joins the processes of a trial (DDP over NCCL or Gloo); suites call `distributed`, `quiet` and `weighted_mean`."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gpubench.hardware import host
from gpubench.hardware.interconnect import NCCL_LOG, NCCL_SETTINGS, interconnect
from gpubench.suite.trial import Trial
from gpubench.training.clock.timer import Peers
from gpubench.training.device import bus_address


def distributed(model: torch.nn.Module, trial: Trial, **options: Any) -> torch.nn.Module:
    """Return the model in DDP (with `options`), which averages gradients over processes; unchanged if there is one.

    Call it after moving the model to its device and freezing layers. Gradients are views of sent buffers, not copies.
    """
    if trial.case.processes == 1:
        return model
    devices = None if trial.case.device == "cpu" else [torch.device(trial.case.device)]
    return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True, **options)


def quiet(model: torch.nn.Module, together: bool) -> AbstractContextManager[object]:
    """Return the context of a step, without communication if `together` (the clock's property) is false."""
    if together or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def weighted_mean(values: Sequence[float], weight: float, trial: Trial) -> list[float]:
    """Return the means over all processes; `weight` is the number of samples behind this process's values."""
    if trial.case.processes == 1:
        return list(values)
    *sums, total = map(sum, zip(*_gather([*(value * weight for value in values), weight]), strict=True))
    return [value / total for value in sums]


def loopback_store(timeout_seconds: float) -> dist.TCPStore:
    """Return a new store that only programs of this machine can reach.

    torch itself would listen on every interface, whatever address it gets, so the socket is made here.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    return dist.TCPStore(
        "127.0.0.1",
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_seconds),
        master_listen_fd=listener.detach(),  # torch closes it with the store
    )


@dataclass(frozen=True)
class Place:
    """What a process needs to join the others of its trial."""

    port: int
    """Port of the store, or of the relay to it, on this machine's loopback address."""
    run: str
    """Name of this trial in the store, which no other trial has."""
    node: int
    address: str
    """This machine's address, as the others see it."""
    scratch: str
    """A folder of this machine that is deleted after the trial."""
    collective_seconds: float
    """Longest wait in a collective for the other processes, in seconds."""


def connect(place: Place) -> dist.Store:
    """Connect to the store; return a view of it that has only the keys of this trial."""
    return dist.PrefixStore(place.run, store_at(place.port, place.collective_seconds))


def store_at(port: int, timeout_seconds: float) -> dist.TCPStore:
    """Return a connection to the store at this port of this machine."""
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=timeout_seconds))


def join(place: Place, store: dist.Store, trial: Trial) -> tuple[Peers, dict[str, str]]:
    """Join the process group; return the peers, and `backend` and `interconnect` for the row.

    Tensors are sent by the backend of the trial's device (NCCL for NVIDIA's, Gloo for a CPU), laps by Gloo.
    """
    device = torch.device(trial.case.device)
    on_cpu = device.type == "cpu"
    backend = "gloo" if on_cpu else dist.get_default_backend_for_device(device)
    if backend == "nccl" and trial.rank == 0 and "NCCL_DEBUG" not in os.environ:
        os.environ.update(NCCL_SETTINGS, NCCL_DEBUG_FILE=str(Path(place.scratch) / NCCL_LOG))
    with _silence():
        dist.init_process_group(
            backend if on_cpu else f"cpu:gloo,{device.type}:{backend}",
            store=dist.PrefixStore("group", store),
            rank=trial.rank,
            world_size=trial.case.processes,
            timeout=timedelta(seconds=place.collective_seconds),
            device_id=None if on_cpu else device,
        )
    names = []
    for rank, (node, index) in enumerate(_gather([place.node, -1 if device.index is None else device.index])):
        where = f", {device.type}:{index:.0f}" if index >= 0 else ""
        names.append(f"rank {rank} (node {node:.0f}{where})")
    between = interconnect(_cards(trial, device), trial.case, place.address)
    if all(bound for (bound,) in _gather([_is_bound(device)])):
        between += "; each process on the CPUs beside its card"
    facts = {"backend": backend, "interconnect": between}
    return Peers(_gather, tuple(names)), facts


def _cards(trial: Trial, device: torch.device) -> list[str]:
    """Return the UUIDs of the NVIDIA cards that this machine's processes train on; empty except in rank 0."""
    if device.type != "cuda" or trial.rank or not torch.version.cuda:
        return []
    return [str(torch.cuda.get_device_properties(name).uuid) for name in trial.case.devices]


def _is_bound(device: torch.device) -> bool:
    """Return whether this process may only run on the CPUs near its card, although the machine has other CPUs."""
    if device.type != "cuda" or not torch.version.cuda:
        return False
    properties = torch.cuda.get_device_properties(device)
    node = host.numa_node(bus_address(properties))
    return node is not None and (host.numa_nodes() or 1) > 1 and not host.may_leave_node(node)


LEAVE_SECONDS = 0.2
"""Seconds to wait before the group is destroyed, while one of its threads frees the last tensors. That thread needs
Python's lock (the GIL). torch 2.6 keeps the lock while it waits for the thread: sometimes both waited for ever."""


def leave() -> None:
    """Leave the process group; call it after this process has sent its measurement."""
    time.sleep(LEAVE_SECONDS)
    dist.destroy_process_group()


def _gather(numbers: Sequence[float]) -> list[list[float]]:
    sent = torch.tensor([*numbers, 0.0], dtype=torch.float64)  # never empty: an empty one would wait for nobody
    gathered = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, sent)
    return [received[:-1].tolist() for received in gathered]


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Hide stdout, where Gloo prints a greeting."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
