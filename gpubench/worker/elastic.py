"""A trial in several processes: torch's elastic agent starts them, and their answers become one."""

import json
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from gpubench.hardware.host import numa_nodes
from gpubench.hardware.interconnect import interface_of
from gpubench.hardware.nccl import LOG, told
from gpubench.suite.trial import TRAINED, Case, measurement_from_json, trial_from_json
from gpubench.training.process_group import Place, connect
from gpubench.worker.failures import Failure, cause, failed, fault_of, together
from gpubench.worker.run_trial import Message, run_rank

REPORT_SECONDS = 5.0
"""How long after a failure the other machines may take to say what they saw of it."""


def run(task: Message, channel: socket.socket) -> Message:
    """Run this machine's share of the processes of the trial in `task`; returns the answer of all of them.

    `channel` goes to every process: the first one tells the parent of its laps, and all end with the parent.
    """
    case = trial_from_json(task["trial"]).case
    place, server = _place(task)
    interface = interface_of(place.address)
    if interface:
        # Without it Gloo looks up the machine's own name, which may mean another address, or none.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        if case.nodes > 1:
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    # What it would log at the end of a trial is in the row, with the process named.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5")
    failures = []
    with tempfile.TemporaryDirectory(dir=task["scratch"]) as logs:
        config = LaunchConfig(
            min_nodes=case.nodes,
            max_nodes=case.nodes,
            nproc_per_node=case.processes // case.nodes,
            run_id=place.run,
            rdzv_backend="c10d",
            rdzv_endpoint=f"{place.host}:{place.port}",
            # The store is open already, on this machine or on the one that the run meets at.
            rdzv_configs={"is_host": "0", "join_timeout": int(place.collective_seconds)},
            max_restarts=0,
            local_addr=place.address,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            **near_their_cards(case.device, numa_nodes()),
        )
        try:
            elastic_launch(config, run_rank)(dict(task), place, channel)
        except ChildFailedError as error:
            # A rank that failed by itself has said why; elastic knows of those that were killed.
            for rank, each in error.failures.items():
                if each.exitcode < 0:
                    failures.append(_failure(each.timestamp, f"rank {rank}", _signal(-each.exitcode)))
        except Exception as error:
            # The rendezvous failed: a machine, or the one that all meet at, is gone.
            words = " ".join(str(error).split())[:200]
            failures.append(_failure(time.time(), f"node {place.node}", f"{type(error).__name__}: {words}"))
    answer = _answer(connect(place), case, place, failures)
    del server
    return answer


def near_their_cards(device: str, memory_nodes: int | None) -> dict[str, Any]:
    """Options with which the agent binds each process to the CPUs beside its card, where there is a choice.

    torch (2.9 and later) takes a process's number on this machine for its card's, so only from the first card on.
    """
    if device != "cuda:0" or (memory_nodes or 1) < 2 or not shutil.which("numactl"):  # which torch does it with
        return {}
    try:
        from torch.numa.binding import AffinityMode, NumaOptions
    except ImportError:
        return {}
    # A container may forbid it, which is no reason not to train.
    return {"numa_options": NumaOptions(AffinityMode.NODE, should_fall_back_if_binding_fails=True)}


def _place(task: Message) -> tuple[Place, dist.Store | None]:
    """Where the processes meet: on a single machine, a store that is opened for this trial and returned too."""
    seconds = float(task["collective_seconds"])
    if task["place"]:
        return Place(**task["place"], scratch=task["scratch"], collective_seconds=seconds), None
    limit = timedelta(seconds=seconds)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=limit)
    return Place("127.0.0.1", store.port, "trial", 0, "127.0.0.1", task["scratch"], seconds), store


def _answer(store: dist.Store, case: Case, place: Place, failures: list[Failure]) -> Message:
    """One answer of what the processes left in the store, and of what their machines saw."""
    names = {f"answer/{rank}": f"rank {rank}" for rank in range(case.processes)}
    others = {f"report/{node}": f"node {node}" for node in range(case.nodes) if node != place.node}
    said = _read(store, names)
    done = {int(key.partition("/")[2]): each for key, each in said.items() if _trained(each)}
    if len(done) == case.processes:
        measurement = together({rank: measurement_from_json(each["measurement"]) for rank, each in done.items()})
        if words := told(Path(place.scratch) / LOG):
            measurement = replace(measurement, interconnect=f"{measurement.interconnect}; {words}")
        return {"measurement": asdict(measurement), "train_call_seconds": done[0]["train_call_seconds"]}
    deadline = time.monotonic() + REPORT_SECONDS
    while others and time.monotonic() < deadline and not all(store.check([key]) for key in others):
        time.sleep(0.1)
    said = _read(store, names)
    reports = {key: each for key, each in _read(store, others).items() if each["measurement"]["reason"]}
    for key, each in {**said, **reports}.items():
        measurement = measurement_from_json(each["measurement"])
        if measurement.fault == "crashed":  # a whole machine's part, and its last words may name another
            measurement = replace(measurement, fault=fault_of(measurement.reason) or "crashed")
        if not _trained(each):
            failures.append(Failure(each["at"], {**names, **others}[key], measurement))
    heard = {failure.who for failure in failures}
    missing = [name for key, name in names.items() if key not in said and name not in heard]
    return {"measurement": asdict(cause(failures, missing))}


def _trained(answer: Message) -> bool:
    return answer["measurement"]["status"] in TRAINED


def _read(store: dist.Store, keys: Mapping[str, str]) -> dict[str, Message]:
    return {key: json.loads(store.get(key)) for key in keys if store.check([key])}


def _failure(at: float, who: str, reason: str) -> Failure:
    return Failure(at, who, failed(reason))


def _signal(number: int) -> str:
    name = signal.Signals(number).name
    if name == "SIGABRT":
        return f"aborted by {name}"  # what NCCL does to a process that waited in vain
    hint = " (by the system, out of memory, or by hand)" if name == "SIGKILL" else ""
    return f"ended by {name}{hint}"
