"""What every HTML page is made of: its frame, a policy that lets nothing but its own script and style run, tables.

Whatever a file says becomes text: templates escape it, and what turns writing around or hides is replaced.
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
class Cell:
    """A cell of a table as text, with what it is sorted by and what it leads to."""

    text: str
    beside: str = ""
    """What follows it, small: an interval, a mark."""
    value: str | None = None
    """What a number is sorted by, empty where there is none; None for texts."""
    kind: str = ""
    """Its class."""
    href: str = ""
    outside: bool = False
    """Whether that leaves the site."""
    bar: tuple[int, ...] = ()
    """Hundredths of a line: where a bar ends, and both ends of its interval."""


@dataclass(frozen=True)
class Line:
    """A line of a table."""

    cells: Sequence[Cell]
    id: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    """By the name of a filter what it has to be set to for the line to be shown."""


@dataclass(frozen=True)
class Grid:
    """A table as a template shows it."""

    name: str
    heads: Sequence[tuple[Column, str]]
    """Each with its class."""
    lines: Sequence[Line]


def grid_of(table: Table) -> Grid:
    """Its columns and lines as texts."""
    lines = [
        Line([cell_of(value, column) for value, column in zip(line, table.columns, strict=True)])
        for line in table.lines
    ]
    return Grid(table.name, heads_of(table.columns), lines)


def heads_of(columns: Sequence[Column]) -> list[tuple[Column, str]]:
    """Each column with its class."""
    return [(column, kind_of(column)) for column in columns]


def kind_of(column: Column) -> Literal["number", "note", ""]:
    """The class of its cells."""
    return "number" if column.unit else "note" if column.note else ""


def cell_of(value: Value, column: Column, href: str = "", *, outside: bool = False, bar: tuple[int, ...] = ()) -> Cell:
    """The text of a value, which may lead somewhere."""
    kind = kind_of(column)
    figure = value.value if isinstance(value, Estimate) else value
    return Cell(
        text=text_of(value, column),
        beside=interval_text(value, column),
        value=repr(float(figure)) if isinstance(figure, int | float) else "" if kind == "number" else None,
        kind=str(value) if value in DECIDED else kind,
        href=href,
        outside=outside,
        bar=bar,
    )


def rendered(template: str, styles: Sequence[str] = (), **values: object) -> str:
    """A page: the template in the frame, with the style of the report and `styles`, and its script."""
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
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def harmless(value: object) -> object:
        return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_asset),
        finalize=harmless,
    )


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
