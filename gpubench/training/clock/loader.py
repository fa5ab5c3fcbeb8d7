"""Counts the steps of a suite's loader and the samples of a batch."""

from collections.abc import Iterable, Mapping
from typing import Any


def length_of(loader: Iterable[Any]) -> int | None:
    """Steps in one pass; None where the loader cannot tell (torch's over an IterableDataset raises)."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return None


def first_dimension(batch: Any) -> int:
    """Samples in a batch: the first dimension of the first thing in it that has a shape, else a length."""
    thing = batch
    while not (shape := getattr(thing, "shape", None)):
        inner: Any = None
        if isinstance(thing, Mapping | tuple | list) and thing:
            inner = next(iter(thing.values())) if isinstance(thing, Mapping) else thing[0]
        if isinstance(inner, str) or not hasattr(inner, "__len__") or getattr(inner, "shape", None) == ():
            return len(thing) if hasattr(thing, "__len__") else 1
        thing = inner
    return int(shape[0])
