"""Runs a trial of several processes (ranks, --processes), and combines their answers into one, for `__main__.py`."""

import json
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, RunProcsResult, start_processes

from gpubench.hardware.host import numa_nodes
from gpubench.hardware.interconnect import NCCL_LOG, interface_of, nccl_facts
from gpubench.suite.trial import TRAINED, Case, measurement_from_json, trial_from_json
from gpubench.training.process_group import Place, connect, loopback_store
from gpubench.worker.failures import CONSEQUENCES, Failure, cause, failed, fault_of, together
from gpubench.worker.run_trial import Message, run_rank

REPORT_SECONDS = 5.0
"""Longest wait for the reports of other machines after a failure, in seconds."""
LOOK_SECONDS = 0.1
"""Seconds between two checks whether a process has ended or answered."""
END_SECONDS = 5
"""Seconds that a process has to end before it is killed."""


def run(task: Message, channel: socket.socket) -> Message:
    """Run this machine's share of the processes of the trial in `task`; return one answer for all processes.

    Every process gets `channel`; the first one of the machine reports its laps there. All end if the parent ends.
    """
    case = trial_from_json(task["trial"]).case
    place, server = _place(task)
    # If no interface is set, Gloo looks up the machine's name, which may give another address or none.
    interface = interface_of("127.0.0.1" if case.nodes == 1 else place.address)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if interface else ():
        # On a single machine, processes listen only on the loopback interface.
        os.environ[name] = interface if case.nodes == 1 else os.environ.get(name, interface)
    # torch would log how a process ended. The row has this already, with the process named.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    local = case.processes // case.nodes
    result = _run_processes(task, place, channel, local, near_their_cards(case.device, numa_nodes()))
    # A rank that failed by itself has written the reason to the store; a rank ended by a signal has not.
    failures = [
        Failure(failure.timestamp, f"rank {place.node * local + index}", failed(_signal(-failure.exitcode)))
        for index, failure in (result.failures if result else {}).items()
        if failure.exitcode < 0
    ]
    answer = _answer(connect(place), case, place, failures)
    del server
    return answer


def _run_processes(
    task: Message, place: Place, channel: socket.socket, count: int, options: Mapping[str, Any]
) -> RunProcsResult | None:
    """Run this machine's `count` processes until all have ended or one has failed, then end the rest.

    torch's own rendezvous is not used: it unpickles what it reads from the store.
    """
    first = place.node * count
    # Set as torch's elastic agent sets it: a process that waited in vain for NCCL ends.
    environment = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")}
    with tempfile.TemporaryDirectory(dir=task["scratch"]) as logs:
        processes = start_processes(
            "trial",
            run_rank,
            args={local: (dict(task), place, channel, first + local, local) for local in range(count)},
            envs=dict.fromkeys(range(count), environment),
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            **options,
        )
        try:
            return processes.wait(period=LOOK_SECONDS)
        finally:
            processes.close(timeout=END_SECONDS)


def near_their_cards(device: str, memory_nodes: int | None) -> dict[str, Any]:
    """Return torch's options that bind each process to the CPUs near its card; empty on a host with one memory node.

    torch (2.9 and later) takes the card with the process's local number, so this needs `cuda:0` as the first card.
    """
    if device != "cuda:0" or (memory_nodes or 1) < 2 or not shutil.which("numactl"):  # the tool that torch uses
        return {}
    try:
        from torch.numa.binding import AffinityMode, NumaOptions
    except ImportError:
        return {}
    # A container may forbid the binding; training works without it.
    return {"numa_options": NumaOptions(AffinityMode.NODE, should_fall_back_if_binding_fails=True)}


def _place(task: Message) -> tuple[Place, dist.Store | None]:
    """Return where the processes meet; on a single machine also the store, which is opened for this trial."""
    seconds = float(task["collective_seconds"])
    if task["place"]:
        return Place(**task["place"], scratch=task["scratch"], collective_seconds=seconds), None
    store = loopback_store(seconds)
    return Place(store.port, secrets.token_hex(16), 0, "127.0.0.1", task["scratch"], seconds), store


def _answer(store: dist.Store, case: Case, place: Place, failures: list[Failure]) -> Message:
    """Return one answer for the trial, from the processes' answers in the store and the failures seen by machines."""
    names = {f"answer/{rank}": f"rank {rank}" for rank in range(case.processes)}
    others = {f"report/{node}": f"node {node}" for node in range(case.nodes) if node != place.node}
    if others and not failures:
        # Processes of other machines may end a little later than those of this one.
        deadline = time.monotonic() + place.collective_seconds
        while time.monotonic() < deadline and not store.check(list(names)) and not _read(store, others):
            early = [measurement_from_json(answer["measurement"]) for answer in _read(store, names).values()]
            if any(result.status not in TRAINED and result.fault not in CONSEQUENCES for result in early):
                break  # the processes beside it were ended and may never answer
            time.sleep(LOOK_SECONDS)
    answers = _read(store, names)
    results = [measurement_from_json(answer["measurement"]) for answer in answers.values()]
    if len(results) == case.processes and all(result.status in TRAINED for result in results):
        measurement = together(results)
        if facts := nccl_facts(Path(place.scratch) / NCCL_LOG):
            measurement = replace(measurement, interconnect=f"{measurement.interconnect}; {facts}")
        return {"measurement": asdict(measurement), "train_call_seconds": answers["answer/0"]["train_call_seconds"]}
    deadline = time.monotonic() + REPORT_SECONDS
    while others and time.monotonic() < deadline and not all(store.check([key]) for key in others):
        time.sleep(LOOK_SECONDS)
    answers = _read(store, names)
    reports = {key: report for key, report in _read(store, others).items() if report["measurement"]["reason"]}
    for key, answer in {**answers, **reports}.items():
        measurement = measurement_from_json(answer["measurement"])
        if measurement.fault == "crashed":  # a machine's report: its last output may show that it lost another machine
            measurement = replace(measurement, fault=fault_of(measurement.reason) or "crashed")
        if measurement.status not in TRAINED:
            failures.append(Failure(answer["at"], {**names, **others}[key], measurement))
    reported = {failure.who for failure in failures}
    missing = [name for key, name in names.items() if key not in answers and name not in reported]
    return {"measurement": asdict(cause(failures, missing))}


def _read(store: dist.Store, keys: Mapping[str, str]) -> dict[str, Message]:
    return {key: json.loads(store.get(key)) for key in keys if store.check([key])}


def _signal(number: int) -> str:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if name == "SIGABRT":
        return f"aborted by {name}"  # what NCCL does to a process that waited in vain
    hint = " (out of memory, or killed by a user)" if name == "SIGKILL" else ""
    return f"ended by {name}{hint}"
