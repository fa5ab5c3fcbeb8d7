"""gpubench: how fast does this card train, in FP32 and in mixed precision, and is it worth more than that one?

As a library: `load` reads rows, `compare` answers. A suite takes from here what it is made of (`Suite`, `Param`,
`Trial`, `Clock`), and from `gpubench.training` what it trains with. Importing this imports nothing heavy.
"""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpubench.errors import UserError as UserError
    from gpubench.rows.read import Loaded
    from gpubench.studies.section import Answer
    from gpubench.suite.suite import Param as Param
    from gpubench.suite.suite import ParamValue as ParamValue
    from gpubench.suite.suite import Suite as Suite
    from gpubench.suite.trial import Case as Case
    from gpubench.suite.trial import Trial as Trial
    from gpubench.training.clock.clock import Clock as Clock

__version__ = "0.2.0"

_HOME_OF = {
    "Case": "suite.trial",
    "Clock": "training.clock.clock",
    "Param": "suite.suite",
    "ParamValue": "suite.suite",
    "Suite": "suite.suite",
    "Trial": "suite.trial",
    "UserError": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"gpubench has no {name!r}")
    return getattr(import_module(f"gpubench.{_HOME_OF[name]}"), name)


def load(paths: "str | Path | Iterable[str | Path]") -> "Loaded":
    """The rows of CSV files, folders of them, or charts and reports that carry their rows.

    Rows that cannot be used are left out and named in `problems`. Raises UserError where no row is left.
    """
    from gpubench.analysis.compare import load_rows

    several = [paths] if isinstance(paths, str | Path) else paths
    return load_rows([Path(path) for path in several], keep=True)


def compare(
    rows: "Loaded | str | Path | Iterable[str | Path]",
    *,
    by: str | None = None,
    baseline: str | None = None,
    metric: str = "seconds",
    prices: str | Path | None = None,
    where: "str | Iterable[str]" = (),
    only: str = "",
    allow_mismatch: bool = False,
) -> "Answer":
    """What `gpubench compare` says of some rows, or of the files they are in; the arguments are its options.

    `print(answer)` is the first sentence, `answer.findings` and `answer.sections` are all of it,
    `answer.to_frame()` is a table of the findings. Raises UserError where the question names nothing that is there.
    """
    from gpubench.analysis.compare import Question
    from gpubench.rows.read import Loaded
    from gpubench.studies import answer as answers

    loaded = rows if isinstance(rows, Loaded) else load(rows)
    wheres = (where,) if isinstance(where, str) else tuple(where)
    question = Question(by, baseline, allow_mismatch, metric, Path(prices) if prices else None, wheres)
    answer = answers.answer_of(loaded, question)
    return answers.only(answer, only) if only else answer
