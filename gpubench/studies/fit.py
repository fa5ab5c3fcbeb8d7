"""Judges whether a training step fits a card, from its computed memory. `gpubench fits` calls it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpubench.studies.section import Column, Table
from gpubench.studies.words import listed

GIB = 2**30
MARGIN = 1.1
"""Over the computed peak: what an allocator rounds up, and what a kernel takes beside its results."""
CONTEXT_GIB = 1.5
"""What a card's driver, torch's kernels and a desktop take."""
ROUND_TOKENS = 64
"""The longest sequence is a multiple of this."""
RULE = (
    f"Computed from shapes. fits: {MARGIN:g} x the peak + {CONTEXT_GIB:g} GiB is below the card's memory, as for the"
    " longest sequence of batch 1 and the largest batch; does not fit: the peak is above it."
)


@dataclass(frozen=True)
class StepMemory:
    """The memory of a training step, in bytes."""

    tokens: int
    peak: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    """The rest of the peak: what the backward pass needs, and temporary tensors."""


@dataclass(frozen=True)
class Line:
    """Cards with the same memory."""

    gib: float
    verdict: str
    most_tokens: float
    """See `most_tokens`."""
    cards: str


def room_bytes(card_bytes: float) -> float:
    """Return the highest peak of a step that fits this memory for sure."""
    return (card_bytes - CONTEXT_GIB * GIB) / MARGIN


def verdict(peak: float, card_bytes: float) -> str:
    """Return `fits`, `may fit` or `does not fit`."""
    if peak < room_bytes(card_bytes):
        return "fits"
    return "does not fit" if peak > card_bytes else "may fit"


def most_tokens(steps: Sequence[StepMemory], card_bytes: float) -> float:
    """Return the most tokens of a step that fits for sure, as far as steps were computed; 0 if none of them fits.

    Between two computed steps it follows a line. The peak is the highest of several sums that grow in proportion to
    the tokens, so it is never above the line.
    """
    room = room_bytes(card_bytes)
    steps = sorted(steps, key=lambda step: step.tokens)
    for fitting, larger in pairwise(steps):
        if fitting.peak < room <= larger.peak:
            share = (room - fitting.peak) / (larger.peak - fitting.peak)
            return fitting.tokens + share * (larger.tokens - fitting.tokens)
    return steps[-1].tokens if steps[-1].peak < room else 0


def lines_of(steps: Sequence[StepMemory], cards: Mapping[str, float]) -> list[Line]:
    """Return a line for each size of memory, in bytes, of these cards; the smallest first. The first step is judged."""
    by_size = {size: [card for card in cards if cards[card] == size] for size in sorted(set(cards.values()))}
    return [
        Line(size / GIB, verdict(steps[0].peak, size), most_tokens(steps, size), listed(names))
        for size, names in by_size.items()
    ]


def headline(step: StepMemory, lines: Sequence[Line]) -> str:
    """Return the peak and what it fits, as the end of a sentence."""
    peak = f"{step.peak / GIB:.1f} GiB at the peak of a step"
    if len(lines) == 1:
        return f"{peak}, which {lines[0].verdict} on {lines[0].cards} ({lines[0].gib:g} GiB)."
    fitting = [line.gib for line in lines if line.verdict == "fits"]
    return f"{peak}, which fits on cards with {min(fitting):g} GiB and more." if fitting else f"{peak}: no card fits."


def parts(step: StepMemory) -> Table:
    """Return the parts of the peak."""
    names = ("peak", "weights", "gradients", "optimizer", "activations")
    columns = tuple(Column(name, "GiB", places=1) for name in names)
    return Table("memory in GiB", columns, (tuple(getattr(step, name) / GIB for name in names),))


def table(lines: Sequence[Line], context: int) -> Table:
    """Return the verdict for each size of memory, the longest sequence and the largest batch."""
    counts = [Column(name, "count") for name in ("longest sequence", "largest batch")]
    columns = (Column("GiB", "GiB", places=0), Column("verdict"), *counts, Column("cards"))
    figures = [
        (line.gib, line.verdict, int(line.most_tokens // ROUND_TOKENS) * ROUND_TOKENS, int(line.most_tokens // context))
        for line in lines
    ]
    return Table("what fits", columns, tuple((*row, line.cards) for row, line in zip(figures, lines, strict=True)))
