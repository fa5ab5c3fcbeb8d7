"""Read CSV files, or charts and reports that carry one, into one table of rows, with every problem named.

Good rows are used whatever the others are. Neighbouring files are read at once; where that fails, line by line.
"""

import csv
import io
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from gpubench.printed import shown as shown
from gpubench.rows.digest import edited, in_our_columns, named
from gpubench.rows.files import File, chunks_of, opened, split
from gpubench.rows.lines import good_rows
from gpubench.rows.row import COLUMNS

if TYPE_CHECKING:
    import polars as pl

READERS = 2
"""Threads that read files: one hashes rows while polars parses those of the other."""


@dataclass(frozen=True, repr=False)
class Loaded:
    """Rows of all files, and what was wrong with them.

    One column per field of Row, in order of their types: texts as plain objects (empty where missing), numbers as
    floats (NaN where empty), flags as bools.
    """

    frame: pd.DataFrame
    problems: list[str] = field(default_factory=list)
    kept: "tuple[_Kept, ...]" = ()
    """The same rows as the text they were, where that was asked for."""
    files: tuple[Path, ...] = ()
    firsts: tuple[int, ...] = ()
    """The place of each file's first row in the frame's index; that of the next file's where it has none."""

    def file_of(self, place: int) -> Path:
        """The file that the row at this place of the frame's index is from."""
        return self.files[bisect_right(self.firsts, place) - 1]

    def __repr__(self) -> str:
        """How many rows there are of what."""
        suites, cards = (", ".join(map(shown, self.frame[name].unique()[:4])) for name in ("suite", "card"))
        return f"{len(self.frame)} rows of {suites} on {cards}; {len(self.problems)} problems"

    def to_frame(self) -> pd.DataFrame:
        """The rows, a column for each of the table's."""
        return self.frame

    def table(self, rows: Iterable[int] | None = None) -> bytes:
        """The CSV of the rows at these places of the frame's index, or of all, as the text it was; needs `keep`."""
        wanted = None if rows is None else set(rows)
        out, first = [",".join(COLUMNS).encode()], 0
        for part in self.kept:
            lines = [line for at, line in enumerate(part.lines, start=first) if wanted is None or at in wanted]
            out += (
                lines
                if part.names == COLUMNS
                else [_csv_line(in_our_columns(part.names, split(line.decode()))) for line in lines]
            )
            first += len(part.lines)
        return b"\n".join(out) + b"\n"

    @property
    def places(self) -> list["Place"]:
        """Where each row stands; needs `keep`."""
        return [Place(part.path, int(number), part.header) for part in self.kept for number in part.numbers]


class Place(NamedTuple):
    """Where a row stands."""

    path: Path
    line: int
    header: tuple[str, ...]
    """The columns of its file."""


@dataclass(frozen=True)
class _Kept:
    """The rows of one file as text."""

    path: Path
    header: tuple[str, ...]
    """The columns of the file."""
    names: tuple[str, ...]
    """The columns of `lines`: the same, or ours."""
    lines: Sequence[bytes]
    numbers: Sequence[int]
    """By line its number in the file."""


@dataclass(frozen=True)
class _Part:
    """The rows of neighbouring files with one header."""

    table: "pl.DataFrame"
    counts: list[int]
    """Number of rows of each file."""
    paths: list[Path]
    kept: list[_Kept]


def load(
    paths: Sequence[Path], without: Collection[str] = (), identity: Sequence[str] = (), *, keep: bool = False
) -> Loaded:
    """Read every file; what cannot be used is left out and named in `problems`. Raises nothing.

    Columns in `without` are not read: they are missing from the frame. With `identity`, a column of that name
    numbers the rows from 0, the same for rows that agree in all of those columns. With `keep` the text of the rows
    stays in memory, so that it can be passed on. Rows that were changed after gpubench wrote them are used, and named.
    """
    import polars as pl  # most commands start without it

    from gpubench.rows import parse

    problems: list[str] = []
    columns = [name for name in COLUMNS if name not in without]
    chunks = chunks_of(paths, problems)
    with ThreadPoolExecutor(READERS) as pool:  # polars leaves the interpreter to the other one
        results = list(pool.map(partial(_parts_of, columns=columns, keep=keep), chunks))
    problems += [problem for _, of_chunk in results for problem in of_chunk]
    parts = [part for of_chunk, _ in results for part in of_chunk]
    table = pl.concat([parse.empty(columns), *(part.table for part in parts)])
    files = tuple(path for part in parts for path in part.paths)
    firsts = tuple(accumulate((count for part in parts for count in part.counts), initial=0))
    kept = tuple(lines for part in parts for lines in part.kept)
    del results, parts  # so that each column is freed as it is moved
    identities = parse.numbers_of(table, identity) if identity else None
    frame = parse.to_pandas(table)
    frame = frame if identities is None else frame.assign(identity=identities)
    return Loaded(frame, problems, kept, files, firsts[:-1])


def _parts_of(paths: Sequence[Path], columns: Sequence[str], *, keep: bool) -> tuple[list[_Part], list[str]]:
    """Return the rows of some files, and the problems of these files."""
    problems: list[str] = []
    files = [file for path in paths if (file := opened(path, problems))]
    runs = [list(run) for _, run in groupby(files, key=lambda file: file.names)]
    return [_part_of(run, columns, problems, keep=keep) for run in runs], problems


def _part_of(files: Sequence[File], columns: Sequence[str], problems: list[str], *, keep: bool) -> _Part:
    """Return the rows of files with one header: read at once, or line by line where there is anything wrong."""
    import polars as pl

    from gpubench.rows import parse

    paths = [file.path for file in files]
    table = parse.at_once(files, columns)
    if table is None:
        rows = [good_rows(file, problems) for file in files]
        table = pl.concat([parse.part_of(parse.from_cells(of_file.values()), columns) for of_file in rows])
        kept = [
            _Kept(file.path, file.names, COLUMNS, [_csv_line(cells) for cells in of_file.values()], list(of_file))
            for file, of_file in zip(files, rows, strict=True)
            if keep
        ]
        return _Part(table, list(map(len, rows)), paths, kept)
    for file in files:
        problems += named(file.path, edited(file))
    kept = [
        _Kept(file.path, file.names, file.names, file.lines[:-1], range(2, len(file.lines) + 1))
        for file in files
        if keep
    ]
    return _Part(table, [len(file.lines) - 1 for file in files], paths, kept)


def _csv_line(cells: Sequence[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue().encode()
