"""Results as one HTML file that opens offline and contains its rows. `report` and the site call it.

Every text of a row is escaped. The content security policy allows no script and no style but the page's own.
"""

import csv
import gzip
import io
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench.analysis.groups import short
from gpubench.errors import writing
from gpubench.printed import shortened
from gpubench.rows.embed import html_link
from gpubench.rows.row import DIGEST
from gpubench.show.charts import charts_of, dated, days_of, drawn, figure_of, first_charts
from gpubench.show.html import grid_of, rendered
from gpubench.show.numbers import read_of
from gpubench.show.style import BLUE, INK, style
from gpubench.studies.answer import in_units
from gpubench.studies.section import Answer, Bars, Section
from gpubench.studies.words import listed

if TYPE_CHECKING:
    from markupsafe import Markup

FIRST = 8
"""Results that are visible without unfolding."""
WIDTH = 4.6
"""Width of a chart, in inches: its smallest text is 10 pixels high on a phone that is 390 pixels wide."""
VARIABLES = {
    **dict(zip(INK["page"], ("--bg", "--ink", "--soft", "--line", "--bar", "--same", "--bad"), strict=True)),
    BLUE["page"]: "--blue",
}
"""CSS variable of each chart colour that differs between light and dark pages."""
MOST_CHARTS = 24
"""Maximum charts of a page."""
MOST_NAMED = 3
"""Maximum cards or versions that are named."""
MOST_PACKED = 50_000
"""If the compressed rows are larger, in bytes, the page contains the rows without laps and checksums."""
SVG = "{http://www.w3.org/2000/svg}"
DECIMAL = re.compile(r"-?\d+\.\d+")
BETWEEN_COMMANDS = re.compile(r"\s*([A-Za-z])\s*")
"""A command of a path with the blanks around it, which SVG does not need."""
SETTING = re.compile(r", (\w+=[^,;]*)")
"""A parameter in the title of a section."""
BAR = re.compile(r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4z")
"""The path of a rectangle, which has a shorter form."""
HREF = "{http://www.w3.org/1999/xlink}href"


def write(answer: Answer, out: Path) -> str:
    """Write the page; return the line to print. Raises UserError if `out` cannot be written."""
    page = page_of(answer).encode()
    with writing(f"--out {out}", out):
        out.write_bytes(page)
    return f"{out}: {len(page) / 1e3:.0f} kB, opens offline"


def page_of(answer: Answer, home: str = "", preview: str = "") -> str:
    """Return the page as HTML; `home` and `preview` are addresses of the site's first page and of its picture."""
    from markupsafe import Markup

    answer = in_units(answer)
    looks: dict[str, str] = {}
    folded = len(answer.sections) > 2
    first = first_charts(answer.results)[: int(folded)]
    table = answer.table(None)
    with style("page"):
        lead = inline([dated(chart, answer) for chart in first], "lead", looks)
        sections, drawn_above = [], list(first)
        for number, section in enumerate(answer.sections):
            charts = [chart for chart in charts_of(section) if chart not in drawn_above]
            charts = charts[: max(MOST_CHARTS - len(drawn_above), 0)]
            sections.append(_section(answer, number, section, looks, charts))
            drawn_above += charts
    rows, whole = _linked_rows(table)
    results, title, basis = answer.comparisons, "Nothing to compare", answer.headline
    if results and answer.headline.endswith(ending := f" ({results[0].basis})."):  # it is the headline
        title, basis, results = answer.headline.removesuffix(ending), results[0].basis, results[1:]
    suites = {section.suite: number for number, section in reversed([*enumerate(answer.sections, start=1)])}
    return rendered(
        "page.html",
        rules_of(looks),
        description=" ".join(measured_on(table, title)),
        measured_on=measured_on(table, title),
        read=" ".join(read_of(answer)),
        sentences=[result.sentence for result in results],
        first=FIRST,
        suites=sorted(suites.items(), key=lambda suite: suite[1]),
        link=Markup(html_link(rows)),
        title=title, basis=basis, preview=preview, answer=answer, lead=lead, sections=sections, folded=folded,
        whole=whole, home=home,
    )  # fmt: skip


def measured_on(table: bytes, title: str = "") -> list[str]:
    """Return cards (those in `title` first), software and dates of the rows of a CSV, a sentence each."""
    rows = list(csv.DictReader(io.StringIO(table.decode())))
    cards = Counter(short(row["card"]) for row in rows if row.get("card"))
    names = sorted((card for card, _ in cards.most_common()), key=lambda card: card not in title)
    facts = [listed(names, MOST_NAMED, "more cards")] if cards else []
    for column in ("driver", "torch", "started"):
        known = [row[column] for row in rows if row.get(column)]
        part = f" ({len(known)} of {len(rows)} rows)" if len(known) < len(rows) else ""
        versions = listed(dict.fromkeys(known), MOST_NAMED, "more versions") if known else ""
        text = days_of(rows) if column == "started" else f"{column} {versions}"
        facts += [f"{text}{part}"] if known else []
    return [f"{fact}." for fact in facts]


def _linked_rows(table: bytes) -> tuple[bytes, bool]:
    """Return the rows for the page, and whether they are whole; above MOST_PACKED they lack laps and checksums."""
    if len(gzip.compress(table, 6)) <= MOST_PACKED:
        return table, True
    import pandas as pd

    rows = pd.read_csv(io.BytesIO(table), dtype=str, keep_default_na=False).drop(columns=["laps", DIGEST])
    return rows.to_csv(index=False, lineterminator="\n").encode(), False


def _section(
    answer: Answer, number: int, section: Section, looks: dict[str, str], charts: Sequence[Bars]
) -> dict[str, Any]:
    """Return a section with its tables and these charts, as the template needs them.

    Parameters are beside the title. The evidence is left out where every case has a single trial. A page with many
    sections folds the sections of one `kind` together.
    """
    settings = SETTING.findall(section.title)
    evidence = [line for table in section.tables if table.name == "evidence" for line in table.lines]
    has_several = any(isinstance(value, tuple) and len(value) > 1 for line in evidence for value in line)
    return {
        "section": section,
        "number": number + 1,
        "kind": "Bottlenecks" if section.study == "roofline" else "" if section.results else "Nothing to compare",
        "title": shortened(SETTING.sub("", section.title), 120),
        "settings": settings,
        "charts": inline([dated(chart, answer) for chart in charts], f"c{number}", looks),
        "tables": [grid_of(table) for table in section.tables if table.name != "evidence" or has_several],
    }


def inline(charts: Sequence[Bars], prefix: str, looks: dict[str, str]) -> "list[tuple[Bars, Markup]]":
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
            short = DECIMAL.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value.strip())
            element.set(name, BAR.sub(r"M\1 \2H\3V\4H\1z", BETWEEN_COMMANDS.sub(r"\1", short)))
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
    """Return the CSS rule of each class in `looks`: a style of matplotlib with the page's font and colours."""
    rules = []
    for look, class_name in looks.items():
        rule = re.sub(r"font: ([^;]*?px)[^;]*", r"font: \1 system-ui, sans-serif", look)
        rule = re.sub(r"font-family:[^;]*;?", "", rule)
        for colour, variable in VARIABLES.items():
            rule = rule.replace(colour, f"var({variable})")
        rules.append(f".{class_name} {{{rule}}}")
    return rules
