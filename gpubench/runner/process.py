"""Starts a task in a new child process, watches it, kills it if it hangs or has to stop, and reads its answer."""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, Protocol

import psutil

from gpubench.errors import UserError
from gpubench.hardware.environment import TorchFacts
from gpubench.printed import duration

Message = Mapping[str, Any]
"""A message between parent and child: data for JSON."""
End = Literal["answered", "died", "timed_out", "over_memory", "garbled"]
WAKE_SECONDS = 0.2
"""Seconds between two checks whether the child is alive; in between the parent sleeps in select."""
CLOSE_SECONDS = 0.05
"""Longest wait for a child that is about to end, before it is killed."""
PAUSE_SECONDS = 0.01
"""Pause between reads, so that the next one reads more at once."""
IMPORT_SECONDS = 120.0
"""Time limit for importing a suite."""
MOST_READ = 1 << 20
"""Most bytes per read, so that limits are checked even if a child prints without end."""
MOST_LINE = {"channel": 1 << 26, "output": 1 << 16}
"""Longest line, in bytes. A longer message ends the child; longer output is shown in parts."""
MOST_SHOWN = 500_000
"""Most characters of a child's output that are shown."""


class Child(Protocol):
    """A started process: `subprocess.Popen`, or a fork with the same methods."""

    pid: int
    returncode: Any
    stdout: IO[bytes] | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(frozen=True)
class Started:
    """A worker that waits for its task."""

    child: Child
    channel: socket.socket
    """Our end of its socket."""
    lifeline: IO[bytes]
    """Our end of a pipe. The worker ends when this end closes; the kernel closes it if this process dies."""
    start: Literal["fresh", "forked"] = "fresh"
    """Whether it is a new process or a fork of a template (template.py)."""


@dataclass(frozen=True)
class Outcome:
    """How a child process ended. `answer` is its last message; a child that died sent none."""

    end: End
    seconds: float
    """Time from the start of the process to its end."""
    answer: Message | None = None
    exit_code: int | None = None
    tail: str = ""
    """Last lines that the child printed."""
    peak_resident_bytes: int | None = None
    """Peak memory of the child and the processes that it started; measured only with a limit."""
    start: Literal["fresh", "forked"] = "fresh"

    @property
    def reason(self) -> str:
        """Why there is no answer."""
        if self.end == "timed_out":
            return f"no answer within the time limit; the process was killed after {duration(self.seconds)}"
        if self.end == "garbled":
            return "the process sent a message that gpubench cannot read, and was killed"
        code, printed = self.exit_code or 0, f"; it printed: {self.tail}" if self.tail else ""
        if code >= 0:
            return f"the process ended with exit code {code} and no answer{printed}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = " (out of memory, or killed by a user)" if name == "SIGKILL" else ""
        return f"the process was ended by {name}{hint}{printed}"


RunChild = Callable[..., Outcome]
"""Runs a task and returns how it ended: `run_child`, `Templates`, or a replacement in tests."""


def run_child(
    task: Message,
    *,
    on_event: Callable[[Message], None] = lambda event: None,
    on_output: Callable[[str], None] = lambda line: None,
    on_wake: Callable[[int], Message | None] = lambda pid: None,
    time_limit_seconds: float | None = None,
    resident_limit_bytes: int | None = None,
    start: Callable[[], Started] | None = None,
) -> Outcome:
    """Run `task` in a child process and wait for its end; afterwards its whole process group is killed.

    The child answers on a separate socket, so `on_output` gets only what the suite prints, line by line. If this
    process dies, the child ends itself. `task` is sent with `scratch`: the path of a temporary folder that exists as
    long as the child, or an empty text if the task needs only one process. `on_wake` is called with the child's process
    id a few times a second; its result is sent to the child. `start` starts the child, by default as a new process.
    """
    began = time.monotonic()
    # Only trials of several processes write logs. Other tasks get no folder, so a kill leaves none behind.
    has_logs = "trial" in task and task["trial"]["case"]["processes"] > 1
    with temporary_folder() if has_logs else contextlib.nullcontext("") as folder:
        started = start() if start else start_fresh()
        child = started.child
        with started.channel, started.lifeline:
            watch = _Watch(child, started.channel, on_event, on_output, on_wake)
            try:
                started.channel.sendall(json.dumps({**task, "scratch": folder}).encode() + b"\n")
                end = watch.until_done(began, time_limit_seconds, resident_limit_bytes)
            except (BrokenPipeError, ConnectionResetError):
                end = "died"
            finally:
                _kill_group(child)
                watch.finish()
    return Outcome(
        end=end,
        seconds=time.monotonic() - began,
        answer=watch.answer,
        exit_code=child.returncode,
        tail=" | ".join(watch.tail),
        peak_resident_bytes=watch.peak_resident_bytes or None,
        start=started.start,
    )


def temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    """Make a folder that is removed at the end of a `with` block; raises UserError."""
    try:
        return tempfile.TemporaryDirectory(prefix="gpubench-", ignore_cleanup_errors=True)
    except OSError as error:
        raise UserError(f"no temporary folder can be made ({error.strerror}); free disk space or set TMPDIR") from None


def start_fresh(output: int = subprocess.PIPE) -> Started:
    """Start a worker in a new process."""
    parent_socket, child_socket = socket.socketpair()
    lifeline, parent_end = os.pipe()
    with child_socket, os.fdopen(lifeline, "rb"):
        child = subprocess.Popen(
            # -P: a random.py in the user's folder must not replace the standard library's
            [sys.executable, "-P", "-m", "gpubench.worker", str(child_socket.fileno()), str(lifeline)],
            pass_fds=[child_socket.fileno(), lifeline],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output == subprocess.PIPE else output,
            start_new_session=True,  # a separate group: it is killed as a whole, and Ctrl-C does not reach it
        )
    return Started(child, parent_socket, os.fdopen(parent_end, "wb"))


class ServingChild:
    """A child that sends a message and then answers questions, until it is closed. Its output is discarded."""

    def __init__(self, task: Message) -> None:
        started = start_fresh(subprocess.DEVNULL)
        self._child, self._socket, self._lifeline = started.child, started.channel, started.lifeline
        self._messages = self._socket.makefile("rb")
        self._send(task)

    def close(self) -> None:
        """End the child and all that it started."""
        if self._lifeline.closed:  # closed before: another process may have the child's id now
            return
        self._messages.close()
        self._socket.close()
        self._lifeline.close()
        _kill_group(self._child)

    def ask(self, question: Message, patience_seconds: float | None) -> Any:
        """Return the child's answer, or None if there is none in time or the child has ended."""
        self._send(question)
        return self.hear(patience_seconds)

    def hear(self, patience_seconds: float | None) -> Any:
        """Return the child's next message, or None if there is none in time or the child has ended."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(patience_seconds)
            return json.loads(self._messages.readline() or "null")
        return None

    def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")


def describe(run_child: RunChild = run_child) -> TorchFacts:
    """Return what a child reports about torch and its devices; raises UserError if torch cannot be imported."""
    outcome = run_child({"task": "describe"}, time_limit_seconds=300)
    if outcome.answer is None or "facts" not in outcome.answer:
        why = (outcome.answer or {}).get("reason") or outcome.reason
        raise UserError(f"torch did not list its devices: {why}")
    facts: TorchFacts = outcome.answer["facts"]
    return facts


def check_imports(names: Sequence[str], limit_seconds: float | None, run_child: RunChild = run_child) -> None:
    """Import suites of the user in a child; raises UserError if the import fails, hangs or ends the process."""
    if not names:
        return
    limit = min(IMPORT_SECONDS, limit_seconds or IMPORT_SECONDS)
    task = {"task": "import", "suites": list(names)}
    outcome = run_child(task, time_limit_seconds=limit)
    if outcome.end == "died" and (outcome.exit_code or 0) < 0:  # perhaps a user killed it: try again
        outcome = run_child(task, time_limit_seconds=limit)
    if outcome.answer is None:
        raise UserError(f"--suite {', '.join(names)}: the import failed: {outcome.reason}")
    if reason := outcome.answer.get("reason"):
        raise UserError(str(reason))


class _Watch:
    """Reads a child's socket and output in a selector loop."""

    def __init__(
        self,
        child: Child,
        channel: socket.socket,
        on_event: Callable[[Message], None],
        on_output: Callable[[str], None],
        on_wake: Callable[[int], Message | None],
    ) -> None:
        self.child, self.channel = child, channel
        self.on_event, self.on_output, self.on_wake = on_event, on_output, on_wake
        self.answer: Message | None = None
        self.peak_resident_bytes = 0
        self.tail: deque[str] = deque(maxlen=8)
        self._garbled = False
        self._shown = 0
        self._pending = {"channel": bytearray(), "output": bytearray()}
        assert child.stdout is not None
        self._output = child.stdout
        self._selector = selectors.DefaultSelector()
        os.set_blocking(self._output.fileno(), False)
        self._selector.register(channel, selectors.EVENT_READ, self._read_channel)
        self._selector.register(self._output, selectors.EVENT_READ, self._read_output)

    def until_done(self, started: float, time_limit: float | None, resident_limit: int | None) -> End:
        woken = started
        self.channel.setblocking(False)  # not before the task is sent, which may be longer than the socket's buffer
        while True:
            for key, _ in self._selector.select(WAKE_SECONDS):
                key.data()
            if self._garbled:
                return "garbled"
            if self.answer is not None:
                return "answered"
            if self.child.poll() is not None:
                self.drain()
                return "garbled" if self._garbled else "answered" if self.answer is not None else "died"
            if time.monotonic() - woken < WAKE_SECONDS / 2:
                time.sleep(PAUSE_SECONDS)  # a child that prints without end must not keep this process busy
                continue
            woken = time.monotonic()
            if message := self.on_wake(self.child.pid):
                with contextlib.suppress(OSError):  # the child may just have ended; the next iteration checks that
                    self.channel.sendall(json.dumps(message).encode() + b"\n")
            if time_limit is not None and time.monotonic() - started > time_limit:
                return "timed_out"
            if resident_limit is not None:
                self.peak_resident_bytes = max(self.peak_resident_bytes, _resident_bytes(self.child.pid))
                if self.peak_resident_bytes > resident_limit:
                    return "over_memory"

    def drain(self) -> None:
        """Read what is left in socket and pipe, without waiting. 16 reads empty both if no process writes any more."""
        for read in (self._read_channel, self._read_output):
            with contextlib.suppress(OSError, ValueError):
                for _ in range(16):
                    read()

    def finish(self) -> None:
        """Read what is left after the child's end, also a last line without a newline, and close the output."""
        self.drain()
        if line := self._pending["output"]:
            self._show(line)
        self._selector.close()
        self._output.close()

    def _read_channel(self) -> None:
        for line in self._lines("channel", lambda: self.channel.recv(MOST_READ)):
            # A suite can write anything to the socket's descriptor.
            try:
                event = json.loads(line)
                if event["event"] == "answer":
                    self.answer = event
                else:
                    self.on_event(event)
            except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
                self._garbled = True

    def _read_output(self) -> None:
        for line in self._lines("output", lambda: os.read(self._output.fileno(), MOST_READ)):
            self._show(line)

    def _show(self, line: bytearray) -> None:
        """Keep a line of output for `tail`, and show it unless MOST_SHOWN characters were shown before."""
        text = line.decode(errors="replace").rstrip()
        self.tail.append(text[:300])
        was_shown, self._shown = self._shown <= MOST_SHOWN, self._shown + len(text) + 1
        if self._shown <= MOST_SHOWN:
            self.on_output(text)
        elif was_shown:
            self.on_output(f"(after {MOST_SHOWN:,} characters its output is not shown)")

    def _lines(self, name: str, read: Callable[[], bytes]) -> list[bytearray]:
        """Read once, and return the lines that are complete now; a line that is too long is cut."""
        pending = self._pending[name]
        try:
            chunk = read()
        except BlockingIOError:
            return []
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            stream: socket.socket | IO[bytes] = self.channel if name == "channel" else self._output
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(stream)
        pending += chunk
        if b"\n" not in chunk and len(pending) <= MOST_LINE[name]:
            return []
        *lines, rest = pending.split(b"\n")
        if len(rest) > MOST_LINE[name]:
            lines, rest = [*lines, rest], bytearray()
        self._pending[name] = rest
        return lines


def _resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process plus the unshared bytes of its children: forked loaders share pages."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        total = process.memory_info().rss
        for member in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                total += member.memory_full_info().uss
    return int(total)


def _kill_group(child: Child) -> None:
    """Kill the child's process group, and wait for the end of the child."""
    if child.poll() is None:
        # A child that has answered is about to end: let it close its device.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=CLOSE_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
