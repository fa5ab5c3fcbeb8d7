"""Read CSV files, or charts and reports that carry one, into one table of rows, with every problem named.

Good rows are used whatever the others are. Neighbouring files are read at once; where that fails, line by line.
"""

import csv
import io
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from gpubench.errors import UserError
from gpubench.printed import shown as shown
from gpubench.rows.digest import edited, in_our_columns, named
from gpubench.rows.files import chunks_of, opened, split
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
    sources: "tuple[Source, ...]" = ()
    """The files, in the order of the rows."""

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
        """Return how many rows there are of what."""
        suites, cards = (", ".join(map(shown, self.frame[name].unique()[:4])) for name in ("suite", "card"))
        return f"{len(self.frame)} rows of {suites} on {cards}; {len(self.problems)} problems"

    def to_frame(self) -> pd.DataFrame:
        """Return the rows, a column for each of the table's."""
        return self.frame

    def table(self, rows: Iterable[int] | None = None) -> bytes:
        """Return the CSV of the rows at these places of the frame's index, or of all, as it was; needs `keep`."""
        wanted = set(self.frame.index if rows is None else rows)
        table, first = [",".join(COLUMNS).encode()], 0
        for source in self.sources:
            lines = [line for place, line in enumerate(source.lines, start=first) if place in wanted]
            table += lines if source.header == COLUMNS else [_in_our_columns(source.header, line) for line in lines]
            first += len(source.lines)
        return b"\n".join(table) + b"\n"

    @property
    def places(self) -> list["Place"]:
        """Return where each row is."""
        return [Place(source.path, number, source.header) for source in self.sources for number in source.numbers]


class Place(NamedTuple):
    """Where a row is."""

    path: Path
    line: int
    header: tuple[str, ...]
    """The columns of its file."""


@dataclass(frozen=True)
class Source:
    """A file, and which of its lines are rows."""

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
        parts = list(pool.map(partial(_read, columns=columns, keep=keep), chunks))
    problems += [problem for *_, of_chunk in parts for problem in of_chunk]
    sources = tuple(source for _, of_chunk, _ in parts for source in of_chunk)
    table = pl.concat([parse.empty(columns), *(table for tables, *_ in parts for table in tables)])
    parts.clear()  # so that each column is freed as it is moved
    identities = parse.numbers_of(table, identity) if identity else None
    frame = parse.to_pandas(table)
    return Loaded(frame if identities is None else frame.assign(identity=identities), problems, sources)


def _read(
    paths: Sequence[Path], columns: Sequence[str], *, keep: bool
) -> "tuple[list[pl.DataFrame], list[Source], list[str]]":
    """Return the rows of some files, the files and their problems.

    Neighbours with one header are read at once, or line by line where there is anything wrong.
    """
    from gpubench.rows import parse

    tables: list[pl.DataFrame] = []
    sources, problems = list[Source](), list[str]()
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
                problems += named(file.path, edited(file))
                numbers = range(2, len(file.lines) + 1)
            lines = [file.lines[number - 2] for number in numbers] if keep else []
            sources.append(Source(file.path, names, numbers, lines))
    return tables, sources, problems


def _in_our_columns(header: Sequence[str], line: bytes) -> bytes:
    """Return a line of a file with other columns as one with ours."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(in_our_columns(header, split(line.decode())))
    return out.getvalue().encode()
