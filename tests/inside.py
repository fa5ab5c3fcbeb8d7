"""Stands in for `run_child`: the worker's own code, in the test's process, behind the same JSON both ways.

A trial then costs what it trains and not a new interpreter with torch. What only a process has (crashes, limits, groups
of processes, signals) is not here: those tests start real ones. And sleep is a number that clocks are moved by.
"""

import io
import itertools
import json
import os
import sys
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from functools import cache, partial
from unittest.mock import patch

from gpubench.hardware import environment
from gpubench.runner import measured_peaks
from gpubench.runner.process import Outcome
from gpubench.training.clock.clock import Clock
from gpubench.worker import __main__ as worker
from gpubench.worker import run_trial

PEAK = {"flops_per_second": 1e11, "bytes_per_second": 1e10, "op_seconds": 1e-6, "side": 1024}


def run_inside(
    task,
    *,
    on_event=lambda event: None,
    on_output=lambda line: None,
    on_wake=lambda pid: None,
    time_limit_seconds=None,
    resident_limit_bytes=None,
):
    """As `run_child`, but for limits, which need a process to kill, and the peak, which takes seconds to measure."""
    if task["task"] == "describe":
        return Outcome("answered", 0.0, described())
    if task["task"] == "peak":
        return Outcome("answered", 0.0, {"rates": PEAK})
    if task["task"] == "trial":
        assert task["trial"]["case"]["processes"] == 1, "several processes need cli_process"
    started = time.monotonic()
    printed, told = io.StringIO(), []

    def send(event):
        on_event(json.loads(json.dumps(event)))
        told.append(on_wake(os.getpid()))

    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    environ = dict(os.environ)
    try:
        # A child prints its warnings; here they would be errors of the test.
        with redirect_stdout(printed), redirect_stderr(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settled = lambda: next((word["settled"] for word in reversed(told) if word), False)  # noqa: E731
            answer = worker.answer_to(json.loads(json.dumps(task)), send, settled)
    finally:
        os.environ.clear()
        os.environ.update(environ)
        if threads:
            sys.modules["torch"].set_num_threads(threads)
    for line in printed.getvalue().splitlines():
        on_output(line)
    return Outcome("answered", time.monotonic() - started, json.loads(json.dumps({"event": "answer", **answer})))


def skip_sleep(monkeypatch):
    """From now on `time.sleep` returns at once, and the clocks say that it did not: the clock of trials, too."""
    slept = 0.0

    def sleep(seconds):
        nonlocal slept
        slept += seconds

    for name in ("monotonic", "perf_counter"):
        real = getattr(time, name)
        monkeypatch.setattr(time, name, lambda real=real: real() + slept)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(run_trial, "Clock", partial(Clock, now=time.perf_counter))


@cache
def described():
    """What torch says of this machine; it says the same all day. Its CPU counts as one with bf16.

    On others torch computes bf16 in software, slowly; only LSTMs cannot.
    """
    with patch.object(environment, "_cpu_bf16", dict):
        return worker.answer_to({"task": "describe"}, lambda event: None)


def store_peaks():
    """Store a peak of this CPU in the cache: to measure it takes ten seconds of a processor, for each run anew."""
    torch, counts = described()["facts"]["torch"], range(1, environment.cpu_count() + 1)
    with patch("gpubench.hardware.host.cpu_load", lambda cpus: None):  # else only where nobody uses the CPU meanwhile
        for precision, threads in itertools.product(("fp32", "bf16"), counts):
            measured_peaks.measure(environment.cpu_device(), torch, precision, threads, 0.0, print, run_inside)


def answering(result_of, devices=list):
    """A `run_child` whose trials end as `result_of(trial)` in JSON; `devices()` are those of the machine by then."""

    def run_child(task, **options):
        answer = {}
        if task["task"] == "describe":
            answer = {
                "facts": {"torch": "2.15.0", "cuda": "13.2", "cudnn": "9", "devices": list(map(asdict, devices()))}
            }
        elif task["task"] == "trial":
            answer = {"measurement": asdict(result_of(task["trial"])), "train_call_seconds": 1.0}
        return Outcome("answered", 1.0, answer)

    return run_child
