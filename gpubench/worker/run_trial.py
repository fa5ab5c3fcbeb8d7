"""Runs a trial in this process, or this process's share of a trial, and returns what the suite measured."""

import faulthandler
import json
import math
import os
import random
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench.errors import Unsupported, UserError
from gpubench.suite import files, timed_code
from gpubench.suite.precisions import LINEAR_ONLY
from gpubench.suite.suite import Suite
from gpubench.suite.trial import TRAINED, Measurement, Trial, measurement_from_json, trial_from_json
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for
from gpubench.training.clock.timer import Peers
from gpubench.worker.failures import CONSEQUENCES, failed

if TYPE_CHECKING:  # a suite without torch runs without it
    import torch

    from gpubench.training.flops import Work
    from gpubench.training.operands import OperandWatch

Message = Mapping[str, Any]
"""An event or an answer between child and parent: data for JSON."""
Send = Callable[[Message], None]
"""Sends an event to the parent."""
Join = Callable[[], tuple[Peers, Message]]
"""Joins the other processes of the trial; returns these peers, and `backend` and `interconnect` for the row."""
LEAST_LOW_SHARE = 0.1
"""Minimum share of 8-bit FLOPs for the label float8 or int8-mixed. Chosen, not measured."""
CAUSE_SECONDS = 1.0
"""Seconds that a process waits if it failed only because of another one: the parent then sees which one ended first."""
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""With this variable torch asks Linux for huge pages for tensors of 2 MB and more (pytorch/pytorch#107697)."""
imported: dict[str, files.LoadedSuite] = {}
"""Suites that the template of this process has imported, by path."""


def run_rank(task: Message, place: Any, channel: socket.socket, rank: int, local: int) -> None:
    """Run one of several processes of a trial (see `ranks.run`), and write its answer to the store."""
    from gpubench.training import process_group

    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # torch makes Linux send SIGINT when the parent ends
    trial = trial_from_json(task["trial"])
    trial = replace(trial, rank=rank, case=replace(trial.case, device=trial.case.devices[local]))
    store = process_group.connect(place)
    send = sender(channel) if local == 0 else lambda event: None
    # None for `settled`: the readings of one card must not end the warm-up of its process before the others'.
    answer = measure(trial, send, None, lambda: process_group.join(place, store, trial))
    store.set(f"answer/{rank}", json.dumps({**answer, "at": time.time()}))
    measurement = measurement_from_json(answer["measurement"])
    if measurement.status not in TRAINED:
        if measurement.fault in CONSEQUENCES:
            time.sleep(CAUSE_SECONDS)
        os._exit(1)  # the parent then ends the others, which may wait for this one
    process_group.leave()


def sender(channel: socket.socket) -> Send:
    """Return a function that sends an event to the parent."""

    def send(event: Message) -> None:
        channel.sendall(json.dumps(event).encode() + b"\n")

    return send


def measure(
    trial: Trial, send: Send, settled: Callable[[], bool] | None, join: Join = lambda: (Peers(), {})
) -> dict[str, Any]:
    """Run the trial in this process; return its measurement and the seconds that `train` took.

    `settled` returns whether the card has settled; None if the parent cannot read the card.
    """
    span: dict[str, float] = {}
    new_clock = partial(
        Clock,
        sampling_for(trial.case.mode, accelerator=not trial.case.device.startswith("cpu")),
        report=lambda event: send({"event": "lap", **event}),
        settled=settled,
    )
    try:
        measurement = _run_suite(trial, new_clock, join, span)
    except Exception as error:
        measurement = _failure(error, trial)
    inside = span.get("end", time.perf_counter()) - span["start"] if "start" in span else 0.0
    return {"measurement": asdict(measurement), "train_call_seconds": inside}


def _run_suite(trial: Trial, new_clock: Callable[..., Clock], join: Join, span: dict[str, float]) -> Measurement:
    ignore_known_warnings()  # before the import of torch, which reads the environment
    path = Path(trial.case.suite_path)
    loaded = imported.get(trial.case.suite_path) or files.load(path)
    # In a fork, both the imported code and the files that the trial may still import must be unchanged since the start.
    if {loaded.digest, timed_code.digest_of(files.sources(path))} != {trial.case.suite_digest}:
        raise RuntimeError(f"{path} or gpubench's timed code was edited while the run went on; start again")
    random.seed(trial.seed)
    # Some recipes use more loader processes than CPUs; the row's `loader_wait` shows the cost.
    warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
    if not loaded.suite.torch:
        clock = new_clock()
        span["start"] = time.perf_counter()
        measurement = Measurement("ok", quality=dict(loaded.suite.train(trial, clock) or {}), **clock.summary())
    else:
        measurement = _run_torch_suite(trial, loaded.suite, new_clock, join, span)
    if measurement.status == "ok" and not measurement.samples:
        raise RuntimeError('clock.steps(..., phase="train") gave the suite no batch, so no training was timed')
    return judged(_without_texts(measurement), loaded.suite, trial)


def ignore_known_warnings() -> None:
    """Ignore warnings of fastai 2.8 at its import and of torch.compile: the user can do nothing about them.

    torch.compile also lists candidates of max-autotune. It warns of calls in its own code, and of fp32 without TF32.
    """
    os.environ.setdefault("TORCHINDUCTOR_AUTOTUNE_NUM_CHOICES_DISPLAYED", "0")
    os.environ.setdefault("TORCHINDUCTOR_MAX_AUTOTUNE_REPORT_CHOICES_STATS", "0")
    for message in ("TensorFloat32 tensor cores for float32", "TypedStorage is deprecated"):
        warnings.filterwarnings("ignore", message=message, category=UserWarning)
    warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=FutureWarning)
    warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=DeprecationWarning)


