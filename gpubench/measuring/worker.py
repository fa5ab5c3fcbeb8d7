"""The child process: takes one task as JSON and answers with JSON. No other process opens the accelerator."""

import faulthandler
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpubench.measuring.trial_runner import Send, clock_for, measure, sender
from gpubench.trial import trial_from_json


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
    send = sender(channel)
    if task["task"] == "meet":
        from gpubench.measuring.meeting import serve

        serve(task, requests, send)
        return
    settled = threading.Event()
    threading.Thread(target=_listen, args=(requests, settled), daemon=True).start()

    if task["task"] == "trial" and task["trial"]["case"]["processes"] > 1:
        from gpubench.measuring.agent import run

        answer = run(task, channel)
    else:
        answer = answer_to(task, send, settled.is_set)
    send({"event": "answer", **answer})
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is said; tearing an interpreter full of torch down costs most of a second.
    os._exit(0)


def answer_to(task: Mapping[str, Any], send: Send, settled: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """What this one process finds out about `task`; `send` takes news, `settled` tells what the parent has said."""
    if task["task"] == "describe":
        return _describe()
    if task["task"] == "soak":
        return _soak(task["devices"], task["seconds"])
    if task["task"] == "peak":
        return _peak(task["device"], task["precision"], task["threads"], task["soak_seconds"])
    trial = trial_from_json(task["trial"])
    # Only a parent that reads the card can tell when it has settled.
    return measure(trial, clock_for(trial, send, settled if task.get("watched") else None))


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


def _listen(requests: Any, settled: threading.Event) -> None:
    """Hear from the parent, which reads the card, that its clock and temperature have settled."""
    for line in requests:
        if json.loads(line).get("settled"):
            settled.set()


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


def _peak(device: str, precision: str, threads: int, soak_seconds: float) -> dict[str, Any]:
    from gpubench.measuring.rates import measure_rates

    try:
        return {"rates": measure_rates(device, precision, threads, soak_seconds)}
    except RuntimeError as error:  # no such kernel here, or no memory for it
        return {"reason": str(error).partition("\n")[0]}


if __name__ == "__main__":
    main()
