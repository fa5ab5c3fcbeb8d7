"""Which rows stand behind a chart: found again in the files, as the text they were."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from gpubench.analysis.cells import Cell, recipe_of
from gpubench.analysis.metrics import filtered
from gpubench.rows.read import load_text, shown, table_of

WHOSE = [
    "suite", "params", "data", "weights", "mode", "source", "model", "precision", "batch_policy", "card",
    "device_hash", "session",
]  # fmt: skip
"""Text columns that lead from a cell to its rows."""


class Rows:
    """The rows of some files, read again only when something is to carry them."""

    def __init__(self, paths: Sequence[Path], where: Sequence[str] = ()) -> None:
        self._paths, self._where = paths, where

    @cached_property
    def _texts(self) -> pd.DataFrame:
        return filtered(load_text(self._paths), self._where)

    @cached_property
    def _keys(self) -> "pd.Series[Any]":
        texts = self._texts[WHOSE].map(shown)
        texts["params"] = recipe_of(texts["params"])
        return pd.Series(list(zip(*(texts[name] for name in WHOSE), strict=True)), index=texts.index)

    def table(self, cells: Iterable[Cell]) -> bytes:
        """CSV of the rows that the cells were made of, in the order of the files."""
        return table_of(self.of(cells))

    def all(self, suite: str = "") -> bytes:
        """CSV of every row, or of every one of a suite."""
        texts = self._texts
        return table_of(texts[texts["suite"] == suite] if suite else texts)

    def of(self, cells: Iterable[Cell]) -> pd.DataFrame:
        """The rows that the cells were made of, as texts."""
        wanted = {tuple(str(one.row[name]) for name in WHOSE) for cell in cells for one in (cell.parts or (cell,))}
        return self._texts[self._keys.isin(wanted)]
