"""gpubench: how fast does a card train, in FP32 and in mixed precision, and which of two cards is worth its price?

As a library: `load` reads rows, `compare` compares them. A suite imports its classes from here (`Suite`, `Param`,
`Trial`, `Clock`) and training helpers from `gpubench.training`. `import gpubench` loads neither torch nor pandas.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench.errors import UserError as UserError

if TYPE_CHECKING:
    from gpubench.rows.read import Loaded
    from gpubench.studies.section import Answer
    from gpubench.suite.suite import MEMORY_FORMAT as MEMORY_FORMAT
    from gpubench.suite.suite import Blueprint as Blueprint
    from gpubench.suite.suite import Param as Param
    from gpubench.suite.suite import ParamValue as ParamValue
    from gpubench.suite.suite import Suite as Suite
    from gpubench.suite.suite import imported as imported
    from gpubench.suite.trial import Case as Case
    from gpubench.suite.trial import Trial as Trial
    from gpubench.training.clock.clock import Clock as Clock

__version__ = "0.3.0"

_HOME_OF = {
    "MEMORY_FORMAT": "suite.suite", "Blueprint": "suite.suite", "Case": "suite.trial",
    "Clock": "training.clock.clock", "Param": "suite.suite", "ParamValue": "suite.suite",
    "Suite": "suite.suite", "Trial": "suite.trial", "imported": "suite.suite",
}  # fmt: skip

__all__ = ["UserError", "__version__", "compare", "load", *_HOME_OF]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"gpubench has no {name!r}")
    return getattr(import_module(f"gpubench.{_HOME_OF[name]}"), name)


def load(paths: "str | Path | Iterable[str | Path]") -> "Loaded":
    """Return the rows of CSV files, of folders with such files, or of charts and reports (these contain their rows).

    `len(rows)` is their number, `rows["seconds"]` a column, `rows[rows["precision"] == "fp32"]` some of them.
    Rows that cannot be used are left out and named in `problems`. Raises UserError if no row is left.
    """
    from gpubench.analysis.compare import load_rows

    several = [paths] if isinstance(paths, str | Path) else paths
    try:
        files = [Path(path) for path in several]
    except TypeError:
        raise UserError(f"load() needs paths of CSV files, not a {type(paths).__name__}") from None
    return load_rows(files, keep=True)


def compare(
    rows: "Loaded | str | Path | Iterable[str | Path]",
    *,
    by: "str | Iterable[str] | None" = None,
    baseline: str | None = None,
    metric: str = "seconds",
    prices: "str | Path | Mapping[str, float] | None" = None,
    where: "str | Iterable[str]" = (),
    only: str = "",
) -> "Answer":
    """Return what `gpubench compare` answers about rows or files; the arguments are the options of that command.

    `by` is one or several columns or parameters, `prices` a TOML file or dollars per hour by card.
    `print(answer)` prints the headline and the numbers of results and rows. `answer.results` and `answer.sections` have
    everything, `answer.chart()` is a figure. Raises UserError if an argument is wrong, such as an unknown column.
    """
    from gpubench.analysis.compare import Question, compare_rows
    from gpubench.rows.read import Loaded
    from gpubench.show.charts import named_figure
    from gpubench.studies import answer as answers

    if hasattr(rows, "columns"):
        raise UserError("pass paths or the result of load(), not a DataFrame; to filter: rows[rows[column] == value]")
    loaded = rows if isinstance(rows, Loaded) else load(rows)
    wheres = (where,) if isinstance(where, str) else tuple(where)
    columns = by if isinstance(by, str) else ",".join(map(str, by or ())) or None
    costs = Path(prices) if isinstance(prices, str) else prices
    question = Question(columns, baseline, metric, costs, wheres)
    try:
        answer = answers.answer_to(compare_rows(loaded, question), loaded)
        answer = answers.only(answer, only) if only else answer
    except UserError as error:  # its text names the options of the command
        arguments = re.sub(r"^--(only|metric|by|where|baseline)\b", r"\1", str(error))
        arguments = re.sub("^--price", "prices", arguments)
        raise UserError(arguments) from None
    return replace(answer, chart=partial(named_figure, answer))
