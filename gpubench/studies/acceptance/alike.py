"""Rows that carry a rate worth comparing, each with its recipe: what must agree before two cards are compared."""

from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from gpubench.rows.read import load

RECIPE = [
    "suite", "suite_version", "model", "precision", "batch_size", "params", "data", "weights", "processes",
    "memory_limit_bytes", "card",
]  # fmt: skip
"""What must agree: a factor of two between honest figures of one card is a matter of recipe."""
STACK = ["torch", "cuda"]
"""What should: another one is worth up to 20%."""
TRIAL = ["model", "precision", "session", "trial"]
"""What tells a trial of one run and suite."""
BESIDE_OTHERS = frozenset({"shared", "shared_peak"})
"""Marks of figures that other programs may have lowered."""
NO_REFERENCE = BESIDE_OTHERS | {"throttled"}
"""Marks of a trial that says nothing of how fast a good card is."""


def measured_rows(files: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """Rows of sampled and full runs with their recipe as a text, and what could not be read.

    Folders stand for their CSV files. A quick run's rate, and a published one, are not worth comparing.
    """
    loaded = load(files)
    frame = loaded.frame
    good = (frame["status"] == "ok") & frame["mode"].isin(["sampled", "full"]) & (frame["samples_per_second"] > 0)
    recipe = ["|".join(map(str, values)) for values in frame[RECIPE].itertuples(index=False)]
    return frame.assign(recipe=recipe)[good], loaded.problems


def references_of(mine: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """Of the known rows, `mine` among them, those of the same card and software on other hosts; `host` numbers these.

    Both as `measured_rows` gives them.
    """
    first = mine.iloc[0]
    known = known[known["device_hash"] != ""]
    known = known.assign(host=_hosts(known))
    own = known.loc[known["session"].isin(mine["session"]) | (known["device_hash"] == first["device_hash"]), "host"]
    alike = (known[["card", *STACK]] == first[["card", *STACK]]).all(axis=1)
    good = known["marks"].map(lambda marks: NO_REFERENCE.isdisjoint(str(marks).split())).astype(bool)
    return known[alike & good & ~known["host"].isin(own)]


def _hosts(rows: pd.DataFrame) -> list[int]:
    """By row the number of its host, as far as rows tell: cards that share a session share one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    devices, sessions = pd.factorize(rows["device_hash"])[0], pd.factorize(rows["session"])[0]
    size = len(rows)
    # Devices are the first nodes of the graph, and sessions come after them.
    graph = coo_array(([True] * size, (devices, size + sessions)), shape=(2 * size, 2 * size))
    return list(connected_components(graph, directed=False)[1][devices]) if size else []


def cases_without_result(path: Path, sessions: Collection[str], mine: pd.DataFrame) -> list[str]:
    """Names of the cases of these sessions in the file of which a trial is not among the rows `mine`.

    A trial that was stopped and done later is there.
    """
    frame = load([path]).frame
    there = set(mine[TRIAL].itertuples(index=False, name=None))
    trials = frame.loc[frame["session"].isin(sessions), TRIAL].itertuples(index=False, name=None)
    return list(dict.fromkeys(" ".join(trial[:2]) for trial in trials if trial not in there))


def beside_others(rows: pd.DataFrame) -> bool:
    """Whether other programs computed during a trial or while the peak was measured."""
    return any(BESIDE_OTHERS & set(str(marks).split()) for marks in rows["marks"])
