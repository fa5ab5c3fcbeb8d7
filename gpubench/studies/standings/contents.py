"""All that a site shows: what some rows say, every case in its place, and what others published."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubench.analysis.compare import Question, compare_rows, load_rows
from gpubench.errors import UserError
from gpubench.rows.read import load
from gpubench.studies.answer import answer_to, count_files
from gpubench.studies.cards.figures import Published, published
from gpubench.studies.cards.model import fitted_model
from gpubench.studies.cards.ranking import Ranking, rank
from gpubench.studies.section import Answer
from gpubench.studies.standings.standings import Row, Standing, rows_of, standings

NO_ROWS = "There is no row of gpubench here yet; what others published is ranked below."


@dataclass(frozen=True)
class Contents:
    """Of rows and of published figures, which share nothing."""

    answer: Answer
    standings: Sequence[Standing]
    rows: Sequence[Row]
    """All that were read, whether or not a case is made of them."""
    ranking: Ranking
    published: Published
    licensed: bool = False
    """Whether a licence of the rows lies beside them."""


def contents_of(paths: Sequence[Path], *, licensed: bool = False) -> Contents:
    """What the files hold; files without a row are problems of the answer."""
    found = published()
    ranking = rank(fitted_model())
    files = count_files(paths)
    try:
        loaded = load_rows(paths, keep=True)
    except UserError:  # no row
        empty = load(paths, keep=True)
        nothing = Answer(NO_ROWS, (), (), files=files, problems=tuple(empty.problems), table=lambda _: empty.table([]))
        return Contents(nothing, (), (), ranking, found, licensed)
    result = compare_rows(loaded, Question())
    rows = rows_of(result, loaded.places)
    answer = answer_to(result, loaded, files=files)
    return Contents(answer, standings(result, rows), tuple(rows.values()), ranking, found, licensed)
