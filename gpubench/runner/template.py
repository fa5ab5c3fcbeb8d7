"""Starts the children of a run as forks of a process that has imported torch and the suite (worker/template.py)."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO, Any

import psutil

from gpubench.runner.process import IMPORT_SECONDS, Message, Outcome, Started, Watch, kill_group, run_child, start_fresh

REPORT = struct.Struct("qq")
"""A template's report on its fork: (process id, 0) at the start, (0, return code) at the end."""
REPORT_SECONDS = 20.0
"""Longest wait for a report, in seconds."""
MOST_TEMPLATES = 3
"""Each has the memory of a process with torch."""


class Templates:
    """Runs tasks in forks of templates, one template per suite. A context manager and a `RunChild`.

    A task runs in a new process instead if it needs several processes or a limit of resident memory, or if a fork would
    not do the same: where the suite, when imported, fails, opens a device or starts threads.
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

    def __call__(
        self, task: Message, *, on_output: Callable[[str], None] = lambda line: None, **options: Any
    ) -> Outcome:
        """Run the task as `run_child` does."""
        return run_child(task, on_output=on_output, start=lambda: self._start(task, on_output), **options)

    def _start(self, task: Message, on_output: Callable[[str], None]) -> Started:
        path = self._suite_of(task)
        for _ in range(2):  # a template that was killed is replaced once
            template = self._ready(path)
            if template is None:
                break
            with contextlib.suppress(OSError):
                started = template.fork()
                for line in template.printed:
                    on_output(line)
                return started
            self._templates.pop(path).close()
        return start_fresh()

    def _suite_of(self, task: Message) -> str:
        """Return the path of the suite whose template runs the task; empty if the task needs a new process."""
        if sys.platform != "linux":  # elsewhere system libraries do not survive a fork
            return ""
        if task["task"] == "trial":
            case = task["trial"]["case"]
            limited = case["device"] == "cpu" and case["memory_limit_bytes"]
            return "" if case["processes"] > 1 or limited else str(case["suite_path"])
        any_suite = next(iter(self._templates), "")
        return str(task.get("suite", any_suite)) if task["task"] in {"describe", "soak", "peak"} else ""

    def _ready(self, path: str) -> "Template | None":
        """Return the suite's template, a new one if there is none; None if it was refused."""
        if not path or path in self.refused:
            return None
        if path not in self._templates:
            if len(self._templates) >= MOST_TEMPLATES:
                self._templates.pop(next(iter(self._templates))).close()
            template = Template(path)
            if template.problem:
                self.refused[path] = template.problem
                template.close()
                return None
            self._templates[path] = template
        return self._templates[path]


class Template:
    """A child that has imported a suite and forks itself for each task."""

    def __init__(self, suite: str) -> None:
        self.printed: list[str] = []
        """What the suite printed when it was imported."""
        self.problem = ""
        """Why no task may run in a fork, or empty."""
        started = start_fresh()
        self._child, self._channel, self._lifeline = started.child, started.channel, started.lifeline
        watch = Watch(self._child, self._channel, lambda event: None, self.printed.append, lambda pid: None)
        try:
            self._channel.sendall(json.dumps({"task": "template", "suite": suite}).encode() + b"\n")
            end = watch.until_done(time.monotonic(), IMPORT_SECONDS, None)
            self.problem = str(watch.answer["problem"]) if watch.answer else f"{end} while it was imported"
        except OSError as error:
            self.problem = str(error)
        except BaseException:
            self.close()
            raise
        finally:
            watch.finish()
        self._uncounted_seconds = _cpu_seconds(self._child.pid)
        """CPU time of the import, which belongs to the task that needed it first."""

    def fork(self) -> Started:
        """Start a worker that waits for its task; raises OSError if the template has ended."""
        with contextlib.ExitStack() as ends:
            channel, its_channel = socket.socketpair()
            lifeline, output = os.pipe(), os.pipe()
            ours = ends.enter_context(contextlib.ExitStack())
            ours.enter_context(channel)
            held = ours.enter_context(os.fdopen(lifeline[1], "wb"))
            printed = ours.enter_context(os.fdopen(output[0], "rb"))
            for end in (its_channel, os.fdopen(lifeline[0], "rb"), os.fdopen(output[1], "wb")):
                ends.enter_context(end)
            socket.send_fds(self._channel, [b"f"], [its_channel.fileno(), lifeline[0], output[1]])
            pid, _ = self.report(REPORT_SECONDS)
            if not pid:  # it was killed at once
                raise ConnectionAbortedError
            fork = Fork(self, pid, printed)
            ours.pop_all()
        uncounted, self._uncounted_seconds = self._uncounted_seconds, 0.0
        return Started(fork, channel, held, "forked", lambda: uncounted + _cpu_seconds(fork.pid))

    def report(self, seconds: float) -> tuple[int, int]:
        """Return the template's next report; raises TimeoutError, or OSError if it has ended."""
        self._channel.settimeout(seconds)
        try:
            report = self._channel.recv(REPORT.size)
        except BlockingIOError:
            raise TimeoutError from None
        if not report:
            raise ConnectionResetError
        pid, code = REPORT.unpack(report)
        return int(pid), int(code)

    def close(self) -> None:
        """End the template, and with it the fork that runs, if any."""
        self._channel.close()
        self._lifeline.close()
        kill_group(self._child)


class Fork:
    """A fork of a template, with the methods of `subprocess.Popen`. Its pid stays its own until the next fork."""

    def __init__(self, template: Template, pid: int, stdout: IO[bytes]) -> None:
        self._template = template
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its return code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its return code; raises TimeoutExpired.

        Without `timeout` the fork was killed: if its template does not report that, the template is ended too.
        """
        if self.returncode is None:
            try:
                _, self.returncode = self._template.report(REPORT_SECONDS if timeout is None else timeout)
            except TimeoutError:
                if timeout is not None:
                    raise subprocess.TimeoutExpired("fork", timeout) from None
                self._template.close()
                self.returncode = -signal.SIGKILL
            except OSError:  # the template was killed, and the kernel kills its forks
                self.returncode = -signal.SIGKILL
        return self.returncode


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, which may have ended, and of its children that ended."""
    with contextlib.suppress(psutil.Error):
        return float(sum(psutil.Process(pid).cpu_times()[:4]))
    return 0.0
