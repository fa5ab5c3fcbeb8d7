"""Appends rows to the CSV file of a run (--out), locked and synced. Ends a torn last line, refuses other columns."""

import io
import os
import shlex
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gpubench.errors import UserError
from gpubench.rows.files import csv_line
from gpubench.rows.lock import is_at, lock
from gpubench.rows.row import COLUMNS, Row, to_cells

HEADER = ",".join(COLUMNS).encode()
RUN_WAITS_SECONDS, APPEND_WAITS_SECONDS = 2.0, 30.0
"""How long to wait for another writer of the file. A run waits less: the other writer may write for hours."""


class Busy(UserError):
    """Another process writes the file."""


class Rescued(UserError):
    """Rows could not be added to their file. The message names the new file with them; without one, `data` has them."""

    exit_code = 4

    def __init__(self, message: str, data: str = "") -> None:
        super().__init__(message)
        self.data = data


class RowsFile:
    """The CSV file of a run, locked by this process inside the `with` block.

    A new file is created at once, and removed at the end if it is still empty.

    Args:
        path: the file; a missing folder is created.
        patience_seconds: how long to wait for another process that writes it.
    """

    def __init__(self, path: Path, patience_seconds: float = RUN_WAITS_SECONDS) -> None:
        self.path, self._patience_seconds = path, patience_seconds
        self.notes: list[str] = []
        """Remarks on the state of the file when it was opened."""

    def __enter__(self) -> "RowsFile":
        """Open and lock the file. Raises Busy, or UserError if it cannot be written or has another table."""
        path = self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise UserError(f"--out {path}: not a file; give another --out")
            self._file = self._opened()
            try:
                self._begin()
            except BaseException:
                self._file.close()
                raise
        except BlockingIOError:
            raise Busy(f"--out {path}: another run is writing it; wait for its end or give another --out") from None
        except OSError as error:
            raise UserError(f"--out {path}: cannot write there ({error.strerror}); give another --out") from None
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            is_same_file = not self.path.is_symlink() and is_at(self._file.fileno(), self.path)
            if is_same_file and self._size == self._size_now() == 0:
                self.path.unlink()
        self._file.close()

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows at the end, and sync. Raises Rescued if that fails: another file or the error then has the rows."""
        lines = "".join(f"{csv_line(to_cells(row))}\n" for row in rows).encode()
        try:
            why = self._why_not()
            if not why:
                self._write(lines if self._size_now() else HEADER + b"\n" + lines)
                return
        except OSError as error:
            why = f"could not be written ({error.strerror})"
        raise self._rescued(lines, why)

    def _opened(self) -> io.FileIO:
        """Return the file, created if it is missing, and locked if its file system has locks."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            file = io.FileIO(self.path, "a+")
            try:
                if not lock(file.fileno(), self.path):
                    self.notes.append(f"{self.path}: no locks on its file system, so a second run would not be noticed")
                return file
            except OSError as error:
                file.close()
                # Another run may have removed its empty file in between.
                if not isinstance(error, BlockingIOError | FileNotFoundError) or time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)

    def _begin(self) -> None:
        """Check the header, and end a last line that was torn when a run was killed."""
        file, self._size = self._file, self._size_now()
        start = os.pread(file.fileno(), len(HEADER) + 2, 0)
        if self._size <= len(HEADER) and HEADER.startswith(start):
            if start:
                file.truncate(0)
                self.notes.append(f"{self.path}: it had only a torn header; started anew")
        elif not _is_header(start):
            raise UserError(f"--out {self.path}: it has another table, or rows of another gpubench; give a new file")
        elif _seal(file):
            self.notes.append(
                f"{self.path}: the last line was torn (a run was killed while writing it); it is kept and not used"
            )
        self._size = self._size_now()

    def _size_now(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _why_not(self) -> str:
        """Return why no rows may be added to the file any more; empty if rows may be added. Raises OSError."""
        if not self.path.exists():
            return "was removed"
        if not is_at(self._file.fileno(), self.path):
            return "was replaced by another file"
        size = self._size_now()
        if size < self._size:
            return "was cut short"
        if size and not _is_header(os.pread(self._file.fileno(), len(HEADER) + 2, 0)):
            return "was overwritten"
        if size:
            _seal(self._file)
        return ""

    def _write(self, content: bytes) -> None:
        """Write all of the content and sync; if that fails, cut the file back to its old size. Raises OSError."""
        before = self._size_now()
        try:
            _write_out(self._file, content)
        except OSError:
            with suppress(OSError):
                self._file.truncate(before)
            raise
        self._size = before + len(content)

    def _rescued(self, lines: bytes, why: str) -> Rescued:
        """Write the lines to a new file, and return the error that names it; if that fails, the error has the lines."""
        earlier = b""
        with suppress(OSError):
            if os.fstat(self._file.fileno()).st_nlink == 0:  # the file was removed, and its earlier rows would be lost
                self._file.seek(0)
                earlier = self._file.read()
        content = (earlier or HEADER + b"\n") + lines
        place = _new_file_beside(self.path, content)
        if place is None:
            message = f"{self.path} {why}, and no other file could be written. Keep these lines:"
            return Rescued(message, content.decode())
        count = content.count(b"\n") - 1
        again = f"cat {shlex.quote(str(place))} >> {shlex.quote(str(self.path))}"
        return Rescued(
            f"{self.path} {why} during the run, so {count} row{'s are' if count > 1 else ' is'} in {place} instead."
            f" To go on, free disk space or move away what is now at {self.path}, run `{again}`, then the same command"
        )


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows to a file that this process has not opened; waits while another process writes it.

    Raises UserError if that takes too long or the file cannot be written, and Rescued as `RowsFile.append` does.
    """
    with RowsFile(path, APPEND_WAITS_SECONDS) as file:
        file.append(rows)


def check_writable(path: Path) -> None:
    """Raise UserError if `append` could not write the file: a check before hours of work.

    Creates the folder, and ends a torn last line. A file that a run is writing passes.
    """
    with suppress(Busy), RowsFile(path, patience_seconds=0):
        pass


def _is_header(start: bytes) -> bool:
    """Return whether a file with these first bytes has our header; spreadsheets end its line with CR LF."""
    return start.startswith((HEADER + b"\n", HEADER + b"\r\n"))


def _write_out(file: io.FileIO, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]
    os.fsync(file.fileno())


def _new_file_beside(path: Path, content: bytes) -> Path | None:
    """Return a new file with the content, in the same folder or else the temporary one; None if both fail."""
    for folder in (path.parent, None):
        with suppress(OSError):
            descriptor, name = tempfile.mkstemp(".csv", f"{path.stem}.rescued-", folder)
            try:
                with io.FileIO(descriptor, "w") as file:
                    _write_out(file, content)
                return Path(name)
            except OSError:
                Path(name).unlink()
    return None


def _seal(file: io.FileIO) -> bool:
    """End a last line that has no newline, so that the next row is complete; return whether it was torn."""
    file.seek(-1, os.SEEK_END)
    if file.read(1) == b"\n":
        return False
    file.seek(0)
    torn = file.read().rpartition(b"\n")[2]
    odd = torn.count(b'"') % 2 == 1
    # If a quote is open, readers of CSV would take the next lines as part of the cell.
    file.write(b'"\n' if odd else b"\n")
    return odd or not torn.endswith(b",end")  # else the line is complete: an editor removed its newline
