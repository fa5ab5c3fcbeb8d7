"""How far the model of published speeds is from figures that it has not seen."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from gpubench.studies.cards.figures import CLASSES, Cell
from gpubench.studies.cards.model import NORMAL_90, Model, blocks_of, checked
from gpubench.studies.cards.ranking import answered
from gpubench.studies.section import Answer, Column, Table

LEFT_OUT = {
    "figure": "one figure",
    "source": "all that a source says of a card",
    "card": "all that is known of a card",
}
"""What is left out at once."""
BLOCKS: dict[str, Callable[[Cell], Hashable]] = {
    "figure": lambda cell: (cell.card, cell.recipe, cell.software),
    "source": lambda cell: (cell.card, cell.source),
    "card": lambda cell: cell.card,
}


@dataclass(frozen=True)
class Error:
    """A figure that was left out, and by how much it was missed."""

    cell: Cell
    log: float
    """Logarithm of measured over predicted."""
    deviation: float
    """How far off the model expected to be, as a standard deviation."""

    @property
    def share(self) -> float:
        """0.1: 10% more or less than predicted."""
        return abs(math.expm1(self.log))

    @property
    def held(self) -> bool:
        """Whether it lies in its 90% interval."""
        return abs(self.log) < NORMAL_90 * self.deviation


@dataclass(frozen=True)
class Score:
    """Of many errors."""

    figures: int
    median: float
    ninth: float
    """Nine of ten are at most so large."""
    held: float
    """The share within their 90% intervals."""


def errors_of(model: Model, what: str) -> list[Error]:
    """Errors where `what`, one of LEFT_OUT, is left out; only of figures whose card something else speaks for.

    That is another figure of its class, or another source; of a whole card there is nothing but its architecture.
    """
    others: dict[Hashable, set[Hashable]] = defaultdict(set)
    for cell in model.cells:
        others[cell.card, cell.kind].add((cell.recipe, cell.software))
        others[cell.card].add(cell.source)
    enough: dict[str, Callable[[Cell], bool]] = {
        "figure": lambda cell: len(others[cell.card, cell.kind]) > 1,
        "source": lambda cell: len(others[cell.card]) > 1,
        "card": lambda cell: True,
    }
    errors, deviations = model.left_out(blocks_of(model.cells, BLOCKS[what]))
    return [
        Error(cell, float(error), float(deviation))
        for cell, error, deviation in zip(model.cells, errors, deviations, strict=True)
        if enough[what](cell)
    ]


def judged(errors: Sequence[Error]) -> Score:
    """What is said of errors."""
    shares = sorted(each.share for each in errors)
    return Score(
        figures=len(shares),
        median=statistics.median(shares),
        ninth=shares[math.ceil(0.9 * len(shares)) - 1],
        held=sum(each.held for each in errors) / len(errors),
    )


def answer(model: Model) -> Answer:
    """A table: what is left out, in which class, and how well it is predicted."""
    columns = (
        Column("left out"),
        Column("class"),
        Column("median", "share", "lower", places=1),
        Column("9 of 10", "share", "lower", places=0),
        Column("in 90%", "share", places=1),
        Column("figures", "count"),
    )
    lines = []
    for what, name in LEFT_OUT.items():
        errors = errors_of(model, what)
        for kind in ("all", *CLASSES):
            score = judged([each for each in errors if kind in {"all", each.cell.kind}])
            lines.append((name, kind, score.median, score.ninth, score.held, score.figures))
    check = checked()
    notes = (
        "median: half of the figures are missed by less; 9 of 10: nine tenths are; in 90%: the share in their stated"
        " 90% interval. A card that is left out whole is placed by its architecture and its memory bandwidth.",
    )
    return answered(
        f"The model misses a figure that was left out by {check['median_error']:.1%} (median), and"
        f" {check['in_interval']:.1%} lie in their 90% interval; all that a source says of a card by"
        f" {check['median_error_source']:.1%}, {check['in_interval_source']:.1%}: with spreads that were fitted without"
        " the card (benchmarks/cards_model.py). Those of the table saw all figures, so it looks better.",
        "errors",
        (Table("errors", columns, tuple(lines)),),
        notes,
    )
