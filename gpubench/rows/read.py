"""CSV files (or charts and reports that carry one) to one table of rows, with every problem named.

Good rows are used whatever the others are. Files are read many at once; only where that fails is each looked at line
by line.
"""

import csv
import io
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from gpubench.printed import shown as shown
from gpubench.rows.digest import edited, in_our_columns, named
from gpubench.rows.files import File, batches, split
from gpubench.rows.lines import REQUIRED, good_rows, may_not_hold, typed
from gpubench.rows.row import COLUMNS, FLAGS, NUMBERS, SCHEMA

AHEAD = 2
"""Batches parsed at the same time: pandas' tokenizer runs beside other threads."""


def float_precision(pandas: str) -> Literal["round_trip"] | None:
    """How pandas is told to read a number to its last bit; it does by itself since 3.1, which deprecates the word."""
    return "round_trip" if pandas.startswith(("2.", "3.0.")) else None


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
    numbers, found = _Numbers(identity), [np.zeros(0, np.int64)]
    parts: list[_Part] = []
    kept: list[_Kept] = []
    files: list[Path] = []
    firsts = [0]
    for batch, at_once in _ahead(batches(paths, problems), columns):
        one_by_one = [] if at_once else [good_rows(file, problems) for file in batch]
        for file in batch if at_once else []:
            problems += named(file.path, edited(file))
            if keep:
                lines = file.lines
                kept.append(_Kept(file.path, file.names, file.names, lines, range(2, len(lines) + 2)))
        own = [at_once] if at_once else [_part_of(typed(frame), columns) for frame in one_by_one]
        parts += own
        for file, rows in zip(batch, map(len, one_by_one) if one_by_one else map(_rows_of, batch), strict=True):
            files.append(file.path)
            firsts.append(firsts[-1] + rows)
        found += [numbers.of(part) for part in own if part.rows and identity]
        if keep:
            kept += [_lines_of(file, frame) for file, frame in zip(batch, one_by_one, strict=False)]
    frame = _joined(parts, columns)
    frame = frame.assign(identity=np.concatenate(found)) if identity else frame
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


@dataclass(frozen=True)
class _Part:
    """Rows, a column each; a column of one value is stored once, as a view that repeats it."""

    rows: int
    columns: "dict[str, np.ndarray[Any, Any]]"


def _part_of(frame: pd.DataFrame, columns: Sequence[str]) -> _Part:
    """Typed columns of a file or several: unknown ones are someone's own notes, missing ones are empty."""
    found = {}
    for name in columns:
        values = frame[name].to_numpy() if name in frame else np.array([np.nan if name in NUMBERS else ""])
        if name in FLAGS:
            values = np.isin(values, ("true", "TRUE", "True"))
        alike = _all_alike(values)
        # Copied, because a view would keep the whole block of its type.
        values = values[:1].copy() if alike else values.copy()
        values = _stripped(values) if name in COMPARED else values
        found[name] = np.broadcast_to(values, len(frame)) if alike else values
    return _Part(len(frame), found)


COMPARED = ("suite", "model", "precision", "card", "device", "batch_policy", "mode", "data", "weights", "status")
"""Columns that tell rows apart, in which a blank at an end is somebody's slip and no other value."""


