"""Answers of rows that a test writes, and their tables as a reader sees them."""

from pathlib import Path

from gpubench.analysis.compare import Question
from gpubench.rows import write as records
from gpubench.show.numbers import cell_text, interval_text
from gpubench.studies import answer as answers
from gpubench.studies.section import Answer, Section, Table


def answered(folder: Path, rows, **question) -> Answer:
    """What is said of these rows, written to a file of their own."""
    path = folder / "rows.csv"
    path.unlink(missing_ok=True)
    records.append(path, rows)
    return answers.answer([path], Question(**question), keep=True)


def section(answer: Answer, study: str) -> Section:
    """The one section of a study."""
    (section,) = [section for section in answer.sections if section.study == study]
    return section


def table(section: Section, name: str) -> list[dict[str, str]]:
    """The lines of the table whose name begins so, as texts by column; intervals as `95% of ...`."""
    (wanted,) = [table for table in section.tables if table.name.startswith(name)]
    return texts(wanted)


def texts(wanted: Table) -> list[dict[str, str]]:
    """The lines of a table, as texts by column."""
    return [
        {column.name: cell_text(value, column) for value, column in zip(line, wanted.columns, strict=True)}
        | {
            f"95% of {column.name}": ends
            for value, column in zip(line, wanted.columns, strict=True)
            if (ends := interval_text(value, column))
        }
        for line in wanted.lines
    ]
