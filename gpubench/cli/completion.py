"""Shell completion of option values. Each Tab starts Python, so nothing heavy is imported here."""

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

FORMATS = ("terminal", "markdown", "csv", "json")
METRICS = (
    "seconds", "rate", "energy", "value", "cost", "memory", "batch", "accuracy", "time-to-goal",
)  # fmt: skip
EXPORTS = ("benchstat", "pyperf", "dawnbench")
NOT_TO_COMPARE_BY = {"laps", "batch_curve", "table", "precision_proof", "started"}


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Return a function that completes one of these values."""
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]


def some_of(incomplete: str, values: Iterable[str]) -> list[str]:
    """Complete the last part of a list with commas by the values that are not in it yet."""
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{value}" for value in values if value.startswith(last) and value not in given]


def suites(incomplete: str) -> list[str]:
    """Complete built-in suites, and Python files if the text begins a path."""
    from gpubench.suite.files import built_in_names

    path = Path(incomplete)
    folder = path if incomplete.endswith("/") else path.parent
    files = sorted(str(file) for file in folder.glob("*.py")) if incomplete else []
    return [name for name in [*built_in_names(), *files] if name.startswith(incomplete)]


def precisions(incomplete: str) -> list[str]:
    """Complete precisions and the words for several of them."""
    from gpubench.suite.precisions import PRECISIONS

    return some_of(incomplete, ["both", "mixed", "all", *PRECISIONS])


def devices(incomplete: str) -> list[str]:
    """Complete kinds of devices, and the NVIDIA cards of this machine."""
    cards = sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    return some_of(incomplete, ["auto", "all", "cpu", "mps", "xpu", *(f"cuda:{card}" for card in cards or "0")])


def models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete models of the suites on the command line, or of the default suite."""
    from gpubench.errors import UserError
    from gpubench.suite.files import find_all

    given = ctx.params.get("suite") or ["resnet"]
    try:
        loaded = find_all([given] if isinstance(given, str) else given)
    except UserError:
        return []
    return some_of(incomplete, dict.fromkeys(model for suite in loaded for model in suite.suite.models))


def columns(incomplete: str) -> list[str]:
    """Complete columns for --by."""
    from gpubench.rows.row import COLUMNS

    return some_of(incomplete, [name for name in COLUMNS if name not in NOT_TO_COMPARE_BY])


def data_names(incomplete: str) -> list[str]:
    """Complete datasets and weights that can be downloaded."""
    from gpubench.data import datasets

    return one_of(*datasets.names())(incomplete)
