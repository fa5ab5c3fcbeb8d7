"""`gpubench site`: rows and published figures as a folder of pages that open from disk and from any web server."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from gpubench.analysis.compare import Question, compare_rows, load_rows
from gpubench.errors import UserError
from gpubench.printed import say
from gpubench.rows.read import load
from gpubench.show.site.pages import Contents, pages
from gpubench.studies import answer as answers
from gpubench.studies.cards.figures import published
from gpubench.studies.cards.model import fitted_model
from gpubench.studies.cards.ranking import rank
from gpubench.studies.section import Answer
from gpubench.studies.standings.standings import rows_of, standings

NO_ROWS = "There is no row of gpubench here yet; what others published is ranked below."


def write_site(paths: Sequence[Path], out: Path) -> str:
    """Write the site into the folder and print what could not be read; returns the line to print. Raises UserError.

    A file LICENSE in one of the folders among `paths` is that of the rows.
    """
    if missing := next((path for path in paths if not path.exists()), None):
        raise UserError(f"{missing}: no such file or folder")
    licence = next((found for path in paths if path.is_dir() and (found := path / "LICENSE").is_file()), None)
    contents = _contents(paths, licensed=licence is not None)
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


def _contents(paths: Sequence[Path], *, licensed: bool) -> Contents:
    """What the rows say, and what others published."""
    found = published()
    ranking = rank(fitted_model())
    number = answers.count_files(paths)
    try:
        loaded = load_rows(paths, keep=True)
    except UserError:  # no row
        empty = load(paths, keep=True)
        nothing = Answer(NO_ROWS, (), (), files=number, problems=tuple(empty.problems), table=lambda _: empty.table([]))
        return Contents(nothing, (), (), ranking, found, licensed=licensed)
    result = compare_rows(loaded, Question())
    rows = rows_of(result, loaded.places)
    answer = answers.answer_to(result, loaded, files=number)
    return Contents(answer, standings(result, rows), tuple(rows.values()), ranking, found, licensed=licensed)
