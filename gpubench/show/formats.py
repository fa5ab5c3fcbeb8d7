"""A comparison as Markdown, CSV, JSON, or the forms that readers of hyperfine and benchstat know."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from gpubench.analysis.cells import Cell, relative_to_best, text_of
from gpubench.analysis.compare import Comparison, Group, Result
from gpubench.comparing.table import (
    batch_text,
    figure_text,
    interval_text,
    marks_of_sides,
    notes_of,
    places,
    ratio_of,
    shown,
)
from gpubench.rows.spreadsheet import csv_text
from gpubench.show.numbers import seconds_text
from gpubench.show.terminal import cells_of, headline, told
from gpubench.studies.finding import Finding

JSON_VERSION = 1
"""Raised when a field of the JSON is taken away or changes its meaning; docs/sharing.md describes it."""
FACTS = ("suite", "suite_version", "model", "precision", "batch_size", "batch_policy", "params", "data", "mode")
MORE = ("measured", "card", "device_hash", "session", "processes", "torch", "cuda", "cudnn", "driver", "cpu", "source")


def rendered(result: Result, name: str, findings: Sequence[Finding] = ()) -> str:
    """The whole result in the format `name`, one of FORMATS; Markdown and JSON begin with the findings."""
    return FORMATS[name](result, findings)


def _cell_facts(cell: Cell, result: Result) -> dict[str, Any]:
    shown_interval = sorted(map(result.metric.shown, cell.interval)) if cell.interval else [None, None]
    facts = {name: _value(cell.row[name]) for name in (*FACTS, *MORE)}
    return facts | {
        "label": cell.label,
        "status": "ok" if cell.seconds else str(cell.status),
        "reason": str(cell.reason),
        "trials": cell.trials,
        "median": result.metric.shown(cell.median) if cell.seconds else None,
        "low": shown_interval[0],
        "high": shown_interval[1],
        "values": [result.metric.shown(value) for value in cell.seconds],
    }


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if value.is_integer() else value
    return value if isinstance(value, int | None) else str(value)


def _comparison_facts(c: Comparison, result: Result) -> dict[str, Any]:
    return {
        "axis": c.axis, "subject": c.subject_name, "other": c.other_name, "model": str(c.subject.model),
        "precision": str(c.subject.precision), "what": ratio_of(c), "ratio": c.ratio.value, "low": c.ratio.low,
        "high": c.ratio.high, "p": c.ratio.p, "verdict": shown(c, result.metric)[2],
        "trials": [c.subject.trials, c.other.trials], "notes": list(c.notes),
    }  # fmt: skip


def _finding_facts(each: Finding) -> dict[str, Any]:
    facts = {field.name: getattr(each, field.name) for field in fields(each) if field.name not in {"cells", "parts"}}
    facts["where"] = each.where
    parts = [{name: _value(value) for name, value in vars(part).items() if name != "interval"} for part in each.parts]
    return facts | {"sentence": told(each), "parts": parts}


def as_json(result: Result, findings: Sequence[Finding]) -> str:
    """Everything: findings, cells with their values, ratios with their evidence, what was left out."""
    groups = [
        {
            "title": group.title,
            "cells": [_cell_facts(cell, result) for cell in group.cases],
            "comparisons": [_comparison_facts(c, result) for c in group.comparisons],
            "means": [
                {
                    "subject": m.subject_name,
                    "other": m.other_name,
                    "precision": m.precision,
                    "batch_policy": m.batch_policy,
                    "ratio": m.value,
                    "cases": m.common,
                    "of": m.all_cases,
                }
                for m in group.means
            ],
        }
        for group in result.groups
    ]
    whole = {
        "version": JSON_VERSION, "metric": result.metric.name, "unit": result.metric.title,
        "findings": [_finding_facts(each) for each in findings], "groups": groups,
        "left_out": result.left_out, "problems": result.problems,
    }  # fmt: skip
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def as_csv(result: Result, findings: Sequence[Finding]) -> str:
    """A line per case, for a spreadsheet."""
    cells = [_cell_facts(cell, result) for group in result.groups for cell in group.cases]
    names = [*FACTS, *MORE, "label", "status", "reason", "trials", "median", "low", "high"]
    return csv_text([*names, "metric"], ([*(cell[name] for name in names), result.metric.title] for cell in cells))


def _markdown_table(header: list[str], lines: list[list[str]], right: set[str]) -> str:
    rule = ["---:" if name in right else "---" for name in header]
    rows = [header, rule, *([_escaped(cell) for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _escaped(text: str) -> str:
    for plain, safe in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "\\`"), ("[", "\\[")):
        text = text.replace(plain, safe)
    return text


def as_markdown(result: Result, findings: Sequence[Finding]) -> str:
    """The findings, then two tables a group, for an issue or a README."""
    parts = []
    if findings:
        lines = [list(cells_of(each)) for each in findings]
        header = [result.metric.gain, "95%", "verdict", "what", "from"]
        parts += [f"{_escaped(headline(findings))}\n", _markdown_table(header, lines, {result.metric.gain, "95%"})]
    for group in result.groups:
        lines = [
            [
                *(str(c.model), c.label, str(c.precision), batch_text(c), _with_interval(c, result)),
                *(str(c.trials or ""), notes_of(c)),
            ]
            for c in group.cases
        ]
        title = result.metric.title
        header = ["model", "card", "precision", "batch", title, "trials", "notes"]
        parts += [f"**{_escaped(group.title)}**\n", _markdown_table(header, lines, {title, "trials"})]
        if group.comparisons:
            lines = []
            for c in group.comparisons:
                ratio, what, verdict = shown(c, result.metric)
                digits = places(ratio)
                range_text = f"{ratio.low:.{digits}f} to {ratio.high:.{digits}f}" if ratio.low and ratio.high else ""
                notes = "; ".join([*c.notes, *marks_of_sides(c)])
                lines.append([str(c.subject.model), what, f"{ratio.value:.{digits}f}", range_text, verdict, notes])
            header = ["model", "what", result.metric.gain, "95%", "verdict", "notes"]
            parts.append(_markdown_table(header, lines, {result.metric.gain, "95%"}))
    parts += [f"Left out: {_escaped(line)}\n" for line in result.left_out]
    return "\n".join(parts)


def _with_interval(cell: Cell, result: Result) -> str:
    if not cell.seconds:
        return str(cell.status)
    text = figure_text(result.metric, cell.median, cell.interval)
    if not cell.interval:
        return text
    return f"{text} ({interval_text(cell, result.metric)})"


def as_hyperfine(result: Result, findings: Sequence[Finding]) -> str:
    """hyperfine's Markdown: median, least, most, and each case relative to the best of its task."""
    parts = []
    for group in result.groups:
        relative = relative_to_best(group.cells)
        lines = [
            [
                f"{cell.model} {cell.precision} on {cell.label}",
                *(seconds_text(v) for v in _three(cell, result)),
                f"{relative.get(id(cell), 1.0):.2f}",
            ]
            for cell in group.cells
        ]
        header = ["Case", f"Median [{result.metric.title}]", "Min", "Max", "Relative"]
        parts += [f"**{_escaped(group.title)}**\n", _markdown_table(header, lines, set(header[1:]))]
    return "\n".join(parts)


