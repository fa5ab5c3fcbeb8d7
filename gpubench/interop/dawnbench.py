"""DAWNBench's pair of files: a JSON that says what ran, and a TSV of hours and accuracy by epoch; both ways.

A row keeps the TSV in its `table`, cells as they are written, and before the columns an object: the files' name, the
JSON without the author's e-mail address, and in what the TSV is laid out unlike most. So the TSV comes back byte for
byte, but for blank lines and empty cells at the end of a line, and of the JSON every other field.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpubench.errors import UserError

BOM = "\ufeff"
USUAL = {"start": "", "separator": "\t", "line": "\n", "end": "\n"}
"""How most TSVs are laid out: nothing before the header, tabs, lines, and what stands after the last line."""
PRIVATE = "authorEmail"


@dataclass(frozen=True)
class Entry:
    """One entry."""

    name: str
    """Of both files, without suffix."""
    about: Mapping[str, Any]
    """The JSON."""
    columns: list[str]
    lines: list[list[str]]
    """Cells as they are written."""
    layout: Mapping[str, str] = field(default_factory=dict)
    """In what the TSV differs from USUAL."""

    def by_column(self) -> list[dict[str, str]]:
        """The lines by column, without blanks around names and cells."""
        names = [name.strip() for name in self.columns]
        return [dict(zip(names, map(str.strip, line), strict=True)) for line in self.lines]

    @property
    def tsv(self) -> str:
        """The TSV's text."""
        look = {**USUAL, **self.layout}
        lines = [look["separator"].join(cells) for cells in (self.columns, *self.lines)]
        return look["start"] + look["line"].join(lines) + look["end"]

    @property
    def json(self) -> str:
        """The JSON's text, as most entries are laid out."""
        return json.dumps(self.about, indent=4, ensure_ascii=False) + "\n"

    @property
    def table(self) -> str:
        """What a row keeps of it."""
        public = {name: value for name, value in self.about.items() if name != PRIVATE}
        whence = {"file": self.name, "about": public, **({"layout": self.layout} if self.layout else {})}
        text = json.dumps([whence, self.columns, *self.lines], separators=(",", ":"))
        # A row's texts lose blanks that follow blanks, and these are all inside strings.
        return re.sub(" (?= )", r"\\u0020", text)


def read_entry(path: Path) -> Entry:
    """The entry that either of its files names. Raises UserError where the other is missing."""
    about, tsv = path.with_suffix(".json"), path.with_suffix(".tsv")
    for one, other in ((about, tsv), (tsv, about)):
        if other.exists() and not one.exists():
            raise UserError(f"{other}: {one.name} is missing beside it; an entry is a .json and a .tsv of one name")
    text = tsv.read_bytes().decode()
    body = text.removeprefix(BOM)
    line = "\r\n" if "\r\n" in body else "\n"
    header = body.partition(line)[0]
    separator = "\t" if "\t" in header else ","
    whole = body.rstrip("\r\n")
    look = {"start": text[: len(text) - len(body)], "separator": separator, "line": line, "end": body[len(whole) :]}
    columns, *lines = [cells.split(separator) for cells in whole.split(line)]
    filled = [cells for cells in lines if any(cell.strip() for cell in cells)]
    for cells in filled:
        if any(cell.strip() for cell in cells[len(columns) :]):
            raise UserError(f"{tsv}: a line has more cells than there are columns: {', '.join(cells)}")
    return Entry(
        path.stem,
        json.loads(about.read_text(encoding="utf-8-sig")),
        columns,
        [(cells + [""] * len(columns))[: len(columns)] for cells in filled],
        {name: value for name, value in look.items() if value != USUAL[name]},
    )


def entry_in(table: object) -> Entry | None:
    """The entry that a row keeps in its `table`; None where that is another, or broken."""
    try:
        whence, columns, *lines = json.loads(str(table))
        name, about, layout = str(whence["file"]), dict(whence["about"]), dict(whence.get("layout", {}))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    cells = [columns, *lines]
    if not all(isinstance(line, list) and all(isinstance(cell, str) for cell in line) for line in cells):
        return None
    if not all(isinstance(value, str) for value in layout.values()):
        return None
    return Entry(name, about, columns, lines, layout)
