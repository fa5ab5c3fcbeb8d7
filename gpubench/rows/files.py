"""The files that hold rows: CSVs, folders of them, charts and reports that carry one; what is wrong is named."""

import csv
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gpubench.rows.embed import RowsLostError, table_in

OURS = ("schema", "suite")
"""Columns that tell our files, of any schema, from other people's."""
REQUIRED = (*OURS, "model", "precision", "status")
"""Columns that a file must have."""
CHUNK_BYTES = 16 << 20
"""Files are read together up to this size."""

csv.field_size_limit(1 << 30)  # a long run's laps


@dataclass(frozen=True)
class File:
    """One file of ours, whole."""

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
    def lines(self) -> list[bytes]:
        """The lines after the header. The last one is empty unless its newline is missing."""
        return [line.rstrip(b"\r") for line in self.body.split(b"\n")]


def chunks_of(paths: Sequence[Path], problems: list[str]) -> list[list[Path]]:
    """Return the files, and the CSV files of the folders, in order: neighbours together up to CHUNK_BYTES."""
    chunks: list[list[Path]] = [[]]
    size = 0
    for path in _files(paths, problems):
        length = path.stat().st_size if path.is_file() else 0
        if chunks[-1] and size + length > CHUNK_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(path)
        size += length
    return chunks


def _files(paths: Sequence[Path], problems: list[str]) -> Iterator[Path]:
    """The files, and the CSV files of the folders, among `paths`."""
    for path in paths:
        try:
            found = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        except OSError:
            found = [path]  # what is wrong with it is said where it is opened
        if not found:
            problems.append(f"{path}: a folder without any CSV file")
        yield from found


def opened(path: Path, problems: list[str]) -> File | None:
    """The file, its rows unpacked where it is a chart or report; None where it is not ours."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device may never end
            problems.append(f"{path}: not a file")
            return None
        content = path.read_bytes()
    except OSError as error:
        problems.append(f"{path}: cannot be read ({error.strerror})")
        return None
    try:
        carried = table_in(content)
    except RowsLostError as error:
        problems.append(f"{path}: {error}")
        return None
    content = content if carried is None else carried
    if not content[:1024].strip() and not content.strip():
        problems.append(f"{path}: empty")
        return None
    first, _, body = content.partition(b"\n")
    file = File(path, first.decode("utf-8-sig", "replace").rstrip("\r"), body)
    names = file.names
    missing = [name for name in OURS if name not in names]
    if missing:
        problems.append(f"{path}: not a gpubench file (it has no column {', '.join(missing)}); left out")
        return None
    lost = [name for name in REQUIRED if name not in names]
    if lost:
        problems.append(f"{path}: no column {', '.join(lost)}; left out")
        return None
    if len(set(names)) != len(names):
        problems.append(f"{path}, line 1: a column stands twice in the header; left out")
        return None
    return file


def split(line: str) -> list[str]:
    """The cells of one line; none where it is no CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []
