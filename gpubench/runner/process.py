"""Starts one task in one fresh child process, watches it, kills it when it hangs or has to stop, reads its answer."""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal, Protocol

import psutil

from gpubench.errors import UserError
from gpubench.hardware.environment import TorchFacts
from gpubench.runner import scratch

Message = Mapping[str, Any]
"""What a parent and its child tell each other: plain data, for JSON."""
WAKE_SECONDS = 0.2
"""How often the parent looks whether the child lives; in between it sleeps in select."""


@dataclass(frozen=True)
class Outcome:
    """How a child ended. `answer` is what it sent last; `died` children sent none."""

    end: Literal["answered", "died", "timed_out", "over_memory"]
    seconds: float
    """From the start of the process to its end."""
    answer: Message | None = None
    exit_code: int | None = None
    tail: str = ""
    """Last lines the child printed."""
    peak_resident_bytes: int | None = None
    """Most memory the child and all it started had at once; only looked at under a limit."""

    @property
    def reason(self) -> str:
        """Why there is no answer, in words."""
        if self.end == "timed_out":
            return f"no answer within the time limit of {self.seconds:.0f} s; the process was killed"
        if self.end == "over_memory":
            return "the process passed the memory limit and was killed"
        code = self.exit_code or 0
        if code >= 0:
            return f"the process ended with exit code {code} and no answer{self._printed}"
        name = signal.Signals(-code).name
        hint = " (by the system, out of memory, or by hand)" if name == "SIGKILL" else ""
        return f"the process was ended by {name}{hint}{self._printed}"

    @property
    def _printed(self) -> str:
        return f"; it printed: {self.tail}" if self.tail else ""


class RunChild(Protocol):
    """Runs a task and returns how it ended: `run_child`, or what stands in for it in tests."""

    def __call__(
        self,
        task: Message,
        *,
        on_event: Callable[[Message], None] = ...,
        on_output: Callable[[str], None] = ...,
        on_wake: Callable[[int], Message | None] = ...,
        time_limit_seconds: float | None = ...,
        resident_limit_bytes: int | None = ...,
    ) -> Outcome: ...


def run_child(
    task: Message,
    *,
    on_event: Callable[[Message], None] = lambda event: None,
    on_output: Callable[[str], None] = lambda line: None,
    on_wake: Callable[[int], Message | None] = lambda pid: None,
    time_limit_seconds: float | None = None,
    resident_limit_bytes: int | None = None,
) -> Outcome:
    """Run `task` in a child and wait for it, whatever it does; its whole process group is gone afterwards.

    The child answers on a socket of its own, so that what a suite prints stays the user's and reaches
    `on_output` line by line. When this process dies, the socket closes and the child ends itself. `task` is sent with
    a temporary folder, `scratch`, that is there as long as the child.
    `on_wake` is called with the child's process id a few times a second; what it returns is sent to the child.
    """
    started = time.monotonic()
    with scratch.folder() as folder:
        child, ours, lifeline = _start(subprocess.PIPE, folder)
        with ours, lifeline:
            watch = _Watch(child, ours, on_event, on_output, on_wake)
            try:
                ours.sendall(json.dumps({**task, "scratch": folder}).encode() + b"\n")
                end = watch.until_done(started, time_limit_seconds, resident_limit_bytes)
            except (BrokenPipeError, ConnectionResetError):
                end = "died"
            finally:
                _kill_group(child)
                watch.drain()
                assert child.stdout is not None
                child.stdout.close()
    return Outcome(
        end=end,
        seconds=time.monotonic() - started,
        answer=watch.answer,
        exit_code=child.returncode,
        tail=" | ".join(watch.tail),
        peak_resident_bytes=watch.peak_resident_bytes or None,
    )


def _start(output: int, folder: str) -> tuple[subprocess.Popen[bytes], socket.socket, IO[bytes]]:
    """A worker that waits for its task, our end of its socket, and a pipe: the worker ends when it closes.

    Its command line names its temporary `folder`, by which `scratch.sweep` finds one that outlives us.
    """
    ours, theirs = socket.socketpair()
    lifeline, held = os.pipe()  # the kernel closes `held` when this process dies, however it dies
    with theirs, os.fdopen(lifeline, "rb"):
        child = subprocess.Popen(
            # -P: a random.py in the user's folder must not stand in for the library's
            [sys.executable, "-P", "-m", scratch.WORKER, str(theirs.fileno()), str(lifeline), folder],
            pass_fds=[theirs.fileno(), lifeline],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output == subprocess.PIPE else output,
            start_new_session=True,  # a group of its own: killed as one, and not by the terminal's Ctrl-C
        )
    return child, ours, os.fdopen(held, "wb")


