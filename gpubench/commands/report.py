"""`gpubench report`: the answer of some files as one HTML page."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from gpubench.analysis.compare import Question
from gpubench.show.page import write
from gpubench.studies.answer import answer


def write_report(paths: Sequence[Path], question: Question, out: Path | None) -> str:
    """Compare, write the page, return the line to print; without `out` no file is overwritten. Raises UserError."""
    return write(answer(paths, question, keep=True), out or _unused(Path("report.html")))


def _unused(path: Path) -> Path:
    """The path, or where something lies there `report-2.html`, `report-3.html` ..."""
    others = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return path if not path.exists() else next(other for other in others if not other.exists())
