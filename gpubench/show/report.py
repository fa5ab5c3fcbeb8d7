"""A comparison as one HTML file: opens offline, asks nothing of any network, and carries its rows.

Every text of a row is escaped, and the page's own policy lets no script run but the two written here.
"""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import gpubench
from gpubench.analysis.cells import Cell
from gpubench.analysis.compare import Comparison, Group, Question, Result, answer_of, asked
from gpubench.analysis.metrics import Metric
from gpubench.analysis.specimens import unit_of
from gpubench.comparing.carrying import Rows
from gpubench.comparing.table import (
    batch_text,
    figure_text,
    interval_text,
    marks_of,
    marks_of_sides,
    mean_text,
    places,
    shown,
)
from gpubench.errors import UserError
from gpubench.rows.embed import html_link
from gpubench.show.numbers import rate_text
from gpubench.show.style import shade
from gpubench.show.terminal import told
from gpubench.studies.answer import findings_of
from gpubench.studies.finding import Finding
from gpubench.studies.scaling import views_of

LOG_FROM = 20.0
BAR_PIXELS, FRAME_PIXELS = 26, 70
MOST_BARS = 120
"""More bars than these are left to the table."""
FIRST = 8
"""Findings that are seen at once."""
NAMED_VALUES = 24


def write_report(paths: Sequence[Path], question: Question, out: Path) -> str:
    """Compare, write the page, return the line to print. Raises UserError."""
    rows = asked(paths, question)
    result = answer_of(rows, question)
    page = page_of(result, Rows(paths, question.where).all(), findings_of(result, views_of(rows.frame)))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out {out}: cannot write there ({error.strerror})") from None
    return f"{out}: {len(page) / 1e3:.0f} kB, opens offline"


def page_of(result: Result, table: bytes, findings: Sequence[Finding] = ()) -> str:
    """The whole page; `table` is the CSV of the rows it carries."""
    figures: list[dict[str, Any]] = []
    sections = [_section(number, group, result, figures) for number, group in enumerate(result.groups)]
    assets = files("gpubench.show") / "assets"
    style = (assets / "report.css").read_text(encoding="utf-8")
    library = (assets / "chart.umd.min.js").read_text(encoding="utf-8")
    script = (assets / "report.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src {_hash(style)};"
        " base-uri 'none'; form-action 'none'"
    )
    left = "".join(f"<li>{_text(line)}</li>" for line in [*result.problems, *result.left_out])
    left = f"<h2>Left out</h2><ul>{left}</ul>" if left else ""
    # A line of JSON inside a script element ends where `</script` stands: no `<` may.
    data = json.dumps(figures).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="gpubench {gpubench.__version__}">
<title>gpubench: {_text(_heading(result))}</title>
<style>{style}</style></head>
<body>
<header><h1>{_text(_heading(result))}</h1>
<p class="soft">{_text(_summary(result))}</p>
{_findings(findings)}<p class="screen"><a {html_link(table)} class="button">Download the rows (CSV)</a></p>
<p class="screen"><label for="filter">Show only rows with these words</label><br>
<input type="search" id="filter" autocomplete="off"></p>
<p id="status" role="status" class="soft"></p></header>
<main>{"".join(sections)}{left}</main>
<footer class="soft"><p>Made by gpubench {gpubench.__version__}. <code>gpubench compare</code> reads this page's rows.
{_text(_rule(result.metric))}
Charts by Chart.js (MIT licence, in its source below).</p></footer>
<script type="application/json" id="figures">{data}</script>
<script>{library}</script>
<script>{script}</script>
</body></html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(value: object) -> str:
    return html.escape(" ".join(str(value).split()), quote=True)


def _rule(metric: Metric) -> str:
    """What a verdict takes."""
    holm = "p < 0.05 after Holm's correction over all ratios here"
    if metric.by_loss:
        return f"A verdict on accuracy needs {holm}: that a loss is under half a point, or over it."
    return (
        f"A difference needs {holm}, and the whole interval of the ratio (95%; 99% between specimens) beyond 2%;"
        " `same` needs its whole 90% interval inside 2%."
    )


def _findings(findings: Sequence[Finding]) -> str:
    """The first of them as sentences, the others folded."""
    items = [f"<li>{_text(told(each))}</li>" for each in findings]
    more = f"<details><summary>{len(items) - FIRST} more</summary><ul>{''.join(items[FIRST:])}</ul></details>"
    return f"<ul>{''.join(items[:FIRST])}</ul>{more if len(items) > FIRST else ''}" if items else ""


