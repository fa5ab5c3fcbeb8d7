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
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpubench import suite as suites
from gpubench.measuring.clock import Clock
from gpubench.measuring.sampling import sampling_for
from gpubench.trial import Measurement, Trial, trial_from_json


def main() -> None:
    """Read the task from the socket whose file descriptor is the first argument, and answer on it.

    The second argument is the descriptor of a pipe whose other end the parent holds as long as it lives.
    """
    faulthandler.enable()
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    _die_with_parent(channel, int(sys.argv[2]))
    task = json.loads(channel.makefile("rb").readline())

    def send(event: Mapping[str, Any]) -> None:
        channel.sendall(json.dumps(event).encode() + b"\n")

    if task["task"] == "describe":
        answer = _describe()
    elif task["task"] == "soak":
        answer = _soak(task["device"], task["seconds"])
    elif task["task"] == "peak":
        answer = _peak(task["device"], task["precision"], task["threads"], task["soak_seconds"])
    else:
        answer = _measure(trial_from_json(task["trial"]), send)
    send({"event": "answer", **answer})
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is said; tearing an interpreter full of torch down costs most of a second.
    os._exit(0)


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


def _soak(device: str, seconds: float) -> dict[str, Any]:
    from gpubench.measuring.device import soak

    soak(device, seconds)
    return {}


def _peak(device: str, precision: str, threads: int, soak_seconds: float) -> dict[str, Any]:
    from gpubench.measuring.rates import measure_rates

    try:
        return {"rates": measure_rates(device, precision, threads, soak_seconds)}
    except RuntimeError as error:  # no such kernel here, or no memory for it
        return {"reason": str(error).partition("\n")[0]}


def _measure(trial: Trial, send: Any) -> dict[str, Any]:
    span: dict[str, float] = {}
    try:
        measurement = _run_suite(trial, send, span)
    except Exception as error:
        measurement = _failure(error, trial)
    inside = span.get("end", time.perf_counter()) - span["start"] if "start" in span else 0.0
    return {"measurement": asdict(measurement), "train_call_seconds": inside}


def _run_suite(trial: Trial, send: Any, span: dict[str, float]) -> Measurement:
    loaded = suites.load(Path(trial.case.suite_path))
    if loaded.digest != trial.case.suite_digest:
        raise RuntimeError(f"{trial.case.suite_path} was edited while the run went on; start again")
    random.seed(trial.seed)
    # fastai 2.8 says this once per process, and the user can do nothing about it.
    warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=FutureWarning)
    warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=DeprecationWarning)
    if not loaded.suite.torch:
        clock = _clock(trial, lambda: None, send, nullcontext())
        span["start"] = time.perf_counter()
        quality = loaded.suite.train(trial, clock)
        return judged(Measurement(status="ok", quality=dict(quality), **clock.summary()), loaded.suite, trial)
    return judged(_run_torch_suite(trial, loaded.suite, send, span), loaded.suite, trial)


def judged(measurement: Measurement, suite: suites.Suite, trial: Trial) -> Measurement:
    """`goal_missed` where a full run on real data ends below the suite's goal; says which runs reached it.

    A suite that makes several runs in one process gives the mean of their quality, and their `success_rate`.
    """
    found = measurement.quality.get(suite.quality)
    if suite.goal is None or found is None or measurement.status != "ok" or not trial.teaches:
        return measurement
    quality = {"success_rate": float(found >= suite.goal), **measurement.quality}
    if found >= suite.goal:
        return replace(measurement, quality=quality)
    reason = f"{suite.quality} {found:.4f}, and the goal is {suite.goal:g}"
    return replace(measurement, status="goal_missed", reason=reason, quality=quality)


def _run_torch_suite(trial: Trial, suite: suites.Suite, send: Any, span: dict[str, float]) -> Measurement:
    import torch

    from gpubench.measuring import device as devices
    from gpubench.measuring import precision
    from gpubench.measuring.counting import Work, beside, work_fields

    case = trial.case
    if case.params["threads"]:
        torch.set_num_threads(int(case.params["threads"]))
    device = devices.open_device(case.device, case.memory_limit_bytes)
    precision.set_flags(case.precision, bool(case.params["reduced_reduction"]), bool(case.params["cudnn_benchmark"]))
    flags = precision.flags()
    mode = precision.mode_of(case.precision, case.device)
    proof = None if case.mode == "probe" else precision.probe(case.precision, case.device, mode)
    torch.manual_seed(trial.seed)
    watch, work = precision.OperandWatch(), Work()
    # Compiled code runs kernels that no mode sees; what a mode sees of it describes another program.
    counted = proof is not None and not case.params.get("compile")
    clock = _clock(trial, lambda: devices.synchronize(device), send, beside(work, watch) if counted else watch)

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
    of_suite = suite.flops(case.model, case.params) if suite.flops else None
    return replace(
        measurement,
        precision_error=proof.worst,
        precision_proof=f"{proof.proof}; {operands}",
        **work_fields(work if counted else None, clock.watched_samples, of_suite),
    )


def _clock(trial: Trial, synchronize: Any, send: Any, watch: AbstractContextManager[Any]) -> Clock:
    return Clock(
        sampling_for(trial.case.mode, accelerator=not trial.case.device.startswith("cpu")),
        synchronize,
        report=lambda event: send({"event": "lap", **event}),
        watch=lambda: watch,
    )


def _failure(error: Exception, trial: Trial) -> Measurement:
    """A row's status and reason for an exception, with the line of the suite that raised it."""
    if "torch" in sys.modules:
        from gpubench.measuring.device import is_out_of_memory

        if is_out_of_memory(error):
            return Measurement(status="out_of_memory", reason=str(error).partition("\n")[0][:300])
    elif isinstance(error, MemoryError):
        return Measurement(status="out_of_memory", reason="MemoryError")
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == trial.case.suite_path]
    where = f" (line {lines[-1].lineno} of the suite)" if lines else ""
    message = " ".join(str(error).split())[:400]
    return Measurement(status="failed", reason=f"{type(error).__name__}: {message}{where}")


if __name__ == "__main__":
    main()
