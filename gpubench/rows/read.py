"""CSV files (or charts and reports that carry one) to one table of rows, with every problem named.

Good rows are used whatever the others are. Files are read many at once; only where that fails is each looked at line
by line.
"""

import csv
import io
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from gpubench.printed import shown as shown
from gpubench.rows.digest import edited, in_our_columns, named
from gpubench.rows.files import File, batches, split
from gpubench.rows.lines import good_rows, typed
from gpubench.rows.row import COLUMNS


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
            out += lines if part.names == COLUMNS else [_in_columns(part.names, line) for line in lines]
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
    path: Path
    header: tuple[str, ...]
    """The columns of the file."""
    names: tuple[str, ...]
    """The columns of `lines`: the same, or ours."""
    lines: Sequence[bytes]
    numbers: Sequence[int]
    """By line its number in the file."""


def load(
    paths: Sequence[Path], without: Collection[str] = (), identity: Sequence[str] = (), *, keep: bool = False
) -> Loaded:
    """Read every file; what cannot be used is left out and named in `problems`. Raises nothing.

    Columns in `without` are not read: they are missing from the frame. With `identity`, a column of that name
    numbers the rows from 0, the same for rows that agree in all of those columns. With `keep` the rows' own text stays
    in memory, so that it can be passed on. Rows that were changed after gpubench wrote them are used, and named.
    """
    import polars as pl  # most commands are to start without it

    from gpubench.rows import parse

    problems: list[str] = []
    columns = [name for name in COLUMNS if name not in without]
    parts = [parse.empty(columns)]
    kept: list[_Kept] = []
    files: list[Path] = []
    firsts = [0]
    with ThreadPoolExecutor(1) as pool:
        for batch in batches(paths, problems):
            parsing = pool.submit(parse.at_once, batch, columns)
            changed = [edited(file) for file in batch]  # polars leaves the interpreter free meanwhile
            part = parsing.result()
            if part is not None:
                parts.append(part)
                counts = [len(file.newlines) - 1 for file in batch]
                for file, numbers in zip(batch, changed, strict=True):
                    problems += named(file.path, numbers)
                if keep:
                    kept += [
                        _Kept(file.path, file.names, file.names, file.lines, range(2, len(file.newlines) + 1))
                        for file in batch
                    ]
            else:
                frames = [good_rows(file, problems) for file in batch]
                parts += [parse.part_of(parse.from_pandas(typed(frame)), columns) for frame in frames]
                counts = [len(frame) for frame in frames]
                if keep:
                    kept += [_lines_of(file, frame) for file, frame in zip(batch, frames, strict=True)]
            files += [file.path for file in batch]
            for count in counts:
                firsts.append(firsts[-1] + count)
    table = pl.concat(parts)
    parts.clear()  # so that each column is freed as it is moved
    identities = parse.numbers_of(table, identity) if identity else None
    frame = parse.to_pandas(table)
    frame = frame if identities is None else frame.assign(identity=identities)
    return Loaded(frame, problems, tuple(kept), tuple(files), tuple(firsts[:-1]))


def _lines_of(file: File, frame: pd.DataFrame) -> _Kept:
    """Rows of `good_rows` as lines of a table of ours."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        frame.reindex(columns=list(COLUMNS), fill_value="").assign(end="end").itertuples(index=False)
    )
    lines = out.getvalue().encode().split(b"\n")[:-1]
    return _Kept(file.path, file.names, COLUMNS, lines, list(frame.index))


def _in_columns(names: Sequence[str], line: bytes) -> bytes:
    """A line of a table with other columns as one with ours."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(in_our_columns(names, split(line.decode())))
    return out.getvalue().encode()
