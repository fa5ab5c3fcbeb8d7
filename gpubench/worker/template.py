"""The template: imports a suite and what it trains with, once, and forks itself for each task. It opens no device.

A fork begins as a new worker does after its imports. `__main__.py` calls this; runner/template.py is the parent's side.
"""

import os
import socket
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from gpubench.suite import files, timed_code
from gpubench.suite.suite import Imported
from gpubench.suite.trial import FORK_REPORT
from gpubench.worker import run_trial
from gpubench.worker.run_trial import Send

MOST_PRINTED = 1 << 14
"""Most bytes of an import's output that each fork repeats: a pipe can hold so many before they are read."""
DEVICE_FILES = ("/dev/nv", "/dev/dxg", "/dev/kfd", "/dev/dri")
"""Beginnings of the device files that a process has open once it has initialised a card's driver (/dev/dxg under WSL).
CUDA does not work in forks of such a process."""
IMPORTED_LATE = ("device", "flops", "memory_layout", "operands", "precision", "process_group")
"""Modules of gpubench.training that run_trial.py imports only inside functions."""


def fork_for_each_task(suite: str, channel: socket.socket, send: Send) -> tuple[int, int]:
    """Import the suite at this path, then fork for each request of the parent until the parent ends.

    Returns only in forks: the file descriptors of the fork's socket, and of the pipe that closes when the parent ends.
    """
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        problem = _import(Path(suite)) or _not_to_fork()
        sys.stdout.flush()
        sys.stderr.flush()
        printed = os.pread(output.fileno(), MOST_PRINTED, 0)
    send({"event": "answer", "problem": problem})
    while True:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 3)
        if not descriptors:
            os._exit(0)
        fork = os.fork()
        if fork == 0:
            return _begin_fork(channel, printed, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(fork, 0)
        channel.sendall(FORK_REPORT.pack(0, os.waitstatus_to_exitcode(status)))


def _begin_fork(
    channel: socket.socket, printed: bytes, its_channel: int, lifeline: int, output: int
) -> tuple[int, int]:
    """Give a fork its own process group, output and random numbers; return the descriptors of its socket and pipe.

    The fork prints what the import `printed`, as a new process would.
    """
    os.setsid()  # before the parent gets the process id, with which it kills the group
    channel.sendall(FORK_REPORT.pack(os.getpid(), 0))
    os.close(channel.detach())
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.write(1, printed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python seeds its own generator after a fork
    return its_channel, lifeline


def _import(path: Path) -> str:
    """Import the suite at `path` and the modules that train it; returns why that failed, or an empty text."""
    run_trial.ignore_known_warnings()
    # pandas imports pyarrow if it is installed; pyarrow's allocator would start a thread.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    try:
        loaded, sources = files.load(path), files.sources(path)
        digest = loaded.digest
        if loaded.suite.torch:
            for module in IMPORTED_LATE:
                import_module(f"gpubench.training.{module}")
            torch = import_module("torch")
            torch.optim.SGD([torch.zeros(1)])  # a process's first optimizer imports the compiler, in 2 to 4 seconds
        if isinstance(loaded.suite.train, Imported):
            import_module(loaded.suite.train.module)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    run_trial.imported[str(path)] = loaded
    return "" if timed_code.digest_of(sources) == digest else "its code was edited while it was imported"


def _not_to_fork() -> str:
    """Return why a fork would not be like a new process, or an empty text."""
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if any(file.startswith(DEVICE_FILES) for file in opened) or (cuda and cuda.is_initialized()):
        return "it has opened a device"
    fork = os.fork()  # libraries such as OpenBLAS end their threads before a fork, and restart them when needed
    if fork == 0:
        os._exit(0)
    os.waitpid(fork, 0)
    return "it has started threads" if len(list(Path("/proc/self/task").iterdir())) > 1 else ""
