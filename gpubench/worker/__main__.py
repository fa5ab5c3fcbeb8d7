"""The child process, `python -m gpubench.worker`: reads one task as JSON, runs it, and sends the result as JSON.

Only such processes open the accelerator; the parent never does.
"""

import ctypes
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpubench.errors import UserError

# Everything that imports numpy is imported after `_begin`: until then, a process that is stopped outlives its parent.
if TYPE_CHECKING:
    from gpubench.worker.run_trial import Message, Send


def main() -> None:
    """Read the task from a socket, run it, and send the result.

    Arguments of the command: the file descriptors of the socket, and of a pipe that closes when the parent ends.
    """
    faulthandler.enable()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler would print lines that mean nothing here
    channel, requests, task = _begin(int(sys.argv[1]), int(sys.argv[2]))
    from gpubench.worker.run_trial import sender

    if task["task"] == "template":
        from gpubench.worker.template import fork_for_each_task

        channel, requests, task = _begin(*fork_for_each_task(task["suite"], channel, sender(channel)))
    send = sender(channel)
    if task["task"] == "meet":
        from gpubench.worker.rendezvous import serve

        serve(task, requests, send)
        return
    settled = threading.Event()
    threading.Thread(target=_listen, args=(requests, settled), daemon=True).start()

    if task["task"] == "trial" and task["trial"]["case"]["processes"] > 1:
        from gpubench.worker.ranks import run

        answer = run(task, channel)
    else:
        answer = answer_to(task, send, settled.is_set)
    send({"event": "answer", **answer})
    sys.stdout.flush()
    sys.stderr.flush()
    # The result is sent; a normal exit of an interpreter with torch takes most of a second.
    os._exit(0)


def _begin(descriptor: int, lifeline: int) -> tuple[socket.socket, Any, "Message"]:
    """Connect to the parent; return the socket, a file that reads from the socket, and the task."""
    _signal_when_parent_dies(signal.SIGKILL)
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    _die_with_parent(channel, lifeline)
    requests = channel.makefile("rb")
    return channel, requests, json.loads(requests.readline())


def _die_with_parent(channel: socket.socket, lifeline: int) -> None:
    """End this process group when the parent ends, even by SIGKILL.

    A separate process, forked before there are threads, waits for the parent's end. It works even if a C call
    hangs here, and also ends processes that the suite started, such as loaders.
    """
    if os.fork() == 0:
        _signal_when_parent_dies(signal.SIGCONT)  # so that it continues if it was stopped with the others
        channel.close()
        os.read(lifeline, 1)  # returns when the parent's end of the pipe has closed
        os.killpg(0, signal.SIGKILL)
    os.close(lifeline)


def _signal_when_parent_dies(number: int) -> None:
    """Make Linux send this signal to this process when its parent ends, even if this process is stopped."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
        ctypes.CDLL(None).prctl(set_parent_death_signal, number)


def _listen(requests: Any, settled: threading.Event) -> None:
    """Set `settled` while the parent, which reads the card's sensors, reports that the card has settled."""
    for line in requests:
        if json.loads(line).get("settled"):
            settled.set()
        else:
            settled.clear()


def answer_to(task: "Message", send: "Send", settled: Callable[[], bool] = lambda: False) -> "Message":
    """Run `task` and return its result; `send` sends progress, `settled` returns whether the card has settled."""
    if task["task"] == "trial":
        from gpubench.suite.trial import trial_from_json
        from gpubench.worker.run_trial import measure

        # Only a parent that reads the card knows when the card has settled.
        return measure(trial_from_json(task["trial"]), send, settled if task.get("watched") else None)
    if task["task"] == "soak":
        from gpubench.training.device import soak

        soak(task["devices"], task["seconds"])
        return {}
    try:
        return _answer(task)
    except UserError as error:
        return {"reason": str(error)}
    except Exception as error:  # no kernel for this device, out of memory, or an error of the suite's own code
        return {"reason": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}


def _answer(task: "Message") -> "Message":
    """Run a task other than a trial or a soak, and return its result; may raise any error."""
    from gpubench.suite.trial import trial_from_json

    if task["task"] == "import":
        from gpubench.suite.files import find_all

        find_all(task["suites"])
        return {}
    if task["task"] == "describe":
        from gpubench.training.device import describe

        return {"facts": describe()}
    if task["task"] == "peak":
        from gpubench.worker.measure_peak import measure_rates

        return {"rates": measure_rates(task["device"], task["precision"], task["threads"], task["soak_seconds"])}
    if task["task"] == "memory":
        from gpubench.worker.step_memory import step_memory

        return {"steps": step_memory(trial_from_json(task["trial"]), task["limits_bytes"])}
    from gpubench.worker.trace_network import network_of

    return {"network": network_of(trial_from_json(task["trial"]))}


if __name__ == "__main__":
    main()
