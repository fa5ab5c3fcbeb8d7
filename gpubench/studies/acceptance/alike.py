"""Rows that carry a rate worth comparing, each with its recipe: what must agree before two cards are compared."""

from collections.abc import Sequence
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


def measured_rows(files: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """Rows of sampled and full runs with their recipe as a text, and what could not be read.

    Folders stand for their CSV files. A quick run's rate, and a published one, are not worth comparing.
    """
    loaded = load(files)
    frame = loaded.frame
    good = (frame["status"] == "ok") & frame["mode"].isin(["sampled", "full"]) & (frame["samples_per_second"] > 0)
    recipe = ["|".join(map(str, values)) for values in frame[RECIPE].itertuples(index=False)]
    return frame.assign(recipe=recipe)[good], loaded.problems
