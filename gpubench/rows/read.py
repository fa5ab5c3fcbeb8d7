"""Reads rows from CSV files, charts and reports into one table, with a list of problems. All commands read rows here.

Neighbouring files are parsed together by polars (parse.py). If they have any fault, lines.py reads them line by line.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, chain, groupby, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from gpubench.errors import UserError
from gpubench.printed import shown
from gpubench.rows.digest import edited, edited_later, in_our_columns, named
from gpubench.rows.files import chunks_of, csv_line, opened, size_of, split
from gpubench.rows.lines import good_rows
from gpubench.rows.row import COLUMNS

LARGE_BYTES = 128 << 20
"""Size of all files above which another process checks their digests."""

if TYPE_CHECKING:
    from gpubench.rows.parse import Table


@dataclass(frozen=True, repr=False)
class Loaded:
    """The rows of all files, and the problems of these files.

    The frame has a column for each field of Row: texts are str (empty if missing), numbers are floats (NaN if empty),
    flags are bools.
    """

    frame: pd.DataFrame
    file_problems: list[str] = field(default_factory=list)
    """What is wrong with the files, except for the changed rows that `changed` finds."""
    sources: "tuple[Source, ...]" = ()
    """The files, in the order of their rows."""
    changed: Callable[[], Mapping[Path, Sequence[int]]] = dict
    """Returns the line numbers, by file, of changed rows that `file_problems` does not name."""

    @cached_property
    def problems(self) -> list[str]:
        """What is wrong with the files, in sentences."""
        return [*self.file_problems, *chain.from_iterable(starmap(named, self.changed().items()))]

    def file_of(self, place: int) -> Path:
        """Return the file of the row at this place of the frame's index."""
        return self.sources[bisect_right(self._ends, place)].path

    @cached_property
    def _ends(self) -> list[int]:
        """The number of rows up to the end of each file."""
        return list(accumulate(len(source.numbers) for source in self.sources))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.frame)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict by column."""
        names = list(map(str, self.frame))
        return (dict(zip(names, values, strict=True)) for values in self.frame.itertuples(index=False, name=None))

    def __getitem__(self, wanted: "str | pd.Series[bool]") -> "pd.Series[Any] | Loaded":
        """Return a column, or the rows at which a column of bools is true. Raises UserError for anything else."""
        if isinstance(wanted, str) and wanted in self.frame:
            return self.frame[wanted]
        if isinstance(wanted, pd.Series) and wanted.dtype == bool and wanted.index.equals(self.frame.index):
            return replace(self, frame=self.frame[wanted])
        raise UserError(f"rows[{shown(str(wanted))[:60]!r}]: give the name of a column, or bools of these rows")

    def __repr__(self) -> str:
        """Return the number of rows and problems, with the first suites and cards."""
        suites, cards = (", ".join(map(shown, self.frame[name].unique()[:4])) for name in ("suite", "card"))
        return f"{len(self.frame)} rows of {suites} on {cards}; {len(self.problems)} problems"

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas frame."""
        return self.frame

    def table(self, rows: Iterable[int] | None = None) -> bytes:
        """Return a CSV of the rows at these places of the index (None: all), as in their files. Needs load's `keep`."""
        wanted = set(self.frame.index if rows is None else rows)
        table, first = [",".join(COLUMNS).encode()], 0
        for source in self.sources:
            lines = [line for place, line in enumerate(source.lines, start=first) if place in wanted]
            if source.header != COLUMNS:
                lines = [csv_line(cells_of(source.header, line)).encode() for line in lines]
            table += lines
            first += len(source.lines)
        return b"\n".join(table) + b"\n"

    @property
    def places(self) -> list["Place"]:
        """Return the file and line of each row that was read, by the row's index in `frame`."""
        return [Place(source.path, number, source.header) for source in self.sources for number in source.numbers]


