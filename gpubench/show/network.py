"""A network and its schedule: layers folded to blocks, and both as lines of text."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpubench.show.numbers import significant
from gpubench.show.terminal import WIDTH, table_lines, wrapped
from gpubench.studies.section import Column, Table

MOST = 22
"""Blocks on a screen."""
NOT_NAMED = {"Flatten", "Dropout", "Identity"}
"""Kinds of layer that a block beside others does not name."""
EPOCHS = 8
"""Steps of the schedule's table."""
BAR = 40
"""Characters of the longest bar of that table, at most."""
Points = tuple[tuple[float, float], ...]
"""Epochs and values."""


@dataclass(frozen=True)
class Layer:
    """A module that calls no other, and what one sample takes of it, forward and backward."""

    name: str
    kind: str
    shape: tuple[int, ...]
    """Of what it gives, without the batch."""
    weights: int
    flops: float
    block: str = ""
    """The residual block in which it lies."""
    shortcut: bool = False
    """Whether it lies on the way around that block."""


@dataclass(frozen=True)
class Block:
    """A layer and what follows it, or a residual block; `times` in a row."""

    layers: tuple[Layer, ...]
    times: int = 1

    @property
    def residual(self) -> bool:
        return bool(self.layers[0].block)

    @property
    def main(self) -> tuple[Layer, ...]:
        """Those not on the shortcut."""
        return tuple(layer for layer in self.layers if not layer.shortcut)

    @property
    def label(self) -> str:
        """What it is made of; of a residual block what computes."""
        working = [layer for layer in self.main if layer.flops or not self.residual]
        return _joined([layer.kind for layer in working or self.main])

    @property
    def shortcut(self) -> str:
        """What computes on the way around it; empty where that is the identity."""
        return _joined([layer.kind for layer in self.layers if layer.shortcut and layer.flops])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.main[-1].shape

    @property
    def weights(self) -> int:
        """Of all its `times`."""
        return self.times * sum(layer.weights for layer in self.layers)

    @property
    def flops(self) -> float:
        """Of all its `times`."""
        return self.times * sum(layer.flops for layer in self.layers)


@dataclass(frozen=True)
class Network:
    """All that is shown of a model."""

    title: str
    """The suite and the model."""
    unit: str
    """What a sample is: image, token."""
    input: tuple[int, ...]
    layers: tuple[Layer, ...]
    weights: int
    trained: int
    """Weights that are not frozen."""
    flops: float
    """Of a sample, forward and backward."""
    epochs: int
    schedule: Mapping[str, Points]
    note: str = ""

    @property
    def headline(self) -> str:
        """How large it is."""
        frozen = self.weights - self.trained
        some = f" ({count_text(frozen)} of them frozen)" if frozen else ""
        size, prefix = (1e9, "G") if self.flops >= 1e8 else (1e6, "M")
        work = f"{significant(self.flops / size)} {prefix}FLOP per {self.unit}, forward and backward"
        return f"{count_text(self.weights)} weights{some}, {work}"


def count_text(number: int) -> str:
    """`25.6 million`."""
    return f"{significant(number / 1e6)} million" if number >= 1e6 else f"{number:,}"


def shape_text(shape: Sequence[int]) -> str:
    """`64 x 32 x 32`."""
    return " x ".join(f"{size:,}" for size in shape)


def _joined(kinds: Sequence[str]) -> str:
    """`conv 3x3, norm, ReLU`; a first word that repeats is said once: `conv 1x1, 3x3, 1x1`."""
    named = [kind for kind in kinds if kind not in NOT_NAMED] or list(kinds[:1])
    texts = []
    for before, kind in zip(["", *named], named, strict=False):
        word, space, rest = kind.partition(" ")
        texts.append(rest if space and before.startswith(f"{word} ") else kind)
    return ", ".join(texts)


