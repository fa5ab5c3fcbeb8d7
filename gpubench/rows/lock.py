"""Locks files and folders for this process, without lock files: the system unlocks them when the process ends."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
"""Errors of a file system without locks. NFS has none for folders, and returns EBADF."""


def lock(descriptor: int, path: Path) -> bool:
    """Lock an open file or folder until it is closed; return False if its file system has no locks.

    Raises BlockingIOError if another process has locked it, and FileNotFoundError if it is no longer at `path`.
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
    """Return whether the open file or folder is the one at `path`."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
