"""Results as one HTML file that opens offline and contains its rows. `report` and the site call it.

Every text of a row is escaped. The page's content security policy allows only its built-in script and style.
"""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench.errors import UserError
from gpubench.rows.embed import html_link
from gpubench.show.charts import FINDINGS, charts_of, drawn, figure_of, worth_drawing
from gpubench.show.html import grid_of, rendered
from gpubench.show.style import BLUE, INK, style
from gpubench.studies.section import Answer, Chart, Section
from gpubench.studies.words import read_of

if TYPE_CHECKING:
    from markupsafe import Markup

FIRST = 8
"""Results that are visible without unfolding."""
OPEN = 2
"""Sections are folded if there are more of them."""
WIDTH = 4.6
"""Width of a chart, in inches: its smallest text is 10 pixels high on a phone that is 390 pixels wide."""
VARIABLES = {
    **dict(zip(INK["page"], ("--bg", "--ink", "--soft", "--line", "--bar"), strict=True)),
    BLUE["page"]: "--blue",
}
"""CSS variable of each chart colour that differs between light and dark pages."""
SVG = "{http://www.w3.org/2000/svg}"
DECIMAL = re.compile(r"-?\d+\.\d+")
HREF = "{http://www.w3.org/1999/xlink}href"


def write(answer: Answer, out: Path) -> str:
    """Write the page; return the line to print. Raises UserError if `out` cannot be written."""
    page = page_of(answer).encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(page)
    except OSError as error:
        raise UserError(f"--out {out}: cannot write there ({error.strerror})") from None
    return f"{out}: {len(page) / 1e3:.0f} kB, opens offline"


def page_of(answer: Answer, home: str = "") -> str:
    """Return the page as HTML; `home` is the address of the site's first page, empty for a single page."""
    from markupsafe import Markup

    looks: dict[str, str] = {}
    folded = len(answer.sections) > OPEN
    first = [chart for result in answer.results for chart in worth_drawing(result.charts)][: int(folded)]
    with style("page"):
        lead = inline(first, "lead", looks)
        sections = [_section(number, section, looks) for number, section in enumerate(answer.sections)]
    suites = ", ".join(dict.fromkeys(section.suite for section in answer.sections)) or "nothing to compare"
    return rendered(
        "page.html",
        rules_of(looks),
        title=f"gpubench: {suites}",
        answer=answer,
        read=" ".join(read_of(answer)),
        sentences=[result.sentence for result in answer.comparisons if result.sentence != answer.headline],
        first=FIRST,
        suites=suites,
        sections=sections,
        folded=folded,
        lead=lead,
        link=Markup(html_link(answer.table(None))),
        home=home,
    )


def _section(number: int, section: Section, looks: dict[str, str]) -> dict[str, Any]:
    """Return a section with its charts and tables, as the template needs them."""
    return {
        "section": section,
        "charts": inline(charts_of(section, FINDINGS), f"c{number}", looks),
        "tables": [grid_of(table) for table in section.tables],
    }


def inline(charts: Sequence[Chart], prefix: str, looks: dict[str, str]) -> "list[tuple[Chart, Markup]]":
    """Return each chart with its picture as SVG, drawn in the current style, which must be `page`.

    Styles become CSS classes, which are added to `looks`; ids begin with `prefix`, so they are unique on the page.
    """
    from markupsafe import Markup

    pictures = []
    for at, chart in enumerate(map(drawn, charts)):
        picture = io.BytesIO()
        figure_of(chart, width=WIDTH, framed=False).savefig(picture, format="svg", metadata={"Date": None})
        text = re.sub(r"[^\t\n\r\x20-\ufffd\U00010000-\U0010ffff]", "", picture.getvalue().decode())
        root = ET.fromstring(text)
        root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": chart.title}
        _trim(root, f"{prefix}-{at}-", looks)
        pictures.append((chart, Markup(ET.tostring(root, encoding="unicode"))))
    return pictures


def _trim(element: ET.Element, prefix: str, looks: dict[str, str]) -> None:
    """Make the SVG shorter: remove what is not needed, round numbers, and replace styles with classes."""
    element.tag = element.tag.removeprefix(SVG)
    for name in ("d", "x", "y"):
        if value := element.get(name):
            element.set(name, DECIMAL.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value.strip()))
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


def rules_of(looks: Mapping[str, str]) -> list[str]:
    """Return the CSS rule of each class in `looks`."""
    return [f".{name} {{{_declarations(look)}}}" for look, name in looks.items()]


def _declarations(look: str) -> str:
    """Return a style that matplotlib wrote, with the page's font and colours."""
    declarations = []
    for declaration in filter(None, look.split(";")):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":
            value = f"{value.partition('px')[0]}px system-ui, sans-serif"
        if name != "font-family":
            declarations.append(f"{name}: {f'var({VARIABLES[value]})' if value in VARIABLES else value}")
    return "; ".join(declarations)
