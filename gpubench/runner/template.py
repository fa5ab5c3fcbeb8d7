"""Starts the children of a run as forks of a process that has imported torch and the suite (worker/template.py)."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from typing import IO, Any

from gpubench.runner.process import IMPORT_SECONDS, Message, Outcome, ServingChild, Started, run_child, start_fresh
from gpubench.suite.trial import FORK_REPORT

REPORT_SECONDS = 20.0
"""Longest wait for a report, in seconds."""
END_SECONDS = 1.0
"""Longest wait for a template's process to end after its socket has closed, in seconds."""
NOT_FORKED: tuple[str, ...] = ("cpu",)
"""Devices whose trials run in new processes: a CPU's tensors are in the heap, and a fork inherits the heap.

On a CPU, all forks of one template had the same number of page faults per step (154, 1,256 or 2,144, depending on the
template). A step of a small ResNet-18 took 0.92 times the CPU time that it took in a new process (six pairs, 0.84 to
1.00); in another test, 1.09 times. On a card, forks and new processes have not been compared.
"""
MOST_TEMPLATES = 3
"""Most templates at a time: each needs the memory of a process with torch."""
Key = tuple[str, int]
"""Path of the suite and number of the round whose trials a template runs."""


class Templates:
    """Runs tasks in forks of templates: one template per suite and round. A context manager and a `RunChild`.

    Forks of one template share its hash seed and its layout of memory. So each round has a new template: the trials of
    a case are as independent as new processes.

    Only trials of one process, peaks and soaks are forked. Nothing is forked outside Linux, on a device in NOT_FORKED,
    or for a suite whose import fails, opens a device, starts threads or takes too long.
    """

    def __init__(self, limit_seconds: float | None = None) -> None:
        self._import_seconds = min(IMPORT_SECONDS, limit_seconds or IMPORT_SECONDS)
        self._templates: dict[Key, Template] = {}
        self.refused: dict[str, str] = {}
        """Why a suite has no template, by path."""

    def __enter__(self) -> "Templates":
        return self

    def __exit__(self, *error: object) -> None:
        self._close(list(self._templates))

    def __call__(self, task: Message, **options: Any) -> Outcome:
        """Run the task as `run_child` does."""
        return run_child(task, start=lambda: self._start(self._key_of(task)), **options)

    def _start(self, key: Key | None) -> Started:
        if key and key[0] not in self.refused:
            try:
                self._make_ready(key)
                if key in self._templates:
                    return self._templates[key].fork()
            except OSError:  # the template was killed; the next task gets a new one
                self._close([key])
        return start_fresh()

    def _key_of(self, task: Message) -> Key | None:
        """Return the key of the template that runs the task, or None if the task needs a new process."""
        if sys.platform != "linux":  # elsewhere system libraries do not survive a fork
            return None
        if task["task"] == "trial":
            case = task["trial"]["case"]
            forked = case["processes"] == 1 and case["device"] not in NOT_FORKED
            return (str(case["suite_path"]), int(task["trial"]["index"])) if forked else None
        on_card = task["task"] == "soak" or (task["task"] == "peak" and task["device"] not in NOT_FORKED)
        return next(iter(self._templates), None) if on_card else None

    def _make_ready(self, key: Key) -> None:
        """Start the template with this key if there is none; store in `refused` why it cannot fork. Raises OSError."""
        if key in self._templates:
            return
        path, _ = key
        self._close([other for other in self._templates if other[0] == path])
        self._close(list(self._templates)[: 1 - MOST_TEMPLATES])
        self._templates[key] = Template({"task": "template", "suite": path})
        if problem := self._templates[key].problem(self._import_seconds):
            self.refused[path] = problem
            self._close([key])

    def _close(self, keys: Iterable[Key]) -> None:
        for key in keys:
            if key in self._templates:
                self._templates.pop(key).close()


class Template(ServingChild):
    """A child that has imported a suite and forks itself for each task."""

    def problem(self, seconds: float) -> str:
        """Wait for the import; return why forks must not run tasks, or "". ConnectionResetError: the template ended."""
        answer = self.hear(seconds)
        if answer is not None:
            return str(answer["problem"])
        try:
            self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return f"its import took more than {seconds:.0f} s"
        raise ConnectionResetError

    def fork(self) -> Started:
        """Start a worker that waits for its task; raises OSError if the template has ended."""
        with contextlib.ExitStack() as child_ends, contextlib.ExitStack() as parent_ends:
            channel, its_channel = socket.socketpair()
            lifeline, output = os.pipe(), os.pipe()
            our_end, printed = os.fdopen(lifeline[1], "wb"), os.fdopen(output[0], "rb")
            for end in (channel, our_end, printed):
                parent_ends.enter_context(end)
            for end in (its_channel, os.fdopen(lifeline[0], "rb"), os.fdopen(output[1], "wb")):
                child_ends.enter_context(end)
            socket.send_fds(self._socket, [b"f"], [its_channel.fileno(), lifeline[0], output[1]])
            pid, _ = self.report(REPORT_SECONDS)
            if not pid:  # it was killed at once
                raise ConnectionAbortedError
            parent_ends.pop_all()
        return Started(Fork(self, pid, printed), channel, our_end, "forked")

    def report(self, seconds: float) -> tuple[int, int]:
        """Return the template's next report; raises TimeoutError, or another OSError if the template has ended."""
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
    """A fork of a template, with the methods of `subprocess.Popen`."""

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

        Call it without `timeout` only after a kill: if the template then reports no end, the template is ended too.
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
