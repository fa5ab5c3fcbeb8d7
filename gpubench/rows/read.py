"""CSV files (or charts and reports that carry one) to one table of rows, with every problem named.

Good rows are used whatever the others are. Files are read many at once; only where that fails is each looked at line
by line.
"""

import csv
import io
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from gpubench.rows.embed import RowsLostError, table_in
from gpubench.rows.row import COLUMNS, SCHEMA, Row

OURS = ("schema", "suite")
"""Columns that tell our files, of any schema, from other people's."""
REQUIRED = ("schema", "suite", "model", "precision", "status")
NAMED_LINES = 5
"""Bad lines named one by one; further ones are counted."""
BATCH_BYTES = 16 << 20
"""Files of one header are parsed together up to this size."""
AHEAD = 2
"""Batches parsed at the same time: pandas' tokenizer runs beside other threads."""


def float_precision(pandas: str) -> Literal["round_trip"] | None:
    """How pandas is told to read a number to its last bit; it does by itself since 3.1, which deprecates the word."""
    return "round_trip" if pandas.startswith(("2.", "3.0.")) else None


def _columns_of(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(Row) if f.type in (kind, kind | None))


NUMBERS = _columns_of(int) + _columns_of(float)
FLAGS = _columns_of(bool)

STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

csv.field_size_limit(1 << 30)  # a long run's laps


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


@dataclass(frozen=True)
class _Kept:
    names: tuple[str, ...]
    lines: Sequence[bytes]


@dataclass(frozen=True)
class _File:
    path: Path
    names: tuple[str, ...]
    content: bytes
    """The whole file; its first line is the header."""

    @property
    def body(self) -> memoryview:
        """What follows the header, not copied."""
        end = self.content.find(b"\n")
        return memoryview(self.content)[end + 1 if end >= 0 else len(self.content) :]

    @property
    def lines(self) -> list[bytes]:
        """Those of the body, which ends with a newline."""
        return [line.rstrip(b"\r") for line in bytes(self.body).split(b"\n")[:-1]]


def load(
    paths: Sequence[Path], without: Collection[str] = (), identity: Sequence[str] = (), *, keep: bool = False
) -> Loaded:
    """Read every file; what cannot be used is left out and named in `problems`. Raises nothing.

    Columns in `without` are not read: they are missing from the frame. With `identity`, a column of that name
    numbers the rows from 0, the same for rows that agree in all of those columns. With `keep` the rows' own text stays
    in memory, so that it can be passed on.
    """
    problems: list[str] = []
    columns = [name for name in COLUMNS if name not in without]
    numbers, found = _Numbers(identity), [np.zeros(0, np.int64)]
    parts: list[_Part] = []
    kept: list[_Kept] = []
    for batch, at_once in _ahead(_batches(paths, problems), columns):
        closely = [] if at_once else [_closely(file, problems) for file in batch]
        own = [at_once] if at_once else [_part_of(_typed(frame), columns) for frame in closely]
        parts += own
        found += [numbers.of(part) for part in own if part.rows and identity]
        if keep:
            kept += [_lines_of(frame) for frame in closely] or [_Kept(file.names, file.lines) for file in batch]
    frame = _joined(parts, columns)
    frame = frame.assign(identity=np.concatenate(found)) if identity else frame
    return Loaded(frame, problems, tuple(kept))


