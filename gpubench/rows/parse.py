"""Parses whole CSV files into columns with polars, for read.py. Files with a faulty line are left to lines.py."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import polars.selectors as cs

from gpubench.rows.column import breaks
from gpubench.rows.files import REQUIRED, File
from gpubench.rows.lines import number_of
from gpubench.rows.row import ABOUT, COLUMNS, DIGEST, END, FLAGS, INTEGERS, NUMBERS, SCHEMA

COMPARED = ("suite", "model", "precision", "card", "device", "batch_policy", "mode", "data", "weights", "status")
"""Columns whose texts distinguish rows. Blanks at the ends of these texts are removed."""
DIVERSE = ("started", "steady", "batch_curve", "precision_proof", "laps", "table", DIGEST)
"""Text columns that may differ in every row. In other columns equal texts are stored once."""
TRUE = ("true", "TRUE", "True")
"""Spellings of a flag that is set."""


class Table(NamedTuple):
    """Rows as columns. Most columns have one value in all rows, and are stored as this value."""

    height: int
    """The number of rows."""
    same: dict[str, Any]
    """The value of each column with one value; None for an empty number."""
    varied: pl.DataFrame
    """The other columns; an empty number is null."""


def _schema(columns: Sequence[str]) -> dict[str, type[pl.DataType]]:
    # Texts become categorical later: in categorical columns polars would lose what follows the quote in `"a"b`.
    return {name: pl.Float64 if name in NUMBERS else pl.String for name in columns}


def _type_of(name: str) -> Any:
    if name in NUMBERS or name in FLAGS:
        return pl.Float64 if name in NUMBERS else pl.Boolean
    return pl.String if name in DIVERSE else pl.Categorical


def _same_in(frame: pl.DataFrame) -> set[str]:
    same = frame.select(pl.all().eq_missing(pl.all().first()).all())
    return {name for name in same.columns if same[name].all()}


def _table_of(frame: pl.DataFrame, same: Collection[str], columns: Sequence[str]) -> Table:
    """Return these columns of a file, given those with one value; columns that the file lacks are empty."""
    varied = [name for name in columns if name in frame.columns and name not in same]
    cells = frame.row(0, named=True) if frame.height else {}
    first = _typed(pl.DataFrame([cells], _schema(columns))).row(0, named=True)
    same_values = {name: value for name, value in first.items() if name not in varied}
    return Table(frame.height, same_values, _typed(frame.select(varied)))


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns in the types of a table, with trimmed texts."""
    flags, diverse = (cs.by_name(*names, require_all=False) for names in (FLAGS, DIVERSE))
    texts = frame.with_columns(cs.by_name(*COMPARED, require_all=False).str.strip_chars())
    texts = texts.with_columns(flags.fill_null("").is_in(TRUE), (cs.string() - flags).fill_null(""))
    return texts.with_columns((cs.string() - diverse).cast(pl.Categorical))


def from_cells(rows: Collection[Sequence[str]], columns: Sequence[str]) -> Table:
    """Return these columns of the rows that `lines.good_rows` returned, whose cells are in the order of COLUMNS."""
    cells = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(COLUMNS, ())
    numbers = {name: [number_of(cell) for cell in cells[name]] for name in NUMBERS}
    frame = pl.DataFrame({**cells, **numbers}, schema=_schema(COLUMNS)).fill_nan(None)
    return _table_of(frame, _same_in(frame), columns)


def joined(tables: Sequence[Table], columns: Sequence[str]) -> Table:
    """Return the rows of all tables; if none has rows, an empty table with these columns."""
    tables = [table for table in tables if table.height] or [_table_of(pl.DataFrame(), (), columns)]
    same, varied = tables[0].same, list[pl.Series]()
    for name in columns:
        if any(name not in table.same or table.same[name] != same.get(name) for table in tables):
            parts = [
                pl.Series(name, [table.same[name]], _type_of(name)).new_from_index(0, table.height)
                if name in table.same
                else table.varied[name]
                for table in tables
            ]
            varied.append(pl.concat(parts, rechunk=False))
    names = {column.name for column in varied}
    same = {name: value for name, value in same.items() if name not in names}
    return Table(sum(table.height for table in tables), same, pl.DataFrame(varied))


