"""An answer as one HTML file: opens offline, asks nothing of any network, and carries its rows.

Every text of a row is escaped; the page's own policy lets only the script and the style run that it was written with.
"""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench.errors import UserError
from gpubench.rows.embed import html_link
from gpubench.show.charts import drawn, figure_of, worth_drawing
from gpubench.show.html import grid_of, rendered
from gpubench.show.style import BLUE, INK, style
from gpubench.studies.section import Answer, Chart, Section
from gpubench.studies.words import read_of

if TYPE_CHECKING:
    from markupsafe import Markup

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


def page_of(answer: Answer, home: str = "") -> str:
    """The whole page; `home` is the address of a page that it belongs to."""
    from markupsafe import Markup

    looks: dict[str, str] = {}
    folded = len(answer.sections) > OPEN
    first = [chart for each in answer.findings for chart in worth_drawing(each.charts)][: int(folded)]
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
        told=[each.sentence for each in answer.compared if each.sentence != answer.headline],
        first=FIRST,
        suites=suites,
        sections=sections,
        folded=folded,
        lead=lead,
        link=Markup(html_link(answer.table(None))),
        home=home,
    )


def _section(number: int, section: Section, looks: dict[str, str]) -> dict[str, Any]:
    charts = worth_drawing([*(chart for each in section.findings for chart in each.charts), *section.charts])
    return {
        "is": section,
        "charts": inline(charts, f"c{number}", looks),
        "tables": [grid_of(table) for table in section.tables],
    }


def inline(charts: Sequence[Chart], prefix: str, looks: dict[str, str]) -> "list[tuple[Chart, Markup]]":
    """Each with its picture as markup: its styles are classes, which `looks` has, and its ids nobody else's.

    Drawn in the style that is set, which is `page`.
    """
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


def rules_of(looks: Mapping[str, str]) -> list[str]:
    """The classes of pictures as CSS."""
    return [f".{name} {{{_declarations(look)}}}" for look, name in looks.items()]


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