def _stripped(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    codes, different = pd.factorize(values, use_na_sentinel=False)
    return np.array([str(value).strip() for value in different], object)[codes]


def _all_alike(values: "np.ndarray[Any, Any]") -> bool:
    """Whether all are equal, or all NaN. Inside a file most columns are like that."""
    alike = bool((values == values[:1]).all())
    return alike or (values.dtype == float and bool(np.isnan(values).all()))


def _joined(parts: Sequence[_Part], columns: Sequence[str]) -> pd.DataFrame:
    """All parts as one frame, a block of memory per type: pandas' own concatenation would have all of it twice."""
    rows = sum(part.rows for part in parts)
    kinds = {name: float if name in NUMBERS else bool if name in FLAGS else object for name in columns}
    blocks = []
    for kind in (object, float, bool):
        names = [name for name in columns if kinds[name] is kind]
        block = np.empty((len(names), rows), kind)
        for name, values in zip(names, block, strict=True):
            start = 0
            for part in parts:
                values[start : start + part.rows] = part.columns[name]
                start += part.rows
        blocks.append(pd.DataFrame(block.T, columns=names, dtype=kind, copy=False))
    return pd.concat(blocks, axis=1)


def _ahead(batches: Iterator[list[File]], columns: Sequence[str]) -> Iterator[tuple[list[File], _Part | None]]:
    """Each batch with what `_at_once` makes of it; the next ones are parsed meanwhile, in threads."""
    with ThreadPoolExecutor(AHEAD) as pool:
        waiting: deque[tuple[list[File], Future[_Part | None]]] = deque()
        for batch in batches:
            waiting.append((batch, pool.submit(_at_once, batch, columns)))
            if len(waiting) > AHEAD:
                done, parsed = waiting.popleft()
                yield done, parsed.result()
        for done, parsed in waiting:
            yield done, parsed.result()


class _Numbers:
    """Numbers for rows by what they agree in, across parts."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self._seen: dict[tuple[str, ...], int] = {}

    def of(self, part: _Part) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """One number per row."""
        numbers, count = np.zeros(part.rows, np.int64), 1
        for name in self.columns:
            values = part.columns[name]
            if values.strides == (0,):  # one value for all
                continue
            codes, different = pd.factorize(values, use_na_sentinel=False)
            numbers, count = numbers * len(different) + codes, count * len(different)
            if count > 1 << 40:  # the next product could pass an int64
                numbers, few = pd.factorize(numbers)
                count = len(few)
        local, few = pd.factorize(numbers)
        firsts = np.zeros(len(few), np.int64)
        firsts[local[::-1]] = np.arange(len(local))[::-1]
        rows = zip(*(part.columns[name][firsts].tolist() for name in self.columns), strict=True)
        shared = [self._seen.setdefault(tuple(map(str, row)), len(self._seen)) for row in rows]
        return np.array(shared, np.int64)[local]


NAN = re.compile(rb'(?<![^,"\n])[ \t]*[-+]?nan[ \t]*(?![^,"\r\n])', re.IGNORECASE)
"""A cell that says so."""


def _at_once(batch: Sequence[File], columns: Sequence[str]) -> _Part | None:
    """All files as typed rows, or None where any line needs a closer look."""
    names = batch[0].names
    if names[-1] != "end":  # pandas fills a line that is too short with empty cells
        return None
    content = b"".join([file.body for file in batch])
    if b"\0" in content or any(file.content[-1:] != b"\n" for file in batch):
        return None
    if b"nan" in content.lower() and NAN.search(content):  # to pandas as good as empty
        return None
    known = [name for name in columns if name in names]
    numbers = [name for name in known if name in NUMBERS]
    try:
        if not content.isascii():
            content.decode()  # all of it, for what is not read here is passed on too
        frame = pd.read_csv(
            io.BytesIO(content),
            names=list(names),
            header=None,
            usecols=known,
            # pandas' `str` would be validated again in each step below, and `category` may turn "0012" into 12.
            # Numbers are told by pandas: where they are to be such, it takes true for 1.
            dtype={name: object for name in known if name not in NUMBERS},
            low_memory=False,
            float_precision=float_precision(pd.__version__),
            keep_default_na=False,
            na_values={name: [""] for name in numbers},
            encoding="utf-8",
        )
    except (ValueError, OverflowError):  # ParserError, EmptyDataError and UnicodeDecodeError are ValueErrors
        return None
    # Fewer rows than lines: a quote swallowed some. Longer lines become an index, shorter ones lack their `end`.
    if len(frame) != content.count(b"\n") or not isinstance(frame.index, pd.RangeIndex):
        return None
    if any(frame[name].dtype.kind not in "iuf" for name in numbers):
        return None
    frame = frame.astype(dict.fromkeys(numbers, "float64"))
    return _part_of(frame, columns) if _is_good(frame) else None


def _is_good(frame: pd.DataFrame) -> bool:
    """Every row is of a known schema, whole to its end, and its required fields and numbers are there."""
    if not set(REQUIRED) <= set(frame.columns) or not (frame["schema"] <= SCHEMA).all():
        return False
    if any((frame[name] == "").any() for name in REQUIRED if name not in NUMBERS):
        return False
    if not (frame["end"] == "end").all():
        return False
    numbers = [(name, frame[name].to_numpy()) for name in frame.columns if name in NUMBERS]
    return not any(np.isinf(values).any() or may_not_hold(name, values).any() for name, values in numbers)