class ServingChild:
    """A child that speaks first and then answers questions, until the `with` block ends it. It prints nowhere."""

    def __init__(self, task: Message) -> None:
        self._folder = scratch.folder()
        self._child, self._socket, self._lifeline = _start(subprocess.DEVNULL, self._folder.__enter__())
        self._said = self._socket.makefile("rb")
        self._tell(task)

    def __enter__(self) -> "ServingChild":
        return self

    def __exit__(self, *error: object) -> None:
        self._said.close()
        self._socket.close()
        self._lifeline.close()
        _kill_group(self._child)
        self._folder.__exit__(None, None, None)

    def ask(self, question: Message, patience_seconds: float | None) -> Any:
        """Its answer; None where none comes within the patience, or the child is dead."""
        self._tell(question)
        return self.hear(patience_seconds)

    def hear(self, patience_seconds: float | None) -> Any:
        """What it says next; None as in `ask`."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(patience_seconds)
            return json.loads(self._said.readline() or "null")
        return None

    def _tell(self, words: Message) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(words).encode() + b"\n")


def describe(run_child: RunChild = run_child) -> TorchFacts:
    """What a child finds of torch and its devices; raises UserError where torch does not even import."""
    outcome = run_child({"task": "describe"}, time_limit_seconds=300)
    if outcome.answer is None or "facts" not in outcome.answer:
        why = (outcome.answer or {}).get("reason") or outcome.reason
        raise UserError(f"torch could not be asked for its devices: {why}")
    facts: TorchFacts = outcome.answer["facts"]
    return facts


class _Watch:
    """The selector loop over a child's socket and output."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
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
        self._pending = {"channel": b"", "output": b""}
        self._output: IO[bytes] | None = child.stdout
        self._selector = selectors.DefaultSelector()
        assert self._output is not None
        os.set_blocking(self._output.fileno(), False)
        channel.setblocking(False)
        self._selector.register(channel, selectors.EVENT_READ, self._read_channel)
        self._selector.register(self._output, selectors.EVENT_READ, self._read_output)

    def until_done(
        self, started: float, time_limit: float | None, resident_limit: int | None
    ) -> Literal["answered", "died", "timed_out", "over_memory"]:
        while True:
            for key, _ in self._selector.select(WAKE_SECONDS):
                key.data()
            if self.answer is not None:
                return "answered"
            if news := self.on_wake(self.child.pid):
                with contextlib.suppress(OSError):  # it may have just ended, which the next line sees
                    self.channel.sendall(json.dumps(news).encode() + b"\n")
            if self.child.poll() is not None:
                self.drain()
                return "answered" if self.answer is not None else "died"
            if time_limit is not None and time.monotonic() - started > time_limit:
                return "timed_out"
            if resident_limit is not None:
                self.peak_resident_bytes = max(self.peak_resident_bytes, _resident_bytes(self.child.pid))
                if self.peak_resident_bytes > resident_limit:
                    return "over_memory"

    def drain(self) -> None:
        """Read what is still in the pipes, without waiting for more."""
        for read in (self._read_channel, self._read_output):
            with contextlib.suppress(OSError, ValueError):
                read()

    def _read_channel(self) -> None:
        for line in self._lines("channel", lambda: self.channel.recv(1 << 20)):
            event = json.loads(line)
            if event["event"] == "answer":
                self.answer = event
            else:
                self.on_event(event)

    def _read_output(self) -> None:
        assert self._output is not None
        output = self._output
        for line in self._lines("output", lambda: os.read(output.fileno(), 1 << 16)):
            text = line.decode(errors="replace").rstrip()
            self.tail.append(text[:300])
            self.on_output(text)

    def _lines(self, name: str, read: Callable[[], bytes]) -> list[bytes]:
        while True:
            try:
                chunk = read()
            except BlockingIOError:
                break
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                stream = self.channel if name == "channel" else self._output
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(stream)  # type: ignore[arg-type]
                break
            self._pending[name] += chunk
        *lines, self._pending[name] = self._pending[name].split(b"\n")
        return lines


def _resident_bytes(pid: int) -> int:
    """Resident memory of a process, and what those it started have of their own: forked loaders share its pages."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        total = process.memory_info().rss
        for member in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                total += member.memory_full_info().uss
    return int(total)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """End the child and everything it started, and reap it."""
    if child.poll() is None:
        # An answered child is on its way out; give it a moment, so that a device is closed in order.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.05)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
