"""Starts the children of a run as forks of a process that has imported torch and the suite (worker/template.py)."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from typing import IO, Any

from gpubench.runner.process import IMPORT_SECONDS, Message, Outcome, ServingChild, Started, run_child, start_fresh
from gpubench.suite.trial import FORK_REPORT

REPORT_SECONDS = 20.0
"""Longest wait for a report, in seconds."""
NOT_FORKED: tuple[str, ...] = ("cpu",)
"""Devices whose trials are new processes: a CPU's tensors are in the heap that a fork inherits.

Forks of one process took the same page faults per step on a CPU (154, 1,256 or 2,144, by the process). Steps of a small
ResNet-18 took 0.92 of the CPU time of new processes (six pairs, 0.84 to 1.00), and in another test 1.09. Whether the
two differ on a card has not been measured.
"""
MOST_TEMPLATES = 3
"""Each has the memory of a process with torch."""


class Templates:
    """Runs tasks in forks of templates, a new one for each suite and round. A context manager and a `RunChild`.

    Forks of one template share its hash seed and its layout of memory, so each round has one of its own: the trials of
    a case are as independent as new processes.

    A task runs in a new process instead if its device is in NOT_FORKED, if it needs several processes, or if a fork
    would not do the same: where the suite, when imported, fails, opens a device or starts threads.
    """

    def __init__(self) -> None:
        self._templates: dict[str, Template] = {}
        self.refused: dict[str, str] = {}
        """Why a suite has no template, by path."""

    def __enter__(self) -> "Templates":
        return self

    def __exit__(self, *error: object) -> None:
        for path in list(self._templates):
            self._templates.pop(path).close()

    def __call__(self, task: Message, **options: Any) -> Outcome:
        """Run the task as `run_child` does."""
        return run_child(task, start=lambda: self._start(self._suite_of(task), _round_of(task)), **options)

    def _start(self, path: str, number: int | None) -> Started:
        with contextlib.suppress(OSError):
            if template := self._ready(path, number):
                return template.fork()
        if path in self._templates:  # it was killed, and the next task gets another one
            self._templates.pop(path).close()
        return start_fresh()

    def _suite_of(self, task: Message) -> str:
        """Return the path of the suite whose template runs the task; empty if the task needs a new process."""
        if sys.platform != "linux":  # elsewhere system libraries do not survive a fork
            return ""
        if task["task"] == "trial":
            case = task["trial"]["case"]
            return "" if case["processes"] > 1 or case["device"] in NOT_FORKED else str(case["suite_path"])
        on_card = task["task"] == "soak" or (task["task"] == "peak" and task["device"] not in NOT_FORKED)
        return next(iter(self._templates), "") if on_card else ""

    def _ready(self, path: str, number: int | None) -> "Template | None":
        """Return the suite's template for a round, or for any round; None if it cannot be forked."""
        if not path or path in self.refused:
            return None
        if path in self._templates and not self._templates[path].suits(number):
            self._templates.pop(path).close()
        if path not in self._templates:
            if len(self._templates) >= MOST_TEMPLATES:
                self._templates.pop(next(iter(self._templates))).close()
            self._templates[path] = Template({"task": "template", "suite": path})
            if problem := self._templates[path].problem():
                self.refused[path] = problem
                self._templates.pop(path).close()
                return None
            self._templates[path].suits(number)
        return self._templates[path]


class Template(ServingChild):
    """A child that has imported a suite and forks itself for each task."""

    round: int | None = None
    """The round of its trials; None before the first one."""

    def suits(self, number: int | None) -> bool:
        """Return whether it may run a trial of this round, and if so set its round; None is no trial."""
        if self.round is None:
            self.round = number
        return number in (None, self.round)

    def problem(self) -> str:
        """Wait until the suite is imported; return why no task may run in a fork, or an empty text.

        Raises ConnectionResetError if the template ended meanwhile.
        """
        answer = self.hear(IMPORT_SECONDS)
        if answer is None:
            raise ConnectionResetError
        return str(answer["problem"])

    def fork(self) -> Started:
        """Start a worker that waits for its task; raises OSError if the template has ended."""
        with contextlib.ExitStack() as ends, contextlib.ExitStack() as ours:
            channel, its_channel = socket.socketpair()
            lifeline, output = os.pipe(), os.pipe()
            held, printed = os.fdopen(lifeline[1], "wb"), os.fdopen(output[0], "rb")
            for end in (channel, held, printed):
                ours.enter_context(end)
            for end in (its_channel, os.fdopen(lifeline[0], "rb"), os.fdopen(output[1], "wb")):
                ends.enter_context(end)
            socket.send_fds(self._socket, [b"f"], [its_channel.fileno(), lifeline[0], output[1]])
            pid, _ = self.report(REPORT_SECONDS)
            if not pid:  # it was killed at once
                raise ConnectionAbortedError
            ours.pop_all()
        return Started(Fork(self, pid, printed), channel, held, "forked")

    def report(self, seconds: float) -> tuple[int, int]:
        """Return the template's next report; raises TimeoutError, or another OSError if it has ended."""
        self._socket.settimeout(seconds)
        try:
            report = self._socket.recv(FORK_REPORT.size)
        except BlockingIOError:
            raise TimeoutError from None
        if not report:
            raise ConnectionResetError
        pid, code = FORK_REPORT.unpack(report)
        return int(pid), int(code)


class Fork:
    """A fork of a template, with the methods of `subprocess.Popen`. Its pid stays its own until the next fork."""

    def __init__(self, template: Template, pid: int, stdout: IO[bytes] | None) -> None:
        self._template = template
        self.pid, self.stdout = pid, stdout
        self.returncode: Any = None

    def poll(self) -> int | None:
        """Return its return code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its return code; raises TimeoutExpired.

        Without `timeout` the fork was killed: if its template does not report that, the template is ended too.
        """
        if self.returncode is None:
            try:
                _, self.returncode = self._template.report(REPORT_SECONDS if timeout is None else timeout)
            except OSError as error:
                if isinstance(error, TimeoutError) and timeout is not None:
                    raise subprocess.TimeoutExpired("fork", timeout) from None
                self._template.close()
                self.returncode = -signal.SIGKILL  # the kernel kills the forks of a template that has ended
        return int(self.returncode)


def _round_of(task: Message) -> int | None:
    """Return the round of a trial; None for a task without a row, such as a probe."""
    if task["task"] != "trial" or task["trial"]["case"]["mode"] == "probe":
        return None
    return int(task["trial"]["index"])
