"""Parts of every HTML page: the frame with its content security policy, and tables. `page` and `site` call it.

Texts from files are escaped, and control characters in them are replaced.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import compress
from typing import TYPE_CHECKING, Any

import gpubench
from gpubench.printed import shown
from gpubench.show.numbers import cell_text, interval_text
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
    """A cell of a table: its column, text and link."""

    column: Column
    text: str
    beside: str = ""
    """Small text after `text`: an interval, a mark."""
    value: str = ""
    """The number by which a table is sorted, if the text does not begin with this number."""
    css_class: str = ""
    href: str = ""
    bar: tuple[int, ...] = ()
    """Ends of the bar and of its interval, in percent of the cell's width."""


@dataclass(frozen=True)
class HtmlLine:
    """A line of a table."""

    cells: Sequence[HtmlCell]
    id: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    """The value with which each filter shows the line, by the name of the filter."""


@dataclass(frozen=True)
class Grid:
    """A table as texts, for a template. Columns that are empty in all lines are left out."""

    name: str
    caption: str
    lines: Sequence[HtmlLine]

    @classmethod
    def of(cls, name: str, caption: str, lines: Sequence[HtmlLine]) -> "Grid":
        """Return the table of these lines; a text that is equal in all lines and is no link is only in the caption."""
        kept: list[bool] = []
        shared: list[str] = []
        for first, *others in zip(*(line.cells for line in lines), strict=True):
            texts = {(cell.text, cell.beside) for cell in (first, *others)}
            is_shared = any(kept) and others and len(texts) == 1 and not (first.column.unit or first.href)
            kept.append(not is_shared and texts != {("", "")})
            if is_shared and first.text:
                shared.append(f"{first.column.name} {first.text}" + (f" ({first.beside})" if first.beside else ""))
        caption += f". In all lines: {', '.join(shared)}" if shared else ""
        return cls(name, caption, [replace(line, cells=list(compress(line.cells, kept))) for line in lines])

    @property
    def columns(self) -> list[Column]:
        """The columns of the first line."""
        return [cell.column for cell in self.lines[0].cells] if self.lines else []

    @property
    def classes(self) -> str:
        """CSS classes that right-align the columns of numbers: `n2` is the second column."""
        return " ".join(f"n{at}" for at, column in enumerate(self.columns, start=1) if column.unit)


def grid_of(table: Table) -> Grid:
    """Return the table as texts."""
    lines = [HtmlLine(list(map(cell_of, line, table.columns))) for line in table.lines]
    return Grid.of(table.name, CAPTIONS.get(table.name, table.name), lines)


def cell_of(value: Value, column: Column, href: str = "", **more: Any) -> HtmlCell:
    """Return the cell of a value, with a link to `href` if given; `more`: other fields."""
    text = cell_text(value, column)
    css_class = str(value) if value in DECIDED else "note" if column.note else "long" if len(text) > LONG else ""
    number = repr(value) if text and column.unit in {"bytes", "p"} else ""  # `1 GiB` and `<0.0001` do not sort
    beside = interval_text(value, column)
    return HtmlCell(column, text, **{"beside": beside, "value": number, "css_class": css_class, "href": href, **more})


def rendered(template: str, styles: Sequence[str] = (), **values: object) -> str:
    """Return a page: the template in the frame, with the script, the common style and `styles`."""
    from markupsafe import Markup

    css = "\n".join([_minified("report.css"), *styles])
    script = _minified("report.js")
    # connect-src 'self' lets page checkers fetch robots.txt from within the page.
    policy = f"default-src 'none'; connect-src 'self'; script-src {_hash(script)}; style-src {_hash(css)}"
    policy += "; base-uri 'none'; form-action 'none'"
    parts = {"style": Markup(css), "script": Markup(script), "version": gpubench.__version__}
    return _environment().get_template(template).render(values, policy=policy, **parts)


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
    return (ASSETS / name).read_text(encoding="utf-8")


def _minified(name: str) -> str:
    """Return the text of a script or style without indentation and lines of comment."""
    lines = map(str.strip, _asset(name).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _hash(text: str) -> str:
    """Return the hash of a script or style, for the content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
