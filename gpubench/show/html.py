"""Parts of every HTML page: the frame with its content security policy, and tables. `page` and `site` call it.

Texts from files are escaped, and control characters in them are replaced.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

import gpubench
from gpubench.printed import shown
from gpubench.show.numbers import interval_text, text_of
from gpubench.studies.section import DECIDED, Column, Estimate, Table, Value

if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = files("gpubench.show") / "assets"


@dataclass(frozen=True)
class HtmlCell:
    """A cell of a table: its text, its key for sorting, and its link."""

    text: str
    beside: str = ""
    """Small text after it: an interval, a mark."""
    value: str | None = None
    """The number to sort by, empty where there is none; None for texts."""
    kind: str = ""
    """CSS class."""
    href: str = ""
    outside: bool = False
    """Whether the link leaves the site."""
    bar: tuple[int, ...] = ()
    """Ends of the bar and of its interval, in percent of the cell's width."""


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
    heads: Sequence[tuple[Column, str]]
    """Columns with their CSS class."""
    lines: Sequence[HtmlLine]


def grid_of(table: Table) -> Grid:
    """Return the table as texts."""
    lines = [
        HtmlLine([cell_of(value, column) for value, column in zip(line, table.columns, strict=True)])
        for line in table.lines
    ]
    return Grid(table.name, heads_of(table.columns), lines)


def heads_of(columns: Sequence[Column]) -> list[tuple[Column, str]]:
    """Return each column with its CSS class."""
    return [(column, kind_of(column)) for column in columns]


def kind_of(column: Column) -> Literal["number", "note", ""]:
    """Return the CSS class of a column's cells."""
    return "number" if column.unit else "note" if column.note else ""


def cell_of(
    value: Value, column: Column, href: str = "", *, outside: bool = False, bar: tuple[int, ...] = ()
) -> HtmlCell:
    """Return the cell of a value, with a link if there is an `href`."""
    kind = kind_of(column)
    figure = value.value if isinstance(value, Estimate) else value
    return HtmlCell(
        text=text_of(value, column),
        beside=interval_text(value, column),
        value=repr(float(figure)) if isinstance(figure, int | float) else "" if kind == "number" else None,
        kind=str(value) if value in DECIDED else kind,
        href=href,
        outside=outside,
        bar=bar,
    )


def rendered(template: str, styles: Sequence[str] = (), **values: object) -> str:
    """Return a page: the template in the frame, with the script, the common style and `styles`."""
    from markupsafe import Markup

    css = "\n".join([_asset("report.css"), *styles])
    script = _asset("report.js")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(css)}; base-uri 'none'"
    return (
        _environment()
        .get_template(template)
        .render(
            values,
            policy=f"{policy}; form-action 'none'",
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
