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
from gpubench.rows.row import COLUMNS, DIGEST, END, FLAGS, NUMBERS, SCHEMA


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
            rows = [len(file.newlines) - 1 for file in batch]
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
    parts.clear()
    numbers = _numbers_of(table, identity) if identity else None
    frame = _to_pandas(table)
    frame = frame if numbers is None else frame.assign(identity=numbers)
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


COMPARED = ("suite", "model", "precision", "card", "device", "batch_policy", "mode", "data", "weights", "status")
"""Columns that distinguish rows. Blanks at their ends are removed."""
BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""The characters that `str.strip` removes."""
DIVERSE = ("started", "steady", "batch_curve", "precision_proof", "laps", "table", DIGEST)
"""Text columns that may differ in every row; those of the others are stored once for each different text."""


def _type_of(name: str) -> Any:
    """Return the type of a column."""
    if name in NUMBERS or name in FLAGS:
        return pl.Float64 if name in NUMBERS else pl.Boolean
    return pl.String if name in DIVERSE else pl.Categorical


def _part_of(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return the columns with their types: unknown ones are left out, missing ones are empty."""
    values = []
    for name in columns:
        kind = _type_of(name)
        column = pl.col(name) if name in frame.columns else pl.lit(None).alias(name)
        if name in NUMBERS:
            column = column.cast(kind).fill_null(math.nan)
        elif name in FLAGS:
            column = column.cast(pl.String).fill_null("").is_in(["true", "TRUE", "True"])
        else:
            text = column.cast(pl.String).str.strip_chars(BLANKS) if name in COMPARED else column
            column = text.cast(kind).fill_null(pl.lit("", kind))
        values.append(column)
    return frame.select(values) if frame.height else frame.clear().select(values).clear()


def _from_pandas(frame: pd.DataFrame) -> pl.DataFrame:
    """Return the rows of `lines.typed` for polars."""
    kinds = {str(name): pl.Float64 if name in NUMBERS else pl.String for name in frame}
    return pl.DataFrame({name: frame[name].tolist() for name in kinds}, schema=kinds)


def _constant_in(table: pl.DataFrame) -> set[str]:
    """Return the columns that have one value in all rows."""
    if table.is_empty():
        return set()
    alike = table.select((pl.all() == pl.all().first()).all())
    return {name for name in alike.columns if alike[name][0]}


def _to_pandas(table: pl.DataFrame) -> pd.DataFrame:
    """Move the table to pandas and leave it empty; a column of one value takes no memory."""
    rows, constant = table.height, _constant_in(table)
    columns = {dtype: [name for name in table.columns if _dtype_of(name) is dtype] for dtype in (object, float, bool)}
    blocks = []
    for dtype, names in columns.items():
        firsts = np.array([[table[name][0]] for name in names if name in constant], dtype).reshape(-1, 1)
        blocks.append((np.broadcast_to(firsts, (len(firsts), rows)), [name for name in names if name in constant]))
        varied = [name for name in names if name not in constant]
        block = np.empty((len(varied), rows), dtype)
        for name, values in zip(varied, block, strict=True):
            values[:] = _values_of(table.drop_in_place(name))
        blocks.append((block, varied))
    frames = [pd.DataFrame(block.T, columns=names, dtype=block.dtype, copy=False) for block, names in blocks]
    return pd.concat(frames, axis=1)


def _dtype_of(name: str) -> type:
    """Return the type of a column in pandas."""
    return float if name in NUMBERS else bool if name in FLAGS else object


def _values_of(column: pl.Series) -> "np.ndarray[Any, Any]":
    """Return the column's values; equal texts of a categorical column are one object."""
    if column.dtype != pl.Categorical:
        return column.to_numpy()
    codes, different = column.to_physical().to_numpy(), column.unique()
    texts = np.empty(int(codes.max(initial=0)) + 1, dtype=object)
    texts[different.to_physical().to_numpy()] = different.cast(pl.String).to_list()
    return texts[codes]


def _numbers_of(table: pl.DataFrame, columns: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return a number for each row, from 0, the same for rows that agree in all of these columns."""
    keys = table.select(columns)
    varied = [name for name in columns if name not in _constant_in(keys)]
    if not varied:
        return np.zeros(table.height, np.int64)
    groups = keys.select(varied).unique(maintain_order=True).with_row_index("identity")
    numbered = keys.select(varied).join(groups, on=varied, how="left", nulls_equal=True, maintain_order="left")
    return numbered["identity"].to_numpy().astype(np.int64)


def _at_once(batch: Sequence[File], columns: Sequence[str]) -> pl.DataFrame | None:
    """Return the rows of all files, or None where a line has to be read separately."""
    names = batch[0].names
    if names[-1] != END or not set(REQUIRED) <= set(names):
        return None
    if any(len(file.newlines) < 2 or file.content[-1:] != b"\n" or b"\0" in file.content for file in batch):
        return None
    content = b"".join([file.body for file in batch])
    if b"\r" in content and content.count(b"\r") != content.count(b"\r\n"):
        return None
    known = [at for at, name in enumerate(names) if name in {*columns, *REQUIRED, END}]
    as_text = {END, *FLAGS, *COMPARED}
    try:
        if not content.isascii():
            content.decode()  # columns that are not read here may be passed on
        frame = pl.read_csv(
            content,
            has_header=False,
            schema={name: pl.String if name in as_text or name not in COLUMNS else _type_of(name) for name in names},
            columns=known,
        )
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        return None
    # Fewer rows than lines: a quote swallowed some. A line that is too short has no `end`.
    if frame.height != sum(len(file.newlines) - 1 for file in batch) or not _is_good(frame):
        return None
    return _part_of(frame, columns)


def _is_good(frame: pl.DataFrame) -> bool:
    """Return whether every row is of a known schema and complete, with its required fields and possible numbers."""
    nulls = {column.name: column.null_count() for column in frame}
    if not (frame[END] == "end").all(ignore_nulls=False) or not (frame["schema"] <= SCHEMA).all(ignore_nulls=False):
        return False
    for name in REQUIRED:
        if nulls[name] or (name not in NUMBERS and (frame[name] == "").any()):
            return False
    for name in NUMBERS:
        if nulls.get(name, frame.height) < frame.height:
            values = frame[name].drop_nulls().to_numpy()
            if not np.isfinite(values).all() or may_not_hold(name, values).any():
                return False
    return True