def _heading(result: Result) -> str:
    """The suites, and the cards or their number."""
    cells = [cell for group in result.groups for cell in group.cases]
    suites, labels = dict.fromkeys(str(cell.suite) for cell in cells), dict.fromkeys(cell.label for cell in cells)
    cards = " against ".join(labels) if len(labels) < 4 else f"{len(labels)} cards"
    return f"{', '.join(suites)}: {cards}" if cells else "nothing to compare"


def _summary(result: Result) -> str:
    cells = [cell for group in result.groups for cell in group.cells]
    trials = sum(cell.trials for cell in cells)
    kinds = " and ".join(sorted({str(cell.measured) for cell in cells}))
    return f"{result.metric.title}; {len(cells)} cases, {trials} trials, {kinds or 'nothing'}; intervals are 95%"


def _section(number: int, group: Group, result: Result, figures: list[dict[str, Any]]) -> str:
    parts = [f'<section aria-labelledby="group-{number}"><h2 id="group-{number}">{_text(group.title)}</h2>']
    if 0 < len(group.cells) <= MOST_BARS:
        figures.append(_cells_figure(f"cells-{number}", group, result))
        parts.append(_canvas(figures[-1]))
    parts.append(_table("Cases", *_cases(group, result)))
    if group.comparisons:
        if len(group.comparisons) <= MOST_BARS:
            figures.append(_ratios_figure(f"ratios-{number}", group, result))
            parts.append(_canvas(figures[-1]))
        parts.append(_table("Ratios", *_ratios(group, result)))
    for mean in group.means:
        parts.append(f"<p>{_text('G' + mean_text(mean, result.metric)[1:])}</p>")
    return "".join(parts) + "</section>"


def _canvas(figure: dict[str, Any]) -> str:
    height = FRAME_PIXELS + BAR_PIXELS * len(figure["bars"])
    # No style attribute: the policy forbids them; the canvas' own height is what its box takes.
    label = f"Bar chart: {figure['axis']}. The table below has the same figures."
    return (
        f'<div class="chart screen"><canvas id="{figure["id"]}" height="{height}" role="img"'
        f' aria-label="{_text(label)}"></canvas></div>'
    )


def _cells_figure(name: str, group: Group, result: Result) -> dict[str, Any]:
    cards = list(dict.fromkeys(cell.label for cell in group.cells))
    kinds = list(dict.fromkeys(cell.precision for cell in group.cells))
    bars = []
    for cell in group.cells:
        interval = cell.interval
        value = result.metric.shown(cell.median)
        text = f"{figure_text(result.metric, cell.median, interval)} {result.metric.title}, {cell.trials} trial(s)"
        bars.append(
            {
                "model": str(cell.model),
                "label": f"{cell.label} {cell.precision}",
                "value": value,
                "interval": sorted(map(result.metric.shown, interval)) if interval else None,
                "text": text,
                "colour": shade(cards.index(cell.label), kinds.index(cell.precision)),
            }
        )
    return _figure(name, f"{result.metric.title}, with 95% intervals", bars, reference=False)


def _ratios_figure(name: str, group: Group, result: Result) -> dict[str, Any]:
    bars = []
    for c in group.comparisons:
        ratio, what, verdict = shown(c, result.metric)
        interval = [ratio.low, ratio.high] if ratio.low and ratio.high else None
        text = f"{ratio.value:.{places(ratio)}f}" + (f" ({interval[0]:.3g} to {interval[1]:.3g})" if interval else "")
        bars.append(
            {
                "model": str(c.subject.model),
                "label": what,
                "value": ratio.value,
                "interval": interval,
                "text": f"{text} {verdict}",
                "colour": shade(0 if c.axis == "precision" else 1, 0),
            }
        )
    axis = f"{result.metric.gain} over the baseline, with 95% intervals and a line at 1"
    return _figure(name, axis, bars, reference=True)


def _figure(name: str, axis: str, bars: list[dict[str, Any]], *, reference: bool) -> dict[str, Any]:
    values = [bar["value"] for bar in bars]
    logarithmic = not reference and max(values) / min(values) > LOG_FROM
    return {"id": name, "axis": axis, "bars": bars, "reference": reference, "logarithmic": logarithmic}