def stored(column: "pd.Series[Any]") -> "np.ndarray[Any, Any]":
    """Return the values of a column; one value if `parse.to_pandas` stored it once for all rows."""
    values = column.to_numpy()
    return values[:1] if values.strides == (0,) else values


class Place(NamedTuple):
    """The file and line of a row."""

    path: Path
    line: int
    header: tuple[str, ...]
    """The columns of its file."""


@dataclass(frozen=True)
class Source:
    """A file, and the numbers of the lines that are rows."""

    path: Path
    header: tuple[str, ...]
    """The columns of the file."""
    numbers: Sequence[int]
    """The line number of each row."""
    lines: Sequence[bytes]
    """The text of each row; empty unless `load` was called with `keep`."""


def load(
    paths: Sequence[Path], without: Collection[str] = (), identity: Sequence[str] = (), *, keep: bool = False
) -> Loaded:
    """Return the rows of all files. Files and lines that cannot be used are left out and reported in `problems`.

    Rows that were changed after gpubench wrote them are used, and reported. Raises nothing.

    Args:
        paths: files, or folders whose CSV files are read.
        without: columns that the frame will lack.
        identity: if given, the frame has a column `identity`: a number that is the same in rows that agree in all
            these columns.
        keep: keep the text of the rows, which `table` needs.
    """
    from gpubench.rows import parse  # imported here, because most commands need no rows

    problems: list[str] = []
    columns = [name for name in COLUMNS if name not in without]
    chunks = chunks_of(paths, problems)
    files = [path for chunk in chunks for path in chunk]
    is_large = sum(map(size_of, files)) > LARGE_BYTES
    # polars parses rows without the GIL: meanwhile another thread can check digests in Python.
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(partial(_read, columns=columns, keep=keep, check=not is_large), chunks))
    problems += [problem for _, _, of_chunk, _ in parts for problem in of_chunk]
    changed = edited_later([path for *_, parsed in parts for path in parsed]) if is_large else dict
    sources = tuple(source for _, of_chunk, *_ in parts for source in of_chunk)
    table = parse.joined([table for tables, *_ in parts for table in tables], columns)
    parts.clear()  # so that each column is freed as it is moved
    identities = parse.numbers_of(table, identity) if identity else None
    frame = parse.to_pandas(table)
    return Loaded(frame if identities is None else frame.assign(identity=identities), problems, sources, changed)


def _read(
    paths: Sequence[Path], columns: Sequence[str], *, keep: bool, check: bool
) -> "tuple[list[Table], list[Source], list[str], list[Path]]":
    """Return tables, files, problems and the files parsed at once. Their digests are checked only with `check`."""
    from gpubench.rows import parse

    tables: list[Table] = []
    sources, problems, parsed = list[Source](), list[str](), list[Path]()
    files = [file for path in paths if (file := opened(path, problems))]
    for names, run in groupby(files, key=lambda file: file.names):
        neighbours = list(run)
        table = parse.at_once(neighbours, columns)
        if table is not None:
            tables.append(table)
        for file in neighbours:
            if table is None:
                rows = good_rows(file, problems)
                tables.append(parse.from_cells(rows.values(), columns))
                numbers: Sequence[int] = list(rows)
            else:
                problems += named(file.path, edited(file)) if check else []
                parsed.append(file.path)
                numbers = range(2, file.count + 2)
            lines = [file.lines[number - 2] for number in numbers] if keep else []
            sources.append(Source(file.path, names, numbers, lines))
    return tables, sources, problems, parsed


def cells_of(header: Sequence[str], line: bytes) -> list[str]:
    """Return the cells of a line of a file with this header, in the order of our columns."""
    cells = split(line.decode())
    if len(cells) != len(header):
        import polars as pl

        # Only Python's csv sees more cells after a stray quote; polars accepted the line.
        cells = [*pl.read_csv(line, has_header=False, infer_schema=False).fill_null("").row(0)]
    return in_our_columns(header, cells)
