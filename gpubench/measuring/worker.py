"""The child: takes one task as JSON, answers with JSON, and alone opens the accelerator."""

import faulthandler
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpubench import suite as suites
from gpubench.measuring.clock import Clock
from gpubench.measuring.peers import Peers
from gpubench.measuring.sampling import sampling_for
from gpubench.trial import Measurement, Trial, measurement_from_json, trial_from_json

CAUSE_SECONDS = 1.0
"""How long a process that only lost the others stays, so that the agent sees who ended first and how."""


def main() -> None:
    """Read the task from the socket whose file descriptor is the first argument, and answer on it.

    The second argument is the descriptor of a pipe whose other end the parent holds as long as it lives.
    """
    faulthandler.enable()
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    _die_with_parent(channel, int(sys.argv[2]))
    requests = channel.makefile("rb")
    task = json.loads(requests.readline())
    send = _sender(channel)
    if task["task"] == "meet":
        from gpubench.measuring.meeting import serve

        serve(task, requests, send)
        return

    if task["task"] == "describe":
        answer = _describe()
    elif task["task"] == "soak":
        answer = _soak(task["devices"], task["seconds"])
    elif task["trial"]["case"]["processes"] > 1:
        from gpubench.measuring.agent import run

        answer = run(task, channel)
    else:
        answer = _measure(trial_from_json(task["trial"]), send)
    send({"event": "answer", **answer})
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is said; tearing an interpreter full of torch down costs most of a second.
    os._exit(0)


def run_rank(task: Mapping[str, Any], place: Any, channel: socket.socket) -> None:
    """One of several processes of a trial, started by the agent: leaves its answer in the store."""
    from gpubench.measuring import blame, ranks

    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what torch has the kernel send when the agent is gone
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    # fastai takes WORLD_SIZE for the order to gather every batch's metrics itself.
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    trial = _trial_of(trial_from_json(task["trial"]), rank, local)
    store = ranks.connect(place)
    send = _sender(channel) if local == 0 else lambda event: None
    answer = _measure(trial, send, lambda: ranks.join(place, store, trial))
    store.set(f"answer/{rank}", json.dumps({**answer, "at": time.time()}))
    measurement = measurement_from_json(answer["measurement"])
    if measurement.status != "ok":
        if blame.is_consequence(measurement):
            time.sleep(CAUSE_SECONDS)
        os._exit(1)  # the agent ends the others then, which may wait for this one
    ranks.leave()


def _trial_of(trial: Trial, rank: int, local: int) -> Trial:
    """The trial as one of its processes runs it: each on the device after the one before."""
    kind, colon, first = trial.case.device.partition(":")
    device = f"{kind}:{int(first) + local}" if colon else kind
    return replace(trial, rank=rank, case=replace(trial.case, device=device))


def _sender(channel: socket.socket) -> Callable[[Mapping[str, Any]], None]:
    def send(event: Mapping[str, Any]) -> None:
        channel.sendall(json.dumps(event).encode() + b"\n")

    return send


def _die_with_parent(channel: socket.socket, lifeline: int) -> None:
    """End this whole process group when the parent is gone, even by SIGKILL.

    A process of its own watches, forked while there are no threads yet: a C call that hangs here cannot stop
    it, and what the suite starts (loader processes, say) ends too.
    """
    if os.fork() == 0:
        channel.close()
        os.read(lifeline, 1)  # returns when the parent's end has closed
        os.killpg(0, signal.SIGKILL)
    os.close(lifeline)


def _describe() -> dict[str, Any]:
    try:
        from gpubench.measuring.device import describe

        return {"facts": describe()}
    except Exception as error:
        return {"reason": f"{type(error).__name__}: {error}"}


def _soak(devices: Sequence[str], seconds: float) -> dict[str, Any]:
    from gpubench.measuring.device import soak

    soak(devices, seconds)
    return {}


Join = Callable[[], tuple[Peers, Mapping[str, Any]]]


def _alone() -> tuple[Peers, Mapping[str, Any]]:
    return Peers(), {}


def _measure(trial: Trial, send: Any, join: Join = _alone) -> dict[str, Any]:
    span: dict[str, float] = {}
    try:
        measurement = _run_suite(trial, send, span, join)
    except Exception as error:
        measurement = _failure(error, trial)
    inside = span.get("end", time.perf_counter()) - span["start"] if "start" in span else 0.0
    return {"measurement": asdict(measurement), "train_call_seconds": inside}


def _run_suite(trial: Trial, send: Any, span: dict[str, float], join: Join) -> Measurement:
    loaded = suites.load(Path(trial.case.suite_path))
    if loaded.digest != trial.case.suite_digest:
        raise RuntimeError(f"{trial.case.suite_path} was edited while the run went on; start again")
    random.seed(trial.seed)
    # fastai 2.8 says this once per process, and the user can do nothing about it.
    warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=FutureWarning)
    warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=DeprecationWarning)
    if not loaded.suite.torch:
        clock = _clock(trial, lambda: None, send, nullcontext(), Peers())
        span["start"] = time.perf_counter()
        quality = loaded.suite.train(trial, clock)
        return Measurement(status="ok", quality=dict(quality), **clock.summary())
    return _run_torch_suite(trial, loaded.suite, send, span, join)


def _run_torch_suite(trial: Trial, suite: suites.Suite, send: Any, span: dict[str, float], join: Join) -> Measurement:
    import torch

    from gpubench.measuring import device as devices
    from gpubench.measuring import precision

    case = trial.case
    if case.params["threads"]:
        torch.set_num_threads(int(case.params["threads"]))
    device = devices.open_device(case.device, case.memory_limit_bytes)
    precision.set_flags(case.precision, bool(case.params["reduced_reduction"]), bool(case.params["cudnn_benchmark"]))
    flags = precision.flags()
    mode = precision.mode_of(case.precision, case.device)
    proof = None if case.mode == "probe" else precision.probe(case.precision, case.device, mode)
    peers, between = join()
    torch.manual_seed(trial.seed)
    watch = precision.OperandWatch()
    clock = _clock(trial, lambda: devices.synchronize(device), send, watch, peers)

    span["start"] = time.perf_counter()
    quality = suite.train(trial, clock)
    devices.synchronize(device)
    span["end"] = time.perf_counter()

    precision.check_flags(case.precision, flags)
    measurement = Measurement(
        status="ok",
        quality=dict(quality),
        peak_memory_bytes=devices.peak_memory_bytes(device),
        allocator_retries=devices.allocator_retries(device),
        settings={"threads": str(torch.get_num_threads())},
        **between,
        **clock.summary(),
    )
    if proof is None:
        return measurement
    if not clock.proved:
        raise precision.PrecisionError(
            "nothing proves the precision: the suite never ran a step from clock.resident()"
            " (see docs/adding-a-suite.md)"
        )
    operands = watch.check(case.precision)
    return replace(measurement, precision_error=proof.worst, precision_proof=f"{proof.proof}; {operands}")


def _clock(trial: Trial, synchronize: Any, send: Any, watch: AbstractContextManager[Any], peers: Peers) -> Clock:
    return Clock(
        sampling_for(trial.case.mode, accelerator=not trial.case.device.startswith("cpu")),
        synchronize,
        report=lambda event: send({"event": "lap", **event}),
        watch=lambda: watch,
        peers=peers,
    )


def _failure(error: Exception, trial: Trial) -> Measurement:
    """A row's status and reason for an exception, with the line of the suite that raised it."""
    if "torch" in sys.modules:
        from gpubench.measuring.device import is_out_of_memory

        if is_out_of_memory(error):
            words = str(error).partition("\n")[0][:300]
            return Measurement(status="out_of_memory", reason=words or type(error).__name__)
    elif isinstance(error, MemoryError):
        return Measurement(status="out_of_memory", reason="MemoryError")
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == trial.case.suite_path]
    where = f" (line {lines[-1].lineno} of the suite)" if lines else ""
    message = " ".join(str(error).split())[:400]
    return Measurement(status="failed", reason=f"{type(error).__name__}: {message}{where}")


if __name__ == "__main__":
    main()
