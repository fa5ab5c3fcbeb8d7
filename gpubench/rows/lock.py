"""Locks on files and folders themselves: each ends with its process, however that ends, and leaves nothing behind."""

import contextlib
import errno
import fcntl
import os
import platform
from datetime import datetime
from pathlib import Path

import psutil

NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
"""What a file system without locks answers; NFS has none for folders, and says EBADF."""


def lock(descriptor: int, path: Path) -> bool:
    """Lock an open file or folder for this process until it is closed; False where its file system knows no locks.

    Raises BlockingIOError where another process has it, and FileNotFoundError where it lies at `path` no more.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = True
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        locked = False
    if not is_at(descriptor, path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return locked


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file or folder is the one at `path`."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def holder(path: Path) -> str:
    """Which other process has this file open to append to it, on which host and since when, as far as one can see."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and any(
                # Only Linux tells how a file was opened.
                file.path == str(path.resolve()) and getattr(file, "mode", "a+") == "a+"
                for file in process.open_files()
            ):
                started = datetime.fromtimestamp(process.create_time())
                return f"process {process.pid} on {platform.node()}, since {started:%Y-%m-%d %H:%M:%S}"
    return "a process that cannot be seen from here: of another machine, container or user"