def _three(cell: Cell, result: Result) -> tuple[float, float, float]:
    low, high = sorted((result.metric.shown(min(cell.seconds)), result.metric.shown(max(cell.seconds))))
    return result.metric.shown(cell.median), low, high


def as_benchstat(result: Result, findings: Sequence[Finding]) -> str:
    """benchstat's shape: a line per case, both sides with half their interval in percent, the change and its p."""
    parts = []
    for group in result.groups:
        lines = [(["case", result.metric.title, "base", "vs base"])]
        for c in group.comparisons:
            name = f"{c.subject.model}/{c.subject.precision}/{c.subject.label}"
            sides = [result.metric.shown(cell.median) for cell in (c.subject, c.other)]
            change = "~" if c.verdict not in {"faster", "slower"} else f"{(sides[0] / sides[1] - 1) * 100:+.2f}%"
            p = "" if c.ratio.p is None else f" (p={c.ratio.p:.3f} n={c.subject.trials}+{c.other.trials})"
            lines.append([name, _plus_minus(c.subject, result), _plus_minus(c.other, result), change + p])
        widths = [max(len(line[at]) for line in lines) for at in range(4)]
        parts.append(_title(group))
        parts += [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        parts.append("")
    return "\n".join(parts)


def _title(group: Group) -> str:
    return text_of(group.title)


def _plus_minus(cell: Cell, result: Result) -> str:
    interval = cell.interval
    percent = f" ± {(interval[1] - interval[0]) / 2 / cell.median:.0%}" if interval else " ± ∞"
    return f"{result.metric.shown(cell.median):.4g}{percent}"


FORMATS: dict[str, Callable[[Result, Sequence[Finding]], str]] = {
    "markdown": as_markdown,
    "csv": as_csv,
    "json": as_json,
    "hyperfine": as_hyperfine,
    "benchstat": as_benchstat,
}
