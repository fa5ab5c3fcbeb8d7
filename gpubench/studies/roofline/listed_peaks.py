"""What cards are specified to reach: dense FLOP/s and bandwidth from listed_peaks.toml. Never guesses."""

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
class Card:
    """One row of listed_peaks.toml, in FLOP/s and bytes per second."""

    name: str
    match: str
    """Regular expression of the whole name, less NVIDIA's own."""
    flops: Mapping[str, float]
    bytes_per_second: float
    tensor_cores: bool
    source: str
    memory_gib: tuple[float, float] | None
    """The memory that tells this card from another of its name."""

    def peak(self, precision: str) -> float | None:
        """Dense FLOP/s of `precision`; None where it is not listed.

        Without tensor cores, 16-bit operands are multiplied at fp32's rate unless another is listed.
        """
        return self.flops.get(multiplied_in(precision)) or (None if self.tensor_cores else self.flops["fp32"])


@cache
def find(name: str, memory_bytes: float | None) -> Card | None:
    """The card that a driver calls `name`, or None: an unknown card's peak stays unknown.

    The whole name has to fit, so that a laptop's RTX 4090, an H100 PCIe and a MIG slice are not taken for the
    card whose name theirs begins with.
    """
    plain = name.strip().removeprefix("NVIDIA ")
    for card in cards():
        if re.fullmatch(card.match, plain, re.IGNORECASE) and _has_memory(card, memory_bytes):
            return card
    return None


def _has_memory(card: Card, memory_bytes: float | None) -> bool:
    if card.memory_gib is None:
        return True
    return bool(memory_bytes) and card.memory_gib[0] <= (memory_bytes or 0) / GIB <= card.memory_gib[1]


@cache
def cards() -> tuple[Card, ...]:
    """All rows of listed_peaks.toml."""
    table = tables()
    return tuple(
        Card(
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
    """listed_peaks.toml as it stands."""
    return tomllib.loads((files("gpubench.studies.roofline") / "listed_peaks.toml").read_text())