def _without_texts(measurement: Measurement) -> Measurement:
    """Return the measurement with the qualities that are numbers, and a remark on the others."""
    quality = {name: value for name, value in measurement.quality.items() if isinstance(value, int | float)}
    others = measurement.quality.keys() - quality.keys()
    remarks = [f"{name} was {measurement.quality[name]!r:.100}, not a number: left out" for name in sorted(others)]
    return replace(measurement, quality=quality, reason="; ".join(filter(None, [measurement.reason, *remarks])))


def judged(measurement: Measurement, suite: Suite, trial: Trial) -> Measurement:
    """Return the measurement as `goal_missed` if a full run on real data did not reach the suite's goal.

    A suite that trains several times in one process returns the mean quality and the `success_rate`.
    """
    value = measurement.quality.get(suite.quality)
    goal = float(trial.case.params[suite.goal]) if isinstance(suite.goal, str) else suite.goal
    if not goal or value is None or measurement.status != "ok" or not trial.teaches:
        return measurement
    quality = {"success_rate": float(suite.reaches(value, goal)), **measurement.quality}
    if suite.reaches(value, goal) or quality["success_rate"] == 1:
        return replace(measurement, quality=quality)
    reason = "; ".join(filter(None, [f"{suite.quality} {value:.4f}, and the goal is {goal:g}", measurement.reason]))
    return replace(measurement, status="goal_missed", reason=reason, quality=quality)


def _open(trial: Trial) -> tuple["torch.device", Mapping[str, str], "dict[str, float] | None"]:
    """Open the device and set the precision; return the device, torch's flags, and the errors of `precision.probe`."""
    case = trial.case
    if case.device == "cpu" and case.params["huge_pages"]:
        os.environ[HUGE_PAGES] = "1"  # torch reads it at its first allocation
    import torch

    from gpubench.training import device as devices
    from gpubench.training import precision

    if case.params["threads"]:
        torch.set_num_threads(int(case.params["threads"]))
    device = devices.open_device(case.device, case.memory_limit_bytes)
    precision.set_flags(case.precision, bool(case.params["reduced_reduction"]), bool(case.params["cudnn_benchmark"]))
    flags, mode = precision.flags(), precision.mode_of(case.precision, case.device)
    return device, flags, precision.probe(case.precision, case.device, mode) if trial.prove else None