def to_pandas(table: Table) -> pd.DataFrame:
    """Move the table to pandas, column by column, so that it is never in memory twice.

    Columns with one value are views of that value, because filling them would take a sixth of the time of reading.
    """
    names = [*table.same, *table.varied.columns]
    types = {name: float if name in NUMBERS else bool if name in FLAGS else object for name in names}
    frames = []
    for dtype in (object, float, bool):
        same, varied = (
            [name for name in types if types[name] is dtype and (name in table.same) == one] for one in (True, False)
        )
        firsts = np.array([[table.same[name]] for name in same], dtype).reshape(-1, 1)
        block = np.empty((len(varied), table.height), dtype)
        for name, values in zip(varied, block, strict=True):
            values[:] = _values_of(table.varied.drop_in_place(name))
        for values, names in ((np.broadcast_to(firsts, (len(same), table.height)), same), (block, varied)):
            frames.append(pd.DataFrame(values.T, columns=names, dtype=values.dtype, copy=False))
    return pd.concat(frames, axis=1)


def _values_of(column: pl.Series) -> "np.ndarray[Any, Any]":
    """Return the column's values; equal texts of a categorical column are one object."""
    if column.dtype != pl.Categorical:
        values: np.ndarray[Any, Any] = column.to_numpy()
        return values
    codes, different = column.to_physical().to_numpy(), column.unique()
    texts = np.empty(int(codes.max(initial=0)) + 1, dtype=object)
    texts[different.to_physical().to_numpy()] = different.cast(pl.String).to_list()
    repeated: np.ndarray[Any, Any] = texts[codes]
    return repeated


def numbers_of(table: Table, columns: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return a number for each row, from 0. Rows that agree in all of these columns have the same number."""
    varied = [name for name in columns if name not in table.same]
    if not varied:
        return np.zeros(table.height, np.int64)
    keys = table.varied.select(varied)
    groups = keys.unique(maintain_order=True).with_row_index("identity")
    numbered = keys.join(groups, on=varied, how="left", nulls_equal=True, maintain_order="left")
    return numbered["identity"].to_numpy().astype(np.int64)


def at_once(files: Sequence[File], columns: Sequence[str]) -> Table | None:
    """Return the rows of files with the same header, or None if a line may be faulty."""
    names = files[0].names
    if names[-1] != END:
        return None
    content = b"".join([file.body for file in files])
    if not content or b"\0" in content or any(file.body[-1:] not in {b"", b"\n"} for file in files):
        return None
    if b"\r" in content and content.count(b"\r") != content.count(b"\r\n"):
        return None
    wanted = [place for place, name in enumerate(names) if name in {*columns, *REQUIRED, END}]
    try:
        if not content.isascii():
            content.decode()  # also the columns that are not read, because the lines may be copied to another file
        frame = pl.read_csv(content, has_header=False, schema=_schema(names), columns=wanted)
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        return None
    # There are fewer rows than lines if a quote is open. Lines that are too short have no `end`.
    if frame.height != sum(file.count for file in files):
        return None
    same = _same_in(frame)
    first = frame.head(1)
    is_good = all(_is_good(first[name] if name in same else frame[name]) for name in frame.columns)
    return _table_of(frame, same, columns) if is_good else None


def _is_good(column: pl.Series) -> bool:
    """Return whether a column has what a complete row has: `end`, a known schema, required cells, possible numbers."""
    name, empty = column.name, column.null_count()
    if name in REQUIRED and (empty or (name not in NUMBERS and (column == "").any())):
        return False
    if name in NUMBERS and empty < len(column):
        values = column.to_numpy()
        with np.errstate(invalid="ignore"):  # the remainder of infinity
            broken = breaks(values, ABOUT[name].allowed, whole=name in INTEGERS)
        return np.isnan(values).sum() == empty and not np.any(broken) and (name != "schema" or values.max() <= SCHEMA)
    return name != END or bool((column == "end").all(ignore_nulls=False))
