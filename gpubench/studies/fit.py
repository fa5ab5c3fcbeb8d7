"""Judges whether a training step fits a card, from its computed memory. `gpubench fits` calls it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpubench.studies.section import Column, Table
from gpubench.studies.words import listed

GIB = 2**30
MARGIN = 1.1
"""Factor on the computed peak: an allocator rounds sizes up, and kernels take more memory than their results."""
CONTEXT_GIB = 1.5
"""Memory that a card's driver, torch's kernels and a desktop take."""
ROUND_TOKENS = 64
"""The longest sequence is a multiple of this."""
RULE = (
    f"Computed from shapes. fits: {MARGIN:g} x the peak + {CONTEXT_GIB:g} GiB is below the card's memory; does not fit:"
    " the peak alone is above it. The longest sequence (of batch 1) and the largest batch fit by the first rule."
)


@dataclass(frozen=True)
class StepMemory:
    """The memory, in bytes, of a training step with this number of tokens."""

    tokens: int
    peak: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    """The rest of the peak: what the backward pass needs, and temporary tensors."""


@dataclass(frozen=True)
class Line:
    """One line of the table: cards with the same memory."""

    gib: float
    verdict: str
    most_tokens: float
    """The most tokens of a step that fits for sure (see the function)."""
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
    """Return the most tokens of a step that fits for sure, up to those of the largest computed step; 0 if no step fits.

    Between two computed steps the peak is assumed on a straight line. The true peak is the highest of several sums that
    are linear in the tokens, so it is never above that line.
    """
    room = room_bytes(card_bytes)
    steps = sorted(steps, key=lambda step: step.tokens)
    for fitting, larger in pairwise(steps):
        if fitting.peak < room <= larger.peak:
            share = (room - fitting.peak) / (larger.peak - fitting.peak)
            return fitting.tokens + share * (larger.tokens - fitting.tokens)
    return steps[-1].tokens if steps[-1].peak < room else 0


def lines_of(steps: Sequence[StepMemory], cards: Mapping[str, float]) -> list[Line]:
    """Return a line per size of memory, the smallest first; `cards`: bytes by card. The first step is judged."""
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
    return f"{peak}, which fits on {f'cards with {min(fitting):g} GiB and more' if fitting else 'no card for sure'}."


def parts(step: StepMemory) -> Table:
    """Return the table of the peak and its parts, in GiB."""
    names = ("peak", "weights", "gradients", "optimizer", "activations")
    columns = tuple(Column(name, "GiB", places=1) for name in names)
    return Table("memory in GiB", columns, (tuple(getattr(step, name) / GIB for name in names),))


def table(lines: Sequence[Line], context: int) -> Table:
    """Return a line per size of memory: the verdict, the most tokens, and the most sequences of `context` tokens."""
    counts = [Column(name, "count") for name in ("longest sequence", "largest batch")]
    columns = (Column("GiB", "GiB", places=0), Column("verdict"), *counts, Column("cards"))
    figures = [
        (line.gib, line.verdict, int(line.most_tokens // ROUND_TOKENS) * ROUND_TOKENS, int(line.most_tokens // context))
        for line in lines
    ]
    return Table("what fits", columns, tuple((*row, line.cards) for row, line in zip(figures, lines, strict=True)))
