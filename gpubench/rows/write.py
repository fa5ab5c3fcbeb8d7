"""Appends rows to a CSV file, locked and synced, and ends a line that a kill has torn."""

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from gpubench.errors import UserError
from gpubench.rows.row import COLUMNS, Row, to_cells


def check_writable(path: Path) -> None:
    """Make the folder and try the file, before hours of work; raises UserError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock(path):  # another run may be about to write its header
            with path.open("ab"):
                pass
            if path.stat().st_size == 0:
                path.unlink()
                return
        with path.open(encoding="utf-8", errors="replace") as file:
            header = file.readline()
    except OSError as error:
        raise UserError(f"--out {path}: cannot write there ({error.strerror}); give another --out") from None
    whole = header.endswith("\n")
    if whole and tuple(header.rstrip("\r\n").split(",")) != COLUMNS:
        raise UserError(f"--out {path}: it holds another table, or rows of another gpubench; give a new file")


def seal(path: Path) -> str:
    """End a torn last line with a newline, so that the next row stays whole; says so, or returns an empty string.

    Raises UserError where the file cannot be written.
    """
    try:
        with lock(path):
            return _seal(path)
    except OSError as error:
        raise UserError(f"{path}: its torn last line could not be ended ({error.strerror}); make room first") from None


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows at the end, flushed and synced, under a lock; writes the header to a new file.

    Raises UserError where the disk is full or the file cannot be written.
    """
    try:
        with lock(path):
            _seal(path)
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            if not path.exists() or path.stat().st_size == 0:
                writer.writerow(COLUMNS)
            writer.writerows(to_cells(row) for row in rows)
            with path.open("ab") as file:
                file.write(text.getvalue().encode())
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise UserError(
            f"{path}: the row could not be written ({error.strerror}); rows written before it are safe."
            " Make room or give another --out, then run the same command to go on"
        ) from None


def lock(path: Path) -> FileLock:
    """The lock that guards appends to `path`, kept outside the results folder."""
    import hashlib
    import tempfile

    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return FileLock(Path(tempfile.gettempdir()) / f"gpubench-{name}.lock")


def _seal(path: Path) -> str:
    if not path.exists() or path.stat().st_size == 0:
        return ""
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return ""
        file.seek(0)
        before, newline, torn = file.read().rpartition(b"\n")
        if newline and torn.endswith(b",end") and torn.count(b'"') % 2 == 0:
            file.write(b"\n")  # whole; an editor took its newline
            return ""
        if not newline:  # not even the header was whole
            file.truncate(0)
            return f"{path}: only a torn header was there (a run was killed while writing it); started anew"
        # An open quote would swallow the lines that follow, for every reader that honours quotes.
        file.seek(len(before) + 1 + len(torn))
        file.write(b'"\n' if torn.count(b'"') % 2 else b"\n")
    return f"{path}: the last line was torn (a run was killed while writing it); it is kept and not used"
