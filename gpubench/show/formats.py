"""All results and tables as Markdown, CSV or JSON. The commands `compare` and `cards` call it."""

import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from gpubench.printed import shown
from gpubench.rows.spreadsheet import csv_text
from gpubench.show.numbers import filled_columns, interval_text, read_of
from gpubench.show.terminal import cells_of, legend
from gpubench.studies.section import Answer, Section, Table, flat

JSON_VERSION = 3
"""Version of the JSON: raised when a field is removed or changes its meaning. docs/comparing.md describes it."""
HIDDEN = {"charts", "cases", "note", "detail", "places"}
"""Fields that are not in the JSON: pictures, ids of cases, and how a terminal shows a column."""
RESULT_FIELDS = {
    "section": "suite", "study": "kind", "subject": "subject", "baseline": "baseline", "in": "precision", "on": "place",
    "sentence": "sentence", "verdict": "verdict", "figure": "figure", "value": "value",
}  # fmt: skip
"""The field of a result in each column of the CSV."""
JSON_FACTS = ("metric", "unit", "gain", "rule", "files", "rows", "about", "failed", "stopped", "missed")


def rendered(answer: Answer, name: str) -> str:
    """Return all results in the format `name`, a key of FORMATS."""
    return FORMATS[name](answer)


def as_json(answer: Answer) -> str:
    """Return all results and sections, with tables, names of charts, notes and what was left out, as JSON."""
    whole = {
        "version": JSON_VERSION,
        "headline": answer.headline,
        **{name: getattr(answer, name) for name in JSON_FACTS},
        "results": [_plain(result) | {"sentence": result.sentence, "where": result.where} for result in answer.results],
        "sections": [_section(section) for section in answer.sections],
        "left_out": answer.left_out,
        "problems": answer.problems,
    }
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def _section(section: Section) -> dict[str, Any]:
    """Return a section for the JSON: results as sentences, charts as their names, kinds and titles."""
    sentences = [result.sentence for result in section.results]
    charts = [{"name": chart.name, "kind": "bars", "title": chart.title} for chart in section.charts]
    return {**_plain(replace(section, results=())), "results": sentences, "charts": charts}


def _plain(value: Any) -> Any:
    """Return a value as JSON can contain it: a data class becomes an object, NaN and infinity become null."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.name not in HIDDEN}
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() and abs(value) < 1e15 else value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return dict(value) if hasattr(value, "items") else value


def as_csv(answer: Answer) -> str:
    """Return results and tables as one CSV table for a spreadsheet; its first columns name section and table."""
    tables = [(section, table) for section in answer.sections for table in section.tables]
    names = ["section", "study", "table", *list(RESULT_FIELDS)[2:], "low", "high"]
    names = list(dict.fromkeys([*names, *(name for _, table in tables for name in flat(table)[0])]))
    lines: list[dict[str, Any]] = []
    for result in answer.results:
        low, high = result.interval or (None, None)
        line = {name: getattr(result, field) for name, field in RESULT_FIELDS.items()}
        lines.append({"table": "results", **line, "low": low, "high": high})
    for section, table in tables:
        about = {"section": section.title, "study": section.study, "table": table.name}
        columns, values = flat(table)
        lines += [about | dict(zip(columns, line, strict=True)) for line in values]
    cells = ([shown(cell) if isinstance(cell, str) else cell for cell in map(line.get, names)] for line in lines)
    return csv_text([shown(name) for name in names], cells)


def as_markdown(answer: Answer) -> str:
    """Return the results, then each section with its tables, as Markdown for an issue or a README."""
    parts = [f"{_escaped(answer.headline)}\n"]
    if answer.results:
        value = "value" if any(result.figure for result in answer.results) else answer.gain
        header = [value, "interval", "verdict", "what", "details"]
        parts.append(_grid(header, [list(cells_of(result)) for result in answer.results], set(header[:2])))
        parts += [f"{_escaped(line)}\n" for line in legend(answer.results)]
    if read := read_of(answer):
        parts.append(f"{_escaped(' '.join(read))}\n")
    for section in answer.sections:
        parts.append(f"**{_escaped(section.title)}**\n")
        parts += [f"- {_escaped(result.sentence)}" for result in section.results]
        parts += ["", *(_markdown_table(table) for table in section.tables)]
        parts += [f"{_escaped(note)}\n" for note in section.notes]
        parts += [f"Recipe: {_escaped(section.recipe)}\n"] if section.recipe else []
        parts += [f"Not compared: {_escaped(line)}\n" for line in section.left_out]
    parts += [f"Not compared: {_escaped(line)}\n" for line in answer.left_out]
    return "\n".join(parts)


def _markdown_table(table: Table) -> str:
    """Return a table as Markdown. Estimates have their interval in brackets; empty columns are left out."""
    heads, numbers, columns = [], set(), []
    for column, values, texts in filled_columns(table):
        heads.append(column.name if column.level == 95 else f"{column.name} ({column.level}%)")
        numbers |= {heads[-1]} if column.unit else set()
        ends = [interval_text(value, column) for value in values]
        columns.append([f"{text} ({end})" if end else text for text, end in zip(texts, ends, strict=True)])
    lines = [list(line) for line in zip(*columns, strict=True)]
    return f"{_escaped(table.name)}:\n\n{_grid(heads, lines, numbers)}" if lines else ""


def _grid(header: list[str], lines: list[list[str]], right: set[str]) -> str:
    """Return a table as Markdown; the columns named in `right` are right-aligned."""
    rule = ["---:" if name in right else "---" for name in header]
    rows = [[_escaped(name) for name in header], rule, *([_escaped(cell) for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _escaped(text: str) -> str:
    """Return a text without Markdown's links, code and tables, without HTML, and without control characters."""
    for plain, safe in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "\\`"), ("[", "\\["), ("\n", " ")):
        text = text.replace(plain, safe)
    return shown(text)


FORMATS: dict[str, Callable[[Answer], str]] = {"markdown": as_markdown, "csv": as_csv, "json": as_json}