def _run_torch_suite(
    trial: Trial, suite: Suite, new_clock: Callable[..., Clock], join: Join, span: dict[str, float]
) -> Measurement:
    case, (device, flags, proof) = trial.case, _open(trial)
    import torch

    from gpubench.training import device as devices
    from gpubench.training import precision
    from gpubench.training.flops import Work, watched_steps, work_fields
    from gpubench.training.memory_layout import memory_format
    from gpubench.training.operands import OperandWatch

    peers, between = join()
    torch.manual_seed(trial.seed)
    watch, works, memory = OperandWatch(case.device), list[Work](), devices.MemoryUse(device)
    # Work is not counted in compiled code, which makes other calls than eager code.
    counted = case.mode != "probe" and not case.params.get("compile")
    steps = partial(watched_steps, watch, works, counted) if trial.prove else lambda: [nullcontext()]
    clock = new_clock(synchronize=lambda: devices.synchronize(device), watch=steps, peers=peers, memory=memory)

    span["start"] = time.perf_counter()
    quality = suite.train(trial, clock) or {}
    devices.synchronize(device)
    span["end"] = time.perf_counter()

    precision.check_flags(case.precision, flags)
    notes = clock.notes
    measurement = Measurement(
        status="ok",
        quality=dict(quality),
        peak_memory_bytes=memory.peak_bytes,
        resting_memory_bytes=memory.resting_bytes,
        allocator_retries=memory.retries,
        threads=torch.get_num_threads(),
        memory_format=memory_format(case) if "memory_format" in case.params else "",
        **between,
        **clock.summary(),
    )
    least = trial.batch_size // (case.processes if suite.ranks else 1)  # `tricks` divides a batch
    if 0 < clock.watched_samples < least and not measurement.resumed:  # later stages may have smaller batches
        raise UserError(f"no step had more than {clock.watched_samples} {suite.unit}; give a smaller --batch")
    if proof is None or not measurement.samples:  # without samples, the caller raises an error
        return measurement
    if not clock.watched_samples:
        raise precision.PrecisionError(
            "nothing proves the precision: the suite ran no step from clock.resident() (see docs/adding-a-suite.md)"
        )
    probed = ", ".join(f"{name} {error:.1e}" for name, error in proof.items())
    operands = watch.check(case.precision, case.device, notes.low_products)
    weights = precision.check_weights(case.precision, notes.weights)
    measurement = replace(
        measurement,
        precision_error=max(proof.values()),
        precision_proof="; ".join(filter(None, [f"probe {probed}", operands, weights])),
        **work_fields(works, clock.per_sample(), clock.watched_samples, _declared_flops(suite, trial)),
    )
    numbers = {name: value for name, value in measurement.quality.items() if isinstance(value, int | float)}
    lost = ", ".join(f"{name} {value}" for name, value in numbers.items() if not math.isfinite(value))
    diverged = notes.diverged or (f"the trained model has {lost}" if lost else "")
    return _diverged(measurement, diverged) if diverged else with_low_share(measurement, trial, watch, works[0], clock)


def with_low_share(
    measurement: Measurement, trial: Trial, watch: "OperandWatch", work: "Work", clock: Clock
) -> Measurement:
    """Return the measurement; in float8 or int8-mixed with the share of FLOPs that had operands of 8 bits.

    Raises Unsupported if this share is below LEAST_LOW_SHARE: the rate would be mostly that of another precision.
    """
    name = trial.case.precision
    if name not in LINEAR_ONLY:
        return measurement
    # In compiled code FLOPs are not counted: the suite's formula has their total.
    flops = work.flops or (measurement.flops_per_sample or 0) * clock.watched_samples
    share = watch.low_flops / flops if flops and watch.low_flops else None
    if share is not None and share < LEAST_LOW_SHARE:
        raise Unsupported(f"its linear layers in {name} have only {share:.1%} of the FLOPs")
    remarks = [f"{name} has {'an unknown share' if share is None else f'{share:.0%}'} of the FLOPs"]
    remarks += [f"a CPU's rate in {name} means nothing"] * (trial.case.device == "cpu")
    return replace(measurement, low_flops_share=share, reason="; ".join([*remarks, measurement.reason]).strip("; "))


def _diverged(measurement: Measurement, why: str) -> Measurement:
    """Return the measurement as diverged, without rates and qualities: the model did not learn."""
    names = ["epochs", "samples", "threads", "memory_format", "precision_error", "precision_proof"]
    names += ["loss_scale", "skipped_steps", "nonfinite_losses"]
    kept: dict[str, Any] = {name: getattr(measurement, name) for name in names}
    return Measurement(status="failed", reason=f"diverged: {why}", fault="diverged", **kept)


def _declared_flops(suite: Suite, trial: Trial) -> float | None:
    """Return the FLOPs per sample that the suite declares; None on the user's own data, whose vocabulary may differ."""
    declared_data = trial.case.data in {"synthetic", "+".join(suite.data)}
    return suite.flops(trial.case.model, trial.case.params) if suite.flops and declared_data else None


def _failure(error: Exception, trial: Trial) -> Measurement:
    """Return the measurement for an exception: unsupported, out_of_memory, or failed with the suite's line in it."""
    if isinstance(error, Unsupported):
        return Measurement(status="unsupported", reason=str(error))
    if "torch" in sys.modules:
        from gpubench.training.device import is_out_of_memory

        if is_out_of_memory(error, trial.case.device, trial.case.memory_limit_bytes):
            words = str(error).partition("\n")[0][:300]
            return Measurement(status="out_of_memory", reason=words or type(error).__name__)
    elif isinstance(error, MemoryError):
        return Measurement(status="out_of_memory", reason="MemoryError")
    if os.environ.get("GPUBENCH_TRACEBACK"):
        traceback.print_exception(error)
    suite = Path(trial.case.suite_path)
    lines = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(suite)]
    where = ""
    if lines:
        file = "the suite" if suite.suffix else f"the suite's {Path(lines[-1].filename).relative_to(suite)}"
        where = f" (line {lines[-1].lineno} of {file})"
    message = " ".join(str(error).split())[:400]
    kind = type(error).__name__
    return failed(f"{kind}: {message}{where}", error=kind)
