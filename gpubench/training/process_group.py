"""For one of several processes that train together: joining the group, and what a suite calls in it."""

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

from gpubench.hardware import host, nccl
from gpubench.hardware.interconnect import interconnect, interface_of
from gpubench.suite.trial import Trial
from gpubench.training.clock.peers import Peers
from gpubench.training.device import bus_address

# What a suite uses


def distributed(model: torch.nn.Module, trial: Trial, **options: Any) -> torch.nn.Module:
    """The model whose gradients are averaged over all processes (DDP, with `options`); alone, the model itself.

    Call it when it is on its device and all that is frozen is frozen. Gradients are views of what is sent, so that
    none is copied to be sent.
    """
    if trial.case.processes == 1:
        return model
    devices = None if trial.case.device == "cpu" else [torch.device(trial.case.device)]
    return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True, **options)


def quiet(model: torch.nn.Module, together: bool) -> AbstractContextManager[object]:
    """The context of a step: without communication where `together` (the clock's) is false."""
    if together or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def weighted_mean(values: Sequence[float], weight: float, trial: Trial) -> list[float]:
    """Means over all processes, each value counted `weight` (the samples behind it) times."""
    every = _gather([*(value * weight for value in values), weight]) if trial.case.processes > 1 else None
    if every is None:
        return list(values)
    total = sum(each[-1] for each in every)
    return [sum(each[at] for each in every) / total for at in range(len(values))]


def loopback_store(timeout_seconds: float) -> dist.TCPStore:
    """Open a store that only programs of this machine can reach.

    torch itself binds a store to every interface, whatever address it is given, so the socket is made here.
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


def stay_on_loopback() -> None:
    """Make Gloo and NCCL, in this process and those it starts, listen on the loopback interface alone."""
    interface = interface_of("127.0.0.1")
    if interface:
        os.environ.update(GLOO_SOCKET_IFNAME=interface, NCCL_SOCKET_IFNAME=interface)


# What the worker uses


@dataclass(frozen=True)
class Place:
    """Where a process meets the others: the store, and the names of the run and of itself."""

    port: int
    """Port of the store, or of the relay to it, on this machine's loopback address."""
    run: str
    """Name of this trial in the store; every trial has another."""
    node: int
    address: str
    """This machine's own, as the others see it."""
    scratch: str
    """A folder of this machine that goes with the trial."""
    collective_seconds: float
    """How long a process waits in a collective for the others before it says that they are lost."""


def connect(place: Place) -> dist.Store:
    """The store's keys of this trial."""
    limit = timedelta(seconds=place.collective_seconds)
    return dist.PrefixStore(place.run, dist.TCPStore("127.0.0.1", place.port, is_master=False, timeout=limit))


def join(place: Place, store: dist.Store, trial: Trial) -> tuple[Peers, dict[str, str]]:
    """Join the process group; returns the peers, and `backend` and `interconnect` for the row.

    The group computes on the trial's device (NCCL where that is NVIDIA's, Gloo on a CPU, else what torch
    names for it) and talks of laps on the CPU.
    """
    device = torch.device(trial.case.device)
    on_cpu = device.type == "cpu"
    backend = "gloo" if on_cpu else dist.get_default_backend_for_device(device)
    if backend == "nccl" and trial.rank == 0 and "NCCL_DEBUG" not in os.environ:
        os.environ.update(nccl.SETTINGS, NCCL_DEBUG_FILE=str(Path(place.scratch) / nccl.LOG))
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
    if all(each[0] for each in _gather([_is_bound(device)])):
        between += "; each process on the CPUs beside its card"
    facts = {"backend": backend, "interconnect": between}
    return Peers(_gather, tuple(names)), facts


def _cards(trial: Trial, device: torch.device) -> list[str]:
    """UUIDs of the NVIDIA cards that this machine's processes train on, as the first of them sees it."""
    if device.type != "cuda" or trial.rank or not torch.version.cuda:
        return []
    first = device.index or 0
    local = range(first, first + trial.case.processes // trial.case.nodes)
    return [str(torch.cuda.get_device_properties(index).uuid) for index in local]


def _is_bound(device: torch.device) -> bool:
    """Whether this process may run on the CPUs beside its card alone, where the machine has others."""
    if device.type != "cuda" or not torch.version.cuda:
        return False
    properties = torch.cuda.get_device_properties(device)
    node = host.numa_node(bus_address(properties))
    return node is not None and (host.numa_nodes() or 1) > 1 and not host.may_leave_node(node)


LETTING_GO_SECONDS = 0.2
"""A group's own thread lets go of the last tensors after their sum, and needs the interpreter for that. In torch 2.6
who destroys the group holds the interpreter and waits for that thread: now and then both waited for ever."""


def leave() -> None:
    """Leave the process group in order, when every process has answered."""
    time.sleep(LETTING_GO_SECONDS)
    dist.destroy_process_group()


def _gather(own: Sequence[float]) -> list[list[float]]:
    numbers = torch.tensor([*own, 0.0], dtype=torch.float64)  # never empty: an empty one would wait for nobody
    every = [torch.empty_like(numbers) for _ in range(dist.get_world_size())]
    dist.all_gather(every, numbers)
    return [each[:-1].tolist() for each in every]


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
