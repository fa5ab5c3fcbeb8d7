"""A network and its schedule as lines of text, with a line per block of layers. `gpubench show` calls it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from gpubench.show.numbers import significant
from gpubench.show.terminal import table_lines
from gpubench.show.wrap import line_width, wrapped
from gpubench.studies.section import Column, Table

MOST = 22
"""Maximum number of blocks on the screen."""
NOT_NAMED = {"Flatten", "Dropout", "Identity"}
"""Kinds of layer that are named only in blocks without other layers."""
Points = tuple[tuple[float, float], ...]
"""Pairs of an epoch and a value."""


@dataclass(frozen=True)
class Layer:
    """A module without submodules, and its FLOPs for one sample, forward and backward."""

    name: str
    kind: str
    shape: tuple[int, ...]
    """Shape of its output, without the batch."""
    weights: int
    flops: float
    block: str = ""
    """Name of its residual block; empty if it is in none."""
    shortcut: bool = False
    """Whether it is on the shortcut of that block."""


@dataclass(frozen=True)
class Block:
    """A residual block, or a layer with the layers that belong to it. The network has it `times` times in a row."""

    layers: tuple[Layer, ...]
    times: int = 1

    @property
    def residual(self) -> bool:
        """Whether it is a residual block."""
        return bool(self.layers[0].block)

    @property
    def main(self) -> tuple[Layer, ...]:
        """Layers that are not on the shortcut."""
        return tuple(layer for layer in self.layers if not layer.shortcut)

    @property
    def label(self) -> str:
        """Kinds of its layers. A residual block shows only layers that compute, and all before the first of these."""
        first = next((place for place, layer in enumerate(self.main) if layer.flops), 0)
        shown = [layer for place, layer in enumerate(self.main) if layer.flops or place < first or not self.residual]
        return _joined([layer.kind for layer in shown or self.main])

    @property
    def shortcut(self) -> str:
        """Kinds of the layers that compute on the shortcut; empty for an identity."""
        return _joined([layer.kind for layer in self.layers if layer.shortcut and layer.flops])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its output, without the batch."""
        return self.main[-1].shape

    @property
    def weights(self) -> int:
        """Weights of all repetitions."""
        return self.times * sum(layer.weights for layer in self.layers)

    @property
    def flops(self) -> float:
        """FLOPs of all repetitions, for one sample, forward and backward."""
        return self.times * sum(layer.flops for layer in self.layers)


@dataclass(frozen=True)
class NetworkSummary:
    """What `gpubench show` shows of a model."""

    title: str
    """The suite and the model."""
    unit: str
    """Name of a sample: image, token."""
    input: tuple[int, ...]
    layers: tuple[Layer, ...]
    weights: int
    trained: int
    """Weights that are not frozen."""
    flops: float
    """FLOPs for one sample, forward and backward."""
    epochs: int
    schedule: Mapping[str, Points]
    note: str = ""

    @property
    def headline(self) -> str:
        """Number of weights and FLOPs, in words."""
        frozen = self.weights - self.trained
        frozen_text = f" ({count_text(frozen)} of them frozen)" if frozen else ""
        size, prefix = (1e9, "G") if self.flops >= 1e8 else (1e6, "M")
        work = f"{significant(self.flops / size)} {prefix}FLOP per {self.unit}, forward and backward"
        return f"{count_text(self.weights)} weights{frozen_text}, {work}"


