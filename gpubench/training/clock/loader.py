"""Counts the steps of a suite's loader and the samples of a batch."""

from collections.abc import Iterable, Mapping
from typing import Any


def length_of(loader: Iterable[Any]) -> int | None:
    """Return the steps in one pass, or None if the loader has no length (over an IterableDataset, torch's raises)."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return None


def first_dimension(batch: Any) -> int:
    """Return the samples in a batch: the first dimension of the first nested element with a shape, else a length."""
    element = batch
    while not (shape := getattr(element, "shape", None)):
        inner: Any = None
        if isinstance(element, Mapping | tuple | list) and element:
            inner = next(iter(element.values())) if isinstance(element, Mapping) else element[0]
        if isinstance(inner, str) or not hasattr(inner, "__len__") or getattr(inner, "shape", None) == ():
            return len(element) if hasattr(element, "__len__") else 1
        element = inner
    return int(shape[0])
