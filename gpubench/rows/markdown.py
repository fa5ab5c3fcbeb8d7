"""The columns as a Markdown table, for results/README.md and `gpubench columns`."""

from dataclasses import fields

from gpubench.rows.row import ABOUT, Row


def columns_markdown() -> str:
    """The table of results/README.md."""
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for f in fields(Row):
        kind = str(f.type).replace(" | None", "").replace("<class '", "").replace("'>", "")
        about = ABOUT[f.name]
        lines.append(f"| `{f.name}` | {f'{kind} {about.allowed.words}'.strip()} | {about.unit} | {about.doc} |")
    return "\n".join(lines) + "\n"