def count_text(number: int) -> str:
    """Return a number in words: `25.6 million`."""
    return f"{significant(number / 1e6)} million" if number >= 1e6 else f"{number:,}"


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as text: `64 x 32 x 32`."""
    return " x ".join(f"{size:,}" for size in shape)


def _joined(kinds: Sequence[str]) -> str:
    """Return kinds of layers as text, without repeating a first word: `conv 1x1, 3x3, 1x1`."""
    named = [kind for kind in kinds if kind not in NOT_NAMED] or list(kinds[:1])
    texts = []
    for before, kind in zip(["", *named], named, strict=False):
        word, space, rest = kind.partition(" ")
        texts.append(rest if space and before.startswith(f"{word} ") else kind)
    return ", ".join(texts)


def blocks_of(layers: Sequence[Layer]) -> list[Block]:
    """Return the layers as blocks; equal blocks in a row become one."""
    groups: list[list[Layer]] = []
    for layer in layers:
        if groups and _belongs(layer, groups[-1][-1]):
            groups[-1].append(layer)
        else:
            groups.append([layer])
    blocks = [Block(tuple(group)) for group in groups]
    facts = attrgetter("residual", "label", "shortcut", "shape", "weights", "flops")
    repeated = [list(alike) for _, alike in groupby(blocks, key=facts)]
    return [replace(alike[0], times=len(alike)) for alike in repeated]


def _belongs(layer: Layer, before: Layer) -> bool:
    """Return whether a layer is in the same block as the layer before it.

    If one of the two is in a residual block, both have to be in the same residual block. Otherwise the layer must have
    no FLOPs, and either no weights or as many output values as the layer before.
    """
    if layer.block or before.block:
        return layer.block == before.block
    return not layer.flops and (not layer.weights or math.prod(layer.shape) == math.prod(before.shape))


def lines(network: NetworkSummary, *, every: bool) -> Iterator[str]:
    """Yield the lines of the screen, with `every` layer or with blocks."""
    yield from wrapped(f"{network.title}: {network.headline}.")
    yield ""
    yield from table_lines(_table(network, every=every), line_width())
    if any(layer.block for layer in network.layers) and not every:
        yield from wrapped("+: residual block; after |: layers on its shortcut (none: identity).")
    yield ""
    yield from _schedule(network)


def _table(network: NetworkSummary, *, every: bool) -> Table:
    """Return a table with a line for `every` layer, or for each of the first MOST blocks."""
    blocks = blocks_of(network.layers)
    parts: list[tuple[str, Layer | Block]] = [(f"{layer.name}: {layer.kind}", layer) for layer in network.layers]
    if not every:
        parts = [(_text_of(block), block) for block in blocks[:MOST]]
    lines: list[tuple[str | float | None, ...]] = [("input", shape_text(network.input), None, None)]
    lines += [(text, shape_text(part.shape), part.weights or None, part.flops / 1e6 or None) for text, part in parts]
    if not every and len(blocks) > MOST:
        lines.append((f"and {len(blocks) - MOST} more (--all)", "", None, None))
    columns = Column("layers"), Column("output"), Column("weights", "count"), Column("MFLOP", "MFLOP")
    return Table("", columns, tuple(lines))


def _text_of(block: Block) -> str:
    """Return the layers of a block in words; `lines` explains the signs."""
    shortcut = f" | {block.shortcut}" if block.shortcut else ""
    repeated = f" (x {block.times})" if block.times > 1 else ""
    return f"{'+ ' * block.residual}{block.label}{shortcut}{repeated}"


def moves(points: Points) -> bool:
    """Return whether the value changes."""
    return len({value for _, value in points}) > 1


def _schedule(network: NetworkSummary) -> Iterator[str]:
    """Yield a table of the values that change, with bars for the first; a line per constant value; and the note."""
    moving = {name: dict(points) for name, points in network.schedule.items() if moves(points)}
    if moving:
        values = next(iter(moving.values()))
        highest = max(values, key=values.__getitem__)
        step = -(-network.epochs // 4)
        room = min(40, line_width() - 10 - sum(len(name) + 2 for name in moving))
        lines: list[tuple[str | float, ...]] = []
        evenly = [*map(float, range(0, network.epochs, step)), float(network.epochs)]
        # The epoch of the highest value replaces evenly spaced epochs that are at most step / 4 away.
        for at in sorted({highest, *(at for at in evenly if abs(at - highest) > step / 4)}):
            bar = "#" * round(room * max(values[at], 0.0) / (values[highest] or 1.0))
            lines.append((f"{round(at, 1):,.9g}", *(column[at] for column in moving.values()), bar))
        heads = Column("epoch"), *(Column(name, "rate") for name in moving), Column("")
        yield from table_lines(Table("schedule", heads, tuple(lines)), line_width())
    for name, points in network.schedule.items():
        if not moves(points):
            yield f"{name} {points[0][1]:g}, constant over the {network.epochs} epochs"
    yield from wrapped(network.note) if network.note else []
