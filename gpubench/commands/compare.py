"""`gpubench compare`, `report` and `site`: what was found in some files, as a screen, charts, a page or many."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path

from gpubench.analysis.compare import Question, compare_rows, load_rows
from gpubench.analysis.metrics import metric_named
from gpubench.errors import UserError
from gpubench.printed import say
from gpubench.show.terminal import everything, screen
from gpubench.studies import answer as answers
from gpubench.studies.section import Answer

NOTHING_COMPARABLE = 3


@dataclass(frozen=True)
class Shape:
    """How the answer is given."""

    table: str = "terminal"
    every: bool = False
    """Every section, not only what was found."""
    only: str = ""
    """A suite, a kind of question, or a part of a card's name: this alone, with its tables."""
    charts: Path | None = None
    every_chart: bool = False
    chart_kinds: tuple[str, ...] = ("png", "svg")
    theme: str = "light"
    unit: str = ""
    """Of the charts' axis of time; empty: the one that reads best."""
    alpha_beta: tuple[float, float] | None = None
    """Seconds of a message and of a byte, for the model of scaling (see `scaling.sections`)."""
    scale_to: int | None = None
    """Processes up to which that model is drawn."""
    fail_on_slower: float | None = None
    """A share, 0.05 for 5%."""


def compare_files(paths: Sequence[Path], question: Question, shape: Shape) -> int:
    """Print what the rows in `paths` say, draw charts where asked; returns the exit code.

    Raises UserError where no row can be read, or the question names nothing that is there.
    """
    if shape.fail_on_slower is not None and question.baseline is None:
        raise UserError("--fail-on-slower needs --baseline (and --by): slower than what?")
    if shape.fail_on_slower is not None and shape.only:
        raise UserError("--fail-on-slower judges every case: choose rows with --where, not with --only")
    if shape.fail_on_slower is not None and metric_named(question.metric).by_loss:
        raise UserError("--fail-on-slower is no gate for accuracy: half a point of it is what its verdicts judge")
    loaded = load_rows(paths, keep=shape.charts is not None)
    result = compare_rows(loaded, question)
    files = answers.count_files(paths)
    whole = answers.answer_to(result, loaded, files=files, alpha_beta=shape.alpha_beta, scale_to=shape.scale_to)
    answer = answers.only(whole, shape.only) if shape.only else whole
    say(*answer.problems, err=True)
    _print(answer, shape)
    if shape.charts is not None:
        from gpubench.show.charts import draw

        kinds, theme, unit = shape.chart_kinds, shape.theme, shape.unit
        drawn = draw(answer, shape.charts, every=shape.every_chart, kinds=kinds, theme=theme, unit=unit)
        say(*drawn, err=shape.table != "terminal")
    if shape.fail_on_slower is not None:
        from gpubench.commands.gate import gate

        code, lines = gate(result, shape.fail_on_slower)
        say(*lines, err=True)
        return code
    by_study = shape.only.lower() in answers.STUDIES
    return 0 if any(by_study or not each.says_why for each in answer.findings) else NOTHING_COMPARABLE


def _print(answer: Answer, shape: Shape) -> None:
    """The findings on a screen, and all that stands behind them where it was asked for, or where there are none."""
    if shape.table != "terminal":
        from gpubench.show.text import FORMATS, rendered

        if shape.table not in FORMATS:
            raise UserError(f"--format {shape.table}: there is terminal, {', '.join(FORMATS)}")
        say(*rendered(answer, shape.table).removesuffix("\n").split("\n"))
        return
    in_full = shape.every or bool(shape.only) or shape.alpha_beta is not None or not answer.findings
    say(*screen(answer, in_full=in_full))
    if in_full:
        say(*everything(answer, every_table=shape.every))


def write_report(paths: Sequence[Path], question: Question, out: Path | None) -> str:
    """The same as one HTML page; returns the line to print. Without `out` no file is overwritten. Raises UserError."""
    from gpubench.show.page import write

    return write(answers.answer(paths, question, keep=True), out or _unused(Path("report.html")))


def _unused(path: Path) -> Path:
    """The path, or where something lies there `report-2.html`, `report-3.html` ..."""
    others = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return path if not path.exists() else next(other for other in others if not other.exists())


def write_site(paths: Sequence[Path], out: Path) -> str:
    """Write the site into the folder and print what could not be read; returns the line to print. Raises UserError.

    A file LICENSE in one of the folders among `paths` is that of the rows.
    """
    from gpubench.show.site.pages import pages
    from gpubench.studies.ranked_cases import contents_of

    if missing := next((path for path in paths if not path.exists()), None):
        raise UserError(f"{missing}: no such file or folder")
    licence = next((found for path in paths if path.is_dir() and (found := path / "LICENSE").is_file()), None)
    contents = contents_of(paths, licensed=licence is not None)
    say(*contents.answer.problems, err=True)
    speeds = files("gpubench.studies.cards") / "public_speeds.csv"
    data = {"rows.csv": contents.answer.table(None), "published.csv": speeds.read_bytes()}
    if licence is not None:
        data["LICENSE.txt"] = licence.read_bytes()
    written = {name: text.encode() for name, text in pages(contents)}
    try:
        for name, content in (written | data).items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content)
    except OSError as error:
        raise UserError(f"--out {out}: cannot write there ({error.strerror})") from None
    largest = max(written, key=lambda name: len(written[name]))
    size = f"{len(written)} pages, the largest ({largest}) {len(written[largest]) / 1e3:.0f} kB"
    return f"{out / 'index.html'}: {size}; they open from disk and from any web server"