Line = list[tuple[str, float | None]]
"""Cells of a table: HTML, and the value to sort numbers by."""


def _table(title: str, header: Sequence[tuple[str, bool]], lines: Iterable[Line]) -> str:
    heads = "".join(f'<th scope="col"{_class(number)}>{_text(name)}</th>' for name, number in header)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_class(number)}{_value(value) if number else ''}>{cell}</td>"
            for (cell, value), (_, number) in zip(line, header, strict=True)
        )
        + "</tr>"
        for line in lines
    )
    return (
        f'<h3>{title}</h3><div class="scroll" role="region" aria-label="{title}" tabindex="0">'
        f"<table data-sortable><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _class(number: bool) -> str:
    return ' class="number"' if number else ""


def _value(value: float | None) -> str:
    return f' data-value="{"" if value is None or value != value else repr(float(value))}"'


def _cases(group: Group, result: Result) -> tuple[list[tuple[str, bool]], list[Line]]:
    metric = result.metric
    header = [("model", False), ("card", False), ("precision", False), ("batch", True), (metric.title, True)]
    header += [("95%", True), ("samples/s", True), ("trials", True), ("what else", False)]
    lines = []
    for cell in group.cases:
        interval = cell.interval
        rate = float(cell.samples_per_second)
        line: Line = [(_text(text), None) for text in (cell.model, cell.label, cell.precision)]
        line.append((_text(batch_text(cell)), float(cell.batch_size)))
        if cell.seconds:
            line.append((figure_text(metric, cell.median, interval), metric.shown(cell.median)))
        else:
            line.append((_text(cell.status), None))
        line.append((interval_text(cell, metric), metric.shown(interval[0]) if interval else None))
        line.append((rate_text(rate), rate))
        line.append((str(cell.trials or ""), float(cell.trials)))
        line.append((_evidence(cell, metric), None))
        lines.append(line)
    return header, lines


def _evidence(cell: Cell, metric: Metric) -> str:
    """The values that its median is of, and where they come from."""
    facts = [str(cell.measured), *marks_of(cell), cell.lost_note, str(cell.reason)]
    sources = ("torch", "cuda", "driver", "cpu", "session", "source")
    facts += [f"{name} {cell.row[name]}" for name in sources if str(cell.row[name])]
    values = ", ".join(f"{metric.shown(value):.6g}" for value in cell.seconds[:NAMED_VALUES])
    values += f" and {len(cell.seconds) - NAMED_VALUES} more" if len(cell.seconds) > NAMED_VALUES else ""
    whose = "trials" if not cell.parts else "sessions" if unit_of(cell) == "session" else "specimens"
    items = "".join(f"<li>{_text(fact)}</li>" for fact in [*facts, f"{whose}: {values}" if values else ""] if fact)
    return f'<details><summary>evidence</summary><ul class="evidence">{items}</ul></details>'


def _ratios(group: Group, result: Result) -> tuple[list[tuple[str, bool]], list[Line]]:
    header = [("model", False), ("what", False), (result.metric.gain, True), ("95%", True), ("verdict", False)]
    header += [("p", True), ("trials", True), ("why", False)]
    lines = []
    for c in group.comparisons:
        ratio, what, verdict = shown(c, result.metric)
        digits = places(ratio)
        both = f"{ratio.low:.{digits}f} to {ratio.high:.{digits}f}" if ratio.low and ratio.high else ""
        kind = c.verdict if c.verdict in {"faster", "slower", "same"} else ""
        lines.append(
            [
                (_text(c.subject.model), None),
                (_text(what), None),
                (f"{ratio.value:.{digits}f}", ratio.value),
                (both, ratio.low),
                (f'<span class="{kind}">{_text(verdict)}</span>', None),
                ("" if ratio.p is None else f"{ratio.p:.3g}", ratio.p),
                (f"{c.subject.trials}, {c.other.trials}", float(min(c.subject.trials, c.other.trials))),
                (_why(c), None),
            ]
        )
    return header, lines


def _why(c: Comparison) -> str:
    notes = [*c.notes, *marks_of_sides(c)]
    items = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return (
        f'<details><summary>{len(notes)} note(s)</summary><ul class="evidence">{items}</ul></details>' if items else ""
    )
