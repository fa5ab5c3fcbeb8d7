"""Opens files with rows: CSV files, folders of them, and charts and reports that contain rows; lists their problems."""

import csv
import io
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gpubench.rows.embed import RowsLostError, table_in

REQUIRED = ("schema", "suite", "model", "precision", "status")
"""Columns that a file must have."""
CHUNK_BYTES = 16 << 20
"""Total size up to which neighbouring files are read together, in bytes."""

csv.field_size_limit(1 << 30)  # the laps of a long run


@dataclass(frozen=True)
class File:
    """The content of one file that gpubench wrote."""

    path: Path
    header: str
    """The first line."""
    body: bytes
    """The other lines."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(split(self.header))

    @cached_property
    def count(self) -> int:
        """The number of lines after the header, without an empty last one."""
        return self.body.count(b"\n") + (self.body[-1:] not in {b"", b"\n"})

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines after the header. The last one is empty if the file ends with a newline."""
        lines = self.body.split(b"\n")
        return [line.rstrip(b"\r") for line in lines] if b"\r" in self.body else lines


def chunks_of(paths: Sequence[Path], problems: list[str]) -> list[list[Path]]:
    """Return the files, and the CSV files of the folders, in order, in lists of one file or of at most CHUNK_BYTES."""
    chunks: list[list[Path]] = [[]]
    size = 0
    for path in _files(paths, problems):
        length = size_of(path)
        if chunks[-1] and size + length > CHUNK_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(path)
        size += length
    return chunks


def size_of(path: Path) -> int:
    """Return the bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # it is gone meanwhile
        return 0


def _files(paths: Sequence[Path], problems: list[str]) -> Iterator[Path]:
    """Yield the files among `paths`, and the CSV files in the folders."""
    for path in paths:
        try:
            files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        except OSError:
            files = [path]  # `opened` reports the error
        if not files:
            problems.append(f"{path}: a folder without any CSV file")
        yield from files


def opened(path: Path, problems: list[str]) -> File | None:
    """Return the file, or the rows in a chart or report. If it has no table of rows, add a problem and return None."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe or a device may never end
            problems.append(f"{path}: not a file")
            return None
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        problems.append(f"{path}: cannot be read ({getattr(error, 'strerror', error)})")
        return None
    try:
        inside = table_in(content)
    except RowsLostError as error:
        problems.append(f"{path}: {error}")
        return None
    content = content if inside is None else inside
    if not content[:1024].strip() and not content.strip():
        problems.append(f"{path}: empty")
        return None
    first, _, body = content.partition(b"\n")
    file = File(path, first.decode("utf-8-sig", "replace").rstrip("\r"), body)
    names = file.names
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        problems.append(f"{path}: not a gpubench file (it has no column {', '.join(missing)}); left out")
        return None
    if len(set(names)) != len(names):
        problems.append(f"{path}, line 1: a column is twice in the header; left out")
        return None
    return file


def split(line: str) -> list[str]:
    """Return the cells of one line; an empty list if it is no CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def csv_line(cells: Iterable[str]) -> str:
    """Return the cells as one line of CSV, without its end."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
