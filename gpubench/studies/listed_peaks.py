"""Specified peaks of cards (FLOP/s, bandwidth) from listed_peaks.toml. `peak`, studies and `submit` use them."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from gpubench.suite.precisions import multiplied_in

GIB = 2**30


@dataclass(frozen=True)
class ListedCard:
    """One card of listed_peaks.toml, in FLOP/s and bytes per second."""

    name: str
    match: str
    """Regular expression for the whole name without a leading `NVIDIA`."""
    flops: Mapping[str, float]
    bytes_per_second: float
    tensor_cores: bool
    source: str
    memory_gib: tuple[float, float] | None
    """Range of the memory in GiB, where several cards have the same name."""

    def peak(self, precision: str) -> float | None:
        """Return the dense FLOP/s of `precision`, or None if it is not listed.

        For a card without tensor cores, the peak of fp32 replaces those that are not listed.
        """
        return self.flops.get(multiplied_in(precision)) or (None if self.tensor_cores else self.flops["fp32"])


@cache
def find(name: str, memory_bytes: float | None) -> ListedCard | None:
    """Return the card that the driver calls `name`, or None if it is not listed.

    The whole name must match: a laptop RTX 4090 is not an RTX 4090, and a MIG slice is not its card.
    """
    plain = name.strip().removeprefix("NVIDIA ")
    for card in cards():
        least, most = card.memory_gib or (0.0, math.inf)
        fits = card.memory_gib is None or least <= (memory_bytes or 0) / GIB <= most  # the memory may be NaN
        if fits and re.fullmatch(card.match, plain, re.IGNORECASE):
            return card
    return None


@cache
def cards() -> tuple[ListedCard, ...]:
    """Return all cards of listed_peaks.toml."""
    table = tables()
    return tuple(
        ListedCard(
            name=row["name"],
            match=row["match"],
            flops={precision: tflops * 1e12 for precision, tflops in row["tflops"].items()},
            bytes_per_second=row["bandwidth_gb_per_second"] * 1e9,
            tensor_cores=row.get("tensor_cores", True),
            source=table["sources"][row["source"]],
            memory_gib=tuple(row["memory_gib"]) if "memory_gib" in row else None,
        )
        for row in table["card"]
    )


def tables() -> dict[str, Any]:
    """Return the content of listed_peaks.toml."""
    return tomllib.loads((files("gpubench.studies") / "listed_peaks.toml").read_text(encoding="utf-8"))