def _lines_of(frame: pd.DataFrame) -> _Kept:
    """Rows of `_closely` as lines of a table of ours."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        frame.reindex(columns=list(COLUMNS), fill_value="").assign(end="end").itertuples(index=False)
    )
    return _Kept(COLUMNS, out.getvalue().encode().split(b"\n")[:-1])


def _in_columns(names: Sequence[str], line: bytes) -> bytes:
    """A line of a table with other columns as one with ours."""
    known = {"end": "end", **dict(zip(names, _split(line.decode()), strict=True))}
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([known.get(name, "") for name in COLUMNS])
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
        # Copied, because a view would keep the whole block of its type.
        found[name] = np.broadcast_to(values[:1].copy(), len(frame)) if _all_alike(values) else values.copy()
    return _Part(len(frame), found)


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


def _ahead(batches: Iterator[list[_File]], columns: Sequence[str]) -> Iterator[tuple[list[_File], _Part | None]]:
    """Each batch with what `_at_once` makes of it; the next ones are parsed meanwhile, in threads."""
    with ThreadPoolExecutor(AHEAD) as pool:
        waiting: deque[tuple[list[_File], Future[_Part | None]]] = deque()
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


def shown(text: str) -> str:
    """A text without characters that steer a terminal or turn the direction of writing around."""
    return STEERING.sub("\ufffd", text)


def _batches(paths: Sequence[Path], problems: list[str]) -> Iterator[list[_File]]:
    """Readable files of our kind, in order, grouped where neighbours have one header."""
    batch: list[_File] = []
    size = 0
    for path in _files(paths, problems):
        file = _opened(path, problems)
        if file is None:
            continue
        if batch and (file.names != batch[0].names or size + len(file.content) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += len(file.content)
    if batch:
        yield batch


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


def _opened(path: Path, problems: list[str]) -> _File | None:
    """The file, its rows unpacked where it is a chart or report; None where it is not ours."""
    try:
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
    end = content.find(b"\n")
    header = content[: end if end >= 0 else len(content)].decode("utf-8-sig", "replace").rstrip("\r")
    names = _split(header)
    missing = [name for name in OURS if name not in names]
    if missing:
        problems.append(f"{path}: not a gpubench file (it has no column {', '.join(missing)}); left out")
        return None
    if len(set(names)) != len(names):
        problems.append(f"{path}, line 1: a column stands twice in the header; left out")
        return None
    return _File(path, tuple(names), content)


def _split(line: str) -> list[str]:
    """The cells of one line; none where it is no CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _at_once(batch: Sequence[_File], columns: Sequence[str]) -> _Part | None:
    """All files as typed rows, or None where any line needs a closer look."""
    names = batch[0].names
    if names[-1] != "end":  # pandas fills a line that is too short with empty cells
        return None
    content = b"".join([file.body for file in batch])
    if b"\0" in content or any(file.content[-1:] != b"\n" for file in batch):
        return None
    known = [name for name in columns if name in names]
    numbers = [name for name in known if name in NUMBERS]
    try:
        frame = pd.read_csv(
            io.BytesIO(content),
            names=list(names),
            header=None,
            usecols=known,
            # pandas' `str` would be validated again in each step below, and `category` may turn "0012" into 12.
            dtype={name: "float64" if name in NUMBERS else object for name in known},
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
    return _part_of(frame, columns) if _is_good(frame) else None


def _is_good(frame: pd.DataFrame) -> bool:
    """Every row is of a known schema, whole to its end, and its required fields and numbers are there."""
    if not set(REQUIRED) <= set(frame.columns) or not (frame["schema"] <= SCHEMA).all():
        return False
    if any((frame[name] == "").any() for name in REQUIRED if name not in NUMBERS):
        return False
    if not (frame["end"] == "end").all():
        return False
    return not any(np.isinf(frame[name].to_numpy()).any() for name in frame.columns if name in NUMBERS)


def _closely(file: _File, problems: list[str]) -> pd.DataFrame:
    """The good rows of one file as text, each line on its own; what is wrong with the others goes to `problems`."""
    frame = _line_by_line(file, problems)
    newer = _newer(frame)
    if newer.any():
        version = frame["schema"][newer].iloc[0]
        problems.append(
            f"{file.path}: {int(newer.sum())} row(s) by a newer gpubench (schema {version}, this one reads"
            f" {SCHEMA}); upgrade gpubench to read them"
        )
    elif frame.empty and not bytes(file.body).strip():
        problems.append(f"{file.path}: no rows")
    return frame[~newer]


def _newer(frame: pd.DataFrame) -> "pd.Series[bool]":
    return pd.to_numeric(frame["schema"], errors="coerce") > SCHEMA


def _bad(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Rows of a known schema in which a required field is empty, a number is none, or the end is missing."""
    bad = pd.Series(False, index=frame.index)
    for name in REQUIRED:
        bad |= frame[name] == "" if name in frame else True
    if "end" in frame:
        bad |= frame["end"] != "end"  # a short line that was torn and then sealed
    texts = frame[[name for name in frame if name in NUMBERS]]
    none = (~np.isfinite(_numbers(texts)) & (texts != "").to_numpy()).any(axis=1)
    wrong: pd.Series[bool] = (bad | pd.Series(none, index=frame.index)) & ~_newer(frame)
    return wrong


def _numbers(texts: pd.DataFrame) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Every text as a number, NaN where it is none."""
    flat = texts.to_numpy(dtype=object).ravel()
    found = np.array(pd.to_numeric(pd.Series(flat), errors="coerce"), dtype=float)
    known = np.isfinite(found)
    found[known] = flat[known].astype(float)  # pandas tells what a number is, and before 3.1 is off by a bit
    return found.reshape(texts.shape)


def _line_by_line(file: _File, problems: list[str]) -> pd.DataFrame:
    """Each line on its own: a row of ours never spans two, so a torn one spoils no other."""
    path, names = file.path, file.names
    known = [number for number, name in enumerate(names) if name in COLUMNS]
    lines = file.content.decode("utf-8-sig", "replace").split("\n")
    header = lines[0].rstrip("\r")
    last = len(lines)
    # A last line without a newline was torn, unless it is whole to its last cell (an editor's doing).
    torn = bool(lines[-1].strip()) and not _whole(lines[-1], names)
    rows, numbers, wrong = [], [], []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip() or line.rstrip("\r") == header:  # files joined with `cat` repeat it
            continue
        cells = _split(line.rstrip("\r").replace("\0", ""))
        if len(cells) == len(names) and line.count('"') % 2 == 0 and not (torn and number == last):
            rows.append([cells[at] for at in known])
            numbers.append(number)
        elif torn and number == last:
            problems.append(f"{path}, line {number}: torn (its run was killed while writing it); left out")
        else:
            wrong.append(number)
    frame = pd.DataFrame(rows, columns=[names[at] for at in known], index=numbers, dtype=str)
    bad = _bad(frame)
    wrong = sorted(wrong + list(frame.index[bad]))
    problems += [f"{path}, line {number}: not a whole row; left out" for number in wrong[:NAMED_LINES]]
    if len(wrong) > NAMED_LINES:
        problems.append(f"{path}: {len(wrong) - NAMED_LINES} more lines are no whole rows; left out")
    return frame[~bad]


def _whole(line: str, names: Sequence[str]) -> bool:
    cells = _split(line.rstrip("\r"))
    return len(cells) == len(names) and cells[-1:] == ["end"] and line.count('"') % 2 == 0


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of `_closely` with numbers for texts where a column has them."""
    known = [name for name in frame if name in NUMBERS]
    texts = frame.drop(columns=known).astype(object)
    return pd.concat([texts, pd.DataFrame(_numbers(frame[known]), index=frame.index, columns=known)], axis=1)
