"""`python -m gpubench.worker`: takes one task as JSON and answers with JSON. No other process opens the accelerator."""

import ctypes
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
from typing import Any

from gpubench.worker.run_trial import sender
from gpubench.worker.tasks import answer_to


def main() -> None:
    """Read the task from the socket whose file descriptor is the first argument, and answer on it.

    The second argument is the descriptor of a pipe whose other end the parent holds as long as it lives, the third
    this process's temporary folder.
    """
    faulthandler.enable()
    _signal_when_parent_dies(signal.SIGKILL)
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    _die_with_parent(channel, int(sys.argv[2]))
    requests = channel.makefile("rb")
    task = json.loads(requests.readline())
    send = sender(channel)
    if task["task"] == "meet":
        from gpubench.worker.rendezvous import serve

        serve(task, requests, send)
        return
    settled = threading.Event()
    threading.Thread(target=_listen, args=(requests, settled), daemon=True).start()

    if task["task"] == "trial" and task["trial"]["case"]["processes"] > 1:
        from gpubench.worker.elastic import run

        answer = run(task, channel)
    else:
        answer = answer_to(task, send, settled.is_set)
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
        _signal_when_parent_dies(signal.SIGCONT)  # so that it watches again if it was stopped with the others
        channel.close()
        os.read(lifeline, 1)  # returns when the parent's end has closed
        os.killpg(0, signal.SIGKILL)
    os.close(lifeline)


def _signal_when_parent_dies(number: int) -> None:
    """Have the system send this signal to this process then, which also reaches one that is stopped; only Linux can."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
        ctypes.CDLL(None).prctl(set_parent_death_signal, number)


def _listen(requests: Any, settled: threading.Event) -> None:
    """Hear from the parent, which reads the card, that its clock and temperature have settled."""
    for line in requests:
        if json.loads(line).get("settled"):
            settled.set()


if __name__ == "__main__":
    main()
