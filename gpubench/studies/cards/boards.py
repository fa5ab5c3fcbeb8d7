"""What data sheets say of the cards: boards.csv."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Board:
    """What is known of a card without measuring it; None where it is not."""

    architecture: str
    """Cards of one architecture differ by their size; parts for laptops, and parts cut for export, have their own."""
    year: int
    """In which it was announced."""
    gb_per_second: float
    """Of its memory."""
    memory_gb: float | None
    watts: float | None


@cache
def boards() -> dict[str, Board]:
    """All lines of boards.csv by card."""
    text = (files("gpubench.studies.cards") / "boards.csv").read_text(encoding="utf-8")
    return {
        row["card"]: Board(
            row["architecture"],
            int(row["year"]),
            float(row["bandwidth_gb_per_s"]),
            float(row["memory_gb"]) if row["memory_gb"] else None,
            float(row["watts"]) if row["watts"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    }


def architecture(card: str) -> str:
    """That of the card."""
    return boards()[card].architecture