def blocks_of(layers: Sequence[Layer]) -> list[Block]:
    """The layers put together, like ones in a row once."""
    groups: list[list[Layer]] = []
    for layer in layers:
        if groups and _belongs(layer, groups[-1][-1]):
            groups[-1].append(layer)
        else:
            groups.append([layer])
    blocks: list[Block] = []
    for block in (Block(tuple(group)) for group in groups):
        if blocks and _looks(replace(blocks[-1], times=1)) == _looks(block):
            blocks[-1] = replace(blocks[-1], times=blocks[-1].times + 1)
        else:
            blocks.append(block)
    return blocks


def _looks(block: Block) -> tuple[object, ...]:
    return block.residual, block.label, block.shortcut, block.shape, block.weights, block.flops


def _belongs(layer: Layer, before: Layer) -> bool:
    """Whether it lies in the same residual block, or outside of any only passes on what the one before it gives."""
    if layer.block or before.block:
        return layer.block == before.block
    return not layer.flops and (not layer.weights or math.prod(layer.shape) == math.prod(before.shape))


def lines(network: Network, *, every: bool) -> Iterator[str]:
    """All there is to say on a screen; `every` layer or blocks of them."""
    yield from wrapped(f"{network.title}: {network.headline}.")
    yield ""
    yield from table_lines(_layers_table(network) if every else _blocks_table(network), WIDTH)
    if any(layer.block for layer in network.layers) and not every:
        yield "+: residual; after | what computes on its shortcut, elsewhere the identity."
    yield ""
    yield from _schedule(network)


def _columns(*names: str) -> tuple[Column, ...]:
    return *map(Column, names), Column("gives"), Column("weights", "count"), Column("MFLOP", "MFLOP")


def _layers_table(network: Network) -> Table:
    lines = [
        (each.name, each.kind, shape_text(each.shape), each.weights or None, each.flops / 1e6 or None)
        for each in network.layers
    ]
    return Table("layers", _columns("name", "kind"), tuple(lines))


def _blocks_table(network: Network) -> Table:
    blocks = blocks_of(network.layers)
    lines: list[tuple[str | float | None, ...]] = [("input", shape_text(network.input), None, None)]
    for block in blocks[:MOST]:
        label = f"{'+ ' * block.residual}{block.label}{f' | {block.shortcut}' * bool(block.shortcut)}"
        label += f" (x {block.times})" * (block.times > 1)
        lines.append((label, shape_text(block.shape), block.weights or None, block.flops / 1e6 or None))
    if len(blocks) > MOST:
        lines.append((f"and {len(blocks) - MOST} more (--all)", "", None, None))
    return Table("network", _columns("layers"), tuple(lines))


def moves(points: Points) -> bool:
    """Whether it is not the same all the time."""
    return len({value for _, value in points}) > 1


def _schedule(network: Network) -> Iterator[str]:
    """Values at some epochs, with bars for the first of them; in a line each what does not move; the note."""
    moving = {name: dict(points) for name, points in network.schedule.items() if moves(points)}
    if moving:
        values = next(iter(moving.values()))
        highest = max(values, key=values.__getitem__)
        step = -(-network.epochs // EPOCHS)
        room = min(BAR, WIDTH - 10 - sum(len(name) + 2 for name in moving))
        lines: list[tuple[str | float, ...]] = []
        evenly = [*map(float, range(0, network.epochs, step)), float(network.epochs)]
        # The highest stands for what is beside it.
        for at in sorted({highest, *(at for at in evenly if abs(at - highest) > step / 4)}):
            bar = "#" * round(room * max(values[at], 0.0) / (values[highest] or 1.0))
            lines.append((f"{round(at, 1):,.9g}", *(own[at] for own in moving.values()), bar))
        columns = Column("epoch"), *(Column(name, "rate") for name in moving), Column("")
        yield from table_lines(Table("schedule", columns, tuple(lines)), WIDTH)
    for name, points in network.schedule.items():
        if not moves(points):
            yield f"{name} {points[0][1]:g}, with no schedule over the {network.epochs} epochs"
    yield from wrapped(network.note) if network.note else []
