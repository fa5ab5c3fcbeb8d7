"""An answer as one HTML file: opens offline, asks nothing of any network, and carries its rows.

Every text of a row is escaped; the page's own policy lets only the script and the style run that it was written with.
"""

import base64
import hashlib
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import gpubench
from gpubench.errors import UserError
from gpubench.rows.embed import html_link
from gpubench.show.charts import drawn, figure_of, worth_drawing
from gpubench.show.numbers import interval_text, text_of
from gpubench.show.style import BLUE, INK, style
from gpubench.studies.section import DECIDED, Answer, Chart, Column, Estimate, Section, Table, Value

FIRST = 8
"""Findings that are seen at once."""
OPEN = 2
"""Of more sections than these each is folded."""
WIDTH = 4.6
"""Inches of a chart: its smallest text is 10 pixels high on a phone that is 390 wide."""
VARIABLES = {
    **dict(zip(INK["page"], ("--bg", "--ink", "--soft", "--line", "--bar"), strict=True)),
    BLUE["page"]: "--blue",
}
"""Colours of a chart that the page's style sets, light or dark."""
SVG = "{http://www.w3.org/2000/svg}"
DECIMAL = re.compile(r"-?\d+\.\d+")
HREF = "{http://www.w3.org/1999/xlink}href"


def write(answer: Answer, out: Path) -> str:
    """Write the page, return the line to print. Raises UserError."""
    page = page_of(answer).encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(page)
    except OSError as error:
        raise UserError(f"--out {out}: cannot write there ({error.strerror})") from None
    return f"{out}: {len(page) / 1e3:.0f} kB, opens offline"


def page_of(answer: Answer) -> str:
    """The whole page."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    assets = files("gpubench.show") / "assets"
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    template = environment.from_string((assets / "page.html").read_text(encoding="utf-8"))
    looks: dict[str, str] = {}
    folded = len(answer.sections) > OPEN
    first = [chart for each in answer.findings for chart in worth_drawing(each.charts)][: int(folded)]
    with style("page"):
        lead = _inline(first, "lead", looks)
        sections = [_section(number, section, looks) for number, section in enumerate(answer.sections)]
    rules = [f".{name} {{{_declarations(look)}}}" for look, name in looks.items()]
    css = "\n".join([(assets / "report.css").read_text(encoding="utf-8"), *rules])
    script = (assets / "report.js").read_text(encoding="utf-8")
    return template.render(
        answer=answer,
        told=[each.sentence for each in answer.compared if each.sentence != answer.headline],
        first=FIRST,
        suites=", ".join(dict.fromkeys(section.suite for section in answer.sections)) or "nothing to compare",
        sections=sections,
        folded=folded,
        lead=lead,
        link=Markup(html_link(answer.table(None))),
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(css)}; base-uri 'none';"
        " form-action 'none'",
        style=Markup(css),
        script=Markup(script),
        version=gpubench.__version__,
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _section(number: int, section: Section, looks: dict[str, str]) -> dict[str, Any]:
    charts = worth_drawing([*(chart for each in section.findings for chart in each.charts), *section.charts])
    return {
        "is": section,
        "charts": _inline(charts, f"c{number}", looks),
        "tables": [_table(table) for table in section.tables],
    }


def _table(table: Table) -> dict[str, Any]:
    """Its columns and lines as texts, with the values that numbers are sorted by."""
    kinds = ["number" if column.unit else "note" if column.note else "" for column in table.columns]
    lines = [
        [_cell(value, column, kind) for value, column, kind in zip(line, table.columns, kinds, strict=True)]
        for line in table.lines
    ]
    return {"name": table.name, "heads": list(zip(table.columns, kinds, strict=True)), "lines": lines}


def _cell(value: Value, column: Column, kind: str) -> dict[str, Any]:
    figure = value.value if isinstance(value, Estimate) else value
    return {
        "text": text_of(value, column),
        "interval": interval_text(value, column),
        "value": repr(float(figure)) if isinstance(figure, int | float) else "" if kind == "number" else None,
        "class": str(value) if value in DECIDED else kind,
    }


def _inline(charts: Sequence[Chart], prefix: str, looks: dict[str, str]) -> list[tuple[Chart, Any]]:
    """Each with its picture as markup: its styles are classes, which `looks` has, and its ids nobody else's."""
    from markupsafe import Markup

    found = []
    for at, chart in enumerate(map(drawn, charts)):
        picture = io.BytesIO()
        figure_of(chart, width=WIDTH, framed=False).savefig(picture, format="svg", metadata={"Date": None})
        text = re.sub(r"[^\t\n\r\x20-\ufffd\U00010000-\U0010ffff]", "", picture.getvalue().decode())
        root = ET.fromstring(text)
        root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": chart.title}
        _trim(root, f"{prefix}-{at}-", looks)
        found.append((chart, Markup(ET.tostring(root, encoding="unicode"))))
    return found


def _trim(element: ET.Element, prefix: str, looks: dict[str, str]) -> None:
    """Leave out what nothing needs, and shorten the rest."""
    element.tag = element.tag.removeprefix(SVG)
    for name in ("d", "x", "y"):
        if value := element.get(name):
            element.set(name, DECIMAL.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), value.strip()))
    element.attrib.pop("clip-path", None)  # nothing is drawn outside
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if look := element.attrib.pop("style", ""):
        element.set("class", looks.setdefault(look, f"s{len(looks)}"))
    if target := element.attrib.pop(HREF, ""):
        element.set("href", f"#{prefix}{target[1:]}")
    if (name := element.attrib.pop("id", "")) and element.tag == "path":
        element.set("id", prefix + name)
    if element.tag != "text":
        element.text = None
    element.tail = None
    children: list[ET.Element] = []
    for child in element:
        _trim(child, prefix, looks)
        if child.tag == "g" and not child.attrib:
            children += child
        elif child.tag not in {"metadata", "style", "clipPath"} and (child.tag != "defs" or len(child)):
            children.append(child)
    element[:] = children


def _declarations(look: str) -> str:
    """A style of matplotlib's in the page's fonts and colours."""
    found = []
    for declaration in filter(None, look.split(";")):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":
            value = f"{value.partition('px')[0]}px system-ui, sans-serif"
        if name != "font-family":
            found.append(f"{name}: {f'var({VARIABLES[value]})' if value in VARIABLES else value}")
    return "; ".join(found)
