"""Parts of every HTML page: the frame with its content security policy, and tables. `page` and `site` call it.

Texts from files are escaped, and control characters in them are replaced.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import gpubench
from gpubench.printed import shown
from gpubench.show.numbers import filled_columns, interval_text, text_of
from gpubench.studies.section import DECIDED, Column, Table, Value

if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = files("gpubench.show") / "assets"
CAPTIONS = {
    "cases": "One line per case: the median of its trials",
    "speedups": "Speedup of the subject over the baseline, above 1 is faster",
    "evidence": "The figure of each trial",
}
"""Captions of tables by name; other tables have their name as caption."""
LONG = 20
"""Texts of a table with more characters are wrapped."""


@dataclass(frozen=True)
class HtmlCell:
    """A cell of a table: its text and its link."""

    text: str
    beside: str = ""
    """Small text after it: an interval, a mark."""
    value: str = ""
    """The number to sort by, where the text does not begin with it."""
    kind: str = ""
    """CSS class."""
    href: str = ""
    bar: tuple[int, ...] = ()
    """Ends of the bar and of its interval, in percent of the cell's width."""

    @property
    def outside(self) -> bool:
        """Whether the link leaves the site."""
        return self.href.startswith("https:")


@dataclass(frozen=True)
class HtmlLine:
    """A line of a table."""

    cells: Sequence[HtmlCell]
    id: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    """Value of each filter that shows the line, by the name of the filter."""


@dataclass(frozen=True)
class Grid:
    """A table as texts, for a template."""

    name: str
    caption: str
    columns: Sequence[Column]
    lines: Sequence[HtmlLine]

    @property
    def classes(self) -> str:
        """CSS classes that align the columns with numbers to the right: `n2` is the second column."""
        return " ".join(f"n{at}" for at, column in enumerate(self.columns, start=1) if column.unit)


def grid_of(table: Table) -> Grid:
    """Return the table as texts, without empty columns. Texts that are equal in all lines are in the caption."""
    shared, cells = [], []
    columns: list[Column] = []
    for column, values, texts in filled_columns(table):
        if columns and len(texts) > 1 and len(set(texts)) == 1 and not column.unit:
            shared.append(f"{column.name} {texts[0]}")
        else:
            columns.append(column)
            cells.append([cell_of(value, column) for value in values])
    caption = CAPTIONS.get(table.name, table.name) + (f". In all lines: {', '.join(shared)}" if shared else "")
    return Grid(table.name, caption, columns, [HtmlLine(line) for line in zip(*cells, strict=True)])


def cell_of(value: Value, column: Column, href: str = "", *, bar: tuple[int, ...] = ()) -> HtmlCell:
    """Return the cell of a value, with a link if there is an `href`."""
    text = text_of(value, column)
    return HtmlCell(
        text=text,
        beside=interval_text(value, column),
        value=repr(value) if column.unit == "bytes" else "",
        kind=str(value) if value in DECIDED else "note" if column.note else "long" if len(text) > LONG else "",
        href=href,
        bar=bar,
    )


def rendered(template: str, styles: Sequence[str] = (), **values: object) -> str:
    """Return a page: the template in the frame, with the script, the common style and `styles`."""
    from markupsafe import Markup

    css = "\n".join([_asset("report.css"), *styles])
    script = _asset("report.js")
    # Browsers apply connect-src also to checkers that read the robots.txt of a served page.
    policy = f"default-src 'none'; connect-src 'self'; script-src {_hash(script)}; style-src {_hash(css)}"
    return (
        _environment()
        .get_template(template)
        .render(
            values,
            policy=f"{policy}; base-uri 'none'; form-action 'none'",
            style=Markup(css),
            script=Markup(script),
            version=gpubench.__version__,
        )
    )


@cache
def _environment() -> "Environment":
    """Return the environment of the templates, which escapes every text."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def printable(value: object) -> object:
        return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_asset),
        finalize=printable,
    )


@cache
def _asset(name: str) -> str:
    """Return the text of a file in ASSETS."""
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash of a script or style, for the content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
