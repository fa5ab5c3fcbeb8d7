"""CSV files (or charts and reports that carry one) to one table of rows, with every problem named.

Good rows are used whatever the others are. Files are read many at once; only where that fails is each looked at line
by line.
"""

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl

from gpubench.printed import shown as shown
from gpubench.rows.digest import edited, in_our_columns, named
from gpubench.rows.files import File, batches, split
from gpubench.rows.lines import REQUIRED, good_rows, may_not_hold, typed
from gpubench.rows.row import COLUMNS, END, FLAGS, NUMBERS, SCHEMA


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
    problems: list[str] = []
    columns = [name for name in COLUMNS if name not in without]
    parts = [pl.DataFrame(schema={name: _type_of(name) for name in columns})]
    kept: list[_Kept] = []
    files: list[Path] = []
    firsts = [0]
    for batch in batches(paths, problems):
        part = _at_once(batch, columns)
        if part is not None:
            parts.append(part)
            rows = [_rows_of(file) for file in batch]
            for file in batch:
                problems += named(file.path, edited(file))
                if keep:
                    lines = file.lines
                    kept.append(_Kept(file.path, file.names, file.names, lines, range(2, len(lines) + 2)))
        else:
            frames = [good_rows(file, problems) for file in batch]
            parts += [_part_of(_from_pandas(typed(frame)), columns) for frame in frames]
            rows = [len(frame) for frame in frames]
            if keep:
                kept += [_lines_of(file, frame) for file, frame in zip(batch, frames, strict=True)]
        for file, count in zip(batch, rows, strict=True):
            files.append(file.path)
            firsts.append(firsts[-1] + count)
    table = pl.concat(parts)
    numbers = _numbers_of(table, identity) if identity else None
    frame = _to_pandas(table)
    frame = frame if numbers is None else frame.assign(identity=numbers)
    return Loaded(frame, problems, tuple(kept), tuple(files), tuple(firsts[:-1]))


def _rows_of(file: File) -> int:
    """How many rows a file has that could be read at once, so that its lines are rows."""
    return file.content.count(b"\n") - 1


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


def _type_of(name: str) -> Any:
    """Return the type of a column; a text that repeats is stored once."""
    return pl.Float64 if name in NUMBERS else pl.Boolean if name in FLAGS else pl.Categorical


def _part_of(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return the columns with their types: unknown ones are left out, missing ones are empty."""
    found = []
    for name in columns:
        if name not in frame.columns:
            empty = pl.lit(math.nan if name in NUMBERS else False if name in FLAGS else "")
            found.append(empty.cast(_type_of(name)).alias(name))
        elif name in NUMBERS:
            found.append(pl.col(name).fill_null(math.nan))
        elif name in FLAGS:
            found.append(pl.col(name).fill_null("").is_in(["true", "TRUE", "True"]))
        else:
            text = pl.col(name).fill_null("")
            found.append((text.str.strip_chars() if name in COMPARED else text).cast(pl.Categorical))
    return frame.with_columns(found).select(columns)


COMPARED = ("suite", "model", "precision", "card", "device", "batch_policy", "mode", "data", "weights", "status")
"""Columns that tell rows apart, in which a blank at an end is somebody's slip and no other value."""


def _from_pandas(frame: pd.DataFrame) -> pl.DataFrame:
    """Return the rows of `lines.typed` for polars."""
    kinds = {str(name): pl.Float64 if name in NUMBERS else pl.String for name in frame}
    return pl.DataFrame({name: frame[name].tolist() for name in kinds}, schema=kinds)


def _to_pandas(table: pl.DataFrame) -> pd.DataFrame:
    """Return the table for pandas, with one block of memory for each type."""
    blocks = []
    for kind, dtype in ((pl.Categorical, object), (pl.Float64, float), (pl.Boolean, bool)):
        names = [name for name in table.columns if table.schema[name] == kind]
        block = np.empty((len(names), table.height), dtype)
        for name, values in zip(names, block, strict=True):
            values[:] = _texts(table[name]) if dtype is object else table[name].to_numpy()
        blocks.append(pd.DataFrame(block.T, columns=names, dtype=dtype, copy=False))
    return pd.concat(blocks, axis=1)


def _texts(column: pl.Series) -> "np.ndarray[Any, Any]":
    """Return the column's texts as Python objects; equal texts are one object."""
    codes, different = column.to_physical().to_numpy(), column.unique(maintain_order=True)
    texts = np.array(different.cast(pl.String).to_list(), dtype=object)
    order = different.to_physical().to_numpy()
    if len(texts) == 1:
        return np.broadcast_to(texts, len(codes))
    by_code = np.argsort(order)
    return texts[by_code[np.searchsorted(order, codes, sorter=by_code)]]


def _numbers_of(table: pl.DataFrame, columns: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return a number for each row, from 0, the same for rows that agree in all of these columns."""
    varied = [name for name in columns if table[name].n_unique() > 1]
    if not varied:
        return np.zeros(table.height, np.int64)
    groups = table.select(varied).unique(maintain_order=True).with_row_index("identity")
    numbered = table.select(varied).join(groups, on=varied, how="left", nulls_equal=True, maintain_order="left")
    return numbered["identity"].to_numpy().astype(np.int64)


def _at_once(batch: Sequence[File], columns: Sequence[str]) -> pl.DataFrame | None:
    """Return the rows of all files, or None where any line has to be looked at on its own."""
    names = batch[0].names
    if names[-1] != "end" or not set(REQUIRED) <= set(names):
        return None
    if any(file.content[-1:] != b"\n" or b"\0" in file.content for file in batch):
        return None
    content = b"".join([file.body for file in batch])
    known = [at for at, name in enumerate(names) if name in {*columns, END}]
    try:
        if not content.isascii():
            content.decode()  # columns that are not read here may be passed on
        frame = pl.read_csv(
            content,
            has_header=False,
            schema={name: pl.Float64 if name in NUMBERS else pl.String for name in names},
            columns=known,
        )
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        return None
    # Fewer rows than lines: a quote swallowed some. A line that is too short has no `end`.
    if frame.height != content.count(b"\n") or not _is_good(frame):
        return None
    return _part_of(frame, columns)


def _is_good(frame: pl.DataFrame) -> bool:
    """Return whether every row is of a known schema and whole, with its required fields and possible numbers."""
    if not (frame["end"] == "end").all(ignore_nulls=False) or not (frame["schema"] <= SCHEMA).all(ignore_nulls=False):
        return False
    for name in frame.columns:
        if name in REQUIRED and (frame[name].null_count() or (name not in NUMBERS and (frame[name] == "").any())):
            return False
        if name in NUMBERS:
            values = frame[name].drop_nulls().to_numpy()
            if not np.isfinite(values).all() or may_not_hold(name, values).any():
                return False
    return True
