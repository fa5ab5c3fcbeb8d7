"""Parses whole CSV files into columns with polars, for read.py. Files with a faulty line are left to lines.py."""

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from gpubench.rows.column import breaks
from gpubench.rows.files import REQUIRED, File
from gpubench.rows.lines import number_of
from gpubench.rows.row import ABOUT, COLUMNS, DIGEST, END, FLAGS, INTEGERS, NUMBERS, SCHEMA

COMPARED = ("suite", "model", "precision", "card", "device", "batch_policy", "mode", "data", "weights", "status")
"""Columns whose texts distinguish rows. Blanks at the ends of these texts are removed."""
DIVERSE = ("started", "steady", "batch_curve", "precision_proof", "laps", "table", DIGEST)
"""Text columns that may differ in every row. In other columns equal texts are stored once."""


def _schema(columns: Sequence[str]) -> dict[str, type[pl.DataType]]:
    """Return the types in which a file is read.

    Texts become categorical later: in categorical columns polars would lose what follows the quote in `"a"b`.
    """
    return {name: pl.Float64 if name in NUMBERS else pl.String for name in columns}


def _type_of(name: str) -> Any:
    """Return the type of a column in the table."""
    if name in NUMBERS or name in FLAGS:
        return pl.Float64 if name in NUMBERS else pl.Boolean
    return pl.String if name in DIVERSE else pl.Categorical


def _columns_of(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return these columns with the types of the table; columns that the file lacks are empty."""
    values = []
    for name in columns:
        kind = _type_of(name)
        column = pl.col(name) if name in frame.columns else pl.lit(None).alias(name)
        if name in NUMBERS:
            column = column.cast(kind).fill_null(math.nan)
        elif name in FLAGS:
            column = column.cast(pl.String).fill_null("").is_in(["true", "TRUE", "True"])
        else:
            if name in COMPARED:
                column = column.cast(pl.String).str.strip_chars()
            column = column.cast(kind).fill_null(pl.lit("", kind))
        values.append(column)
    return frame.select(values) if frame.height else frame.clear().select(values).clear()


def from_cells(rows: Collection[Sequence[str]], columns: Sequence[str]) -> pl.DataFrame:
    """Return these columns of the rows that `lines.good_rows` returned, whose cells are in the order of COLUMNS."""
    cells = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(COLUMNS, ())
    numbers = {name: [number_of(cell) for cell in cells[name]] for name in NUMBERS}
    return _columns_of(pl.DataFrame({**cells, **numbers}, schema=_schema(COLUMNS)), columns)


def empty(columns: Sequence[str]) -> pl.DataFrame:
    """Return a table of these columns without rows."""
    return pl.DataFrame(schema={name: _type_of(name) for name in columns})


def to_pandas(table: pl.DataFrame) -> pd.DataFrame:
    """Move the table to pandas, column by column, so that it is never in memory twice.

    A column with one value is a view of that value, because filling such columns takes a sixth of the time of reading.
    """
    rows, constant = table.height, _constant_in(table)
    types = {name: float if name in NUMBERS else bool if name in FLAGS else object for name in table.columns}
    frames = []
    for dtype in (object, float, bool):
        alike, varied = (
            [name for name in types if types[name] is dtype and (name in constant) == one] for one in (True, False)
        )
        firsts = np.array([[table[name][0]] for name in alike], dtype).reshape(-1, 1)
        block = np.empty((len(varied), rows), dtype)
        for name, values in zip(varied, block, strict=True):
            values[:] = _values_of(table.drop_in_place(name))
        for values, names in ((np.broadcast_to(firsts, (len(alike), rows)), alike), (block, varied)):
            frames.append(pd.DataFrame(values.T, columns=names, dtype=values.dtype, copy=False))
    return pd.concat(frames, axis=1)


def _constant_in(table: pl.DataFrame) -> set[str]:
    """Return the columns that have one value in all rows."""
    if table.is_empty():
        return set()
    alike = table.select((pl.all() == pl.all().first()).all())
    return {name for name in alike.columns if alike[name][0]}


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


def numbers_of(table: pl.DataFrame, columns: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return a number for each row, from 0. Rows that agree in all of these columns have the same number."""
    varied = [name for name in columns if table[name].n_unique() > 1]
    if not varied:
        return np.zeros(table.height, np.int64)
    keys = table.select(varied)
    groups = keys.unique(maintain_order=True).with_row_index("identity")
    numbered = keys.join(groups, on=varied, how="left", nulls_equal=True, maintain_order="left")
    return numbered["identity"].to_numpy().astype(np.int64)


def at_once(files: Sequence[File], columns: Sequence[str]) -> pl.DataFrame | None:
    """Return the rows of files with the same header, or None if any line of them is faulty."""
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
    lines = sum(len(file.lines) - 1 for file in files)
    return _columns_of(frame, columns) if frame.height == lines and _is_good(frame) else None


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
            if not np.isfinite(values).all():
                return False
            if np.any(breaks(values, ABOUT[name].allowed, whole=name in INTEGERS)):
                return False
    return True
