"""Temporary folders of child processes. A folder without a lock was left by a run that was killed."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpubench.errors import UserError
from gpubench.rows.lock import lock

PREFIX = "gpubench-child-"


@contextmanager
def folder() -> Iterator[str]:
    """Make a temporary folder, locked by this process and removed at the end of the block. Raises UserError."""
    while True:
        try:
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
        except OSError as error:
            raise UserError(f"no temporary folder can be made ({error.strerror}); make room or set TMPDIR") from None
        with contextlib.suppress(BlockingIOError, FileNotFoundError):  # another process's `sweep` removed it
            descriptor, _ = _locked(path)
            break
    try:
        yield str(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def sweep() -> None:
    """Remove folders that killed processes of this user left."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, or removed by another run
            if path.lstat().st_uid != os.getuid():
                continue
            descriptor, locked = _locked(path)
            try:
                if locked:
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _locked(path: Path) -> tuple[int, bool]:
    """Open the folder and return its descriptor and whether it is locked now; raises OSError as `lock` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return descriptor, lock(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
