"""Schedules of a training whose images grow: reads and checks a phases file, and gives the settings of each epoch.

A schedule has phases (what is read, how large, in which batches) and ramps (the learning rate). It is data:
TOML, or the same in one line, parsed by a parser and never evaluated. The idea of phases is that of fast.ai
and DIUx's ImageNet training (cybertronai/imagenet18), which kept them in Python code.
"""

import math
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import numpy as np

from gpubench.data.built_in_schedules import BUILT_IN
from gpubench.errors import UserError

MOST_BYTES = 65536
"""A phases file that is larger is none."""
MOST_PIXELS = 2048
LARGEST = 10**9
"""No figure of a schedule is larger."""


@dataclass(frozen=True)
class Phase:
    """Epochs that are alike: from `first` to before `end`."""

    first: int
    end: int
    size: int
    """Pixels a side of a training image."""
    batch: int
    """Images in a step of one process."""
    copies: int = 0
    """Shorter side of the pre-resized copies that it reads; 0 reads the originals."""
    min_scale: float = 0.08
    """Least share of an image's area that a random crop shows."""
    rect_val: bool = False
    """Validate on rectangles of each image's own shape instead of squares."""


@dataclass(frozen=True)
class Ramp:
    """The learning rate goes from `lr[0]` at epoch `first` to `lr[1]` at epoch `end`: straight, or by a power."""

    first: float
    end: float
    lr: tuple[float, float]
    power: float = 1.0
    """What is left of the way falls with this power of the epochs that are left; 1 is a straight line."""


@dataclass(frozen=True)
class Schedule:
    """Phases and ramps, both without gap or overlap from epoch 0 to the last."""

    phases: tuple[Phase, ...]
    ramps: tuple[Ramp, ...]
    lr_batch: int
    """Images of one step of all processes together that the rates are meant for; they scale in proportion."""
    first_batch: int
    """Images in a step of one process in the first phase, which those of all phases are in proportion to."""

    @property
    def epochs(self) -> int:
        """Epochs of the whole run."""
        return self.phases[-1].end

    def phase(self, epoch: int) -> Phase:
        """What epoch number `epoch` is like."""
        return next(phase for phase in self.phases if epoch < phase.end)

    def lr(self, epoch: float, images: int) -> float:
        """The learning rate at a point between epochs, for steps of `images` images."""
        ramp = next((ramp for ramp in self.ramps if epoch < ramp.end), self.ramps[-1])
        left: float = max(0.0, 1 - (epoch - ramp.first) / (ramp.end - ramp.first)) ** ramp.power
        return (ramp.lr[1] + left * (ramp.lr[0] - ramp.lr[1])) * images / self.lr_batch

    @property
    def peak(self) -> float:
        """The highest of all rates, for steps of `lr_batch` images."""
        return max(lr for ramp in self.ramps for lr in ramp.lr)

    def stretched(self, epochs: int) -> "Schedule":
        """The same in so many epochs: phases are rounded to whole ones, and the ramps go with them.

        A phase that would have none is left out; the batches of the others stay in proportion. 0 is as many epochs as
        it has.
        """
        if not epochs:
            return self
        ends = [0, *(phase.end for phase in self.phases)]
        moved = [round(end * epochs / self.epochs) for end in ends]

        def at(epoch: float) -> float:
            return float(np.interp(epoch, ends, moved))

        spans = zip(self.phases, pairwise(moved), strict=True)
        phases = [replace(phase, first=first, end=end) for phase, (first, end) in spans]
        ramps = [replace(ramp, first=at(ramp.first), end=at(ramp.end)) for ramp in self.ramps]
        return replace(
            self,
            phases=tuple(phase for phase in phases if phase.first < phase.end),
            ramps=tuple(ramp for ramp in ramps if ramp.first < ramp.end),
        )

    def batch(self, phase: Phase, first_batch: int) -> int:
        """Images in a step of one process in `phase`, where the first phase has `first_batch` instead of its own."""
        return max(1, phase.batch * first_batch // self.first_batch)


def read(text: str) -> str:
    """The one line that rows keep for what `--set phases=` was given: a built-in name, a file, or such a line.

    Raises UserError with the line at fault.
    """
    if text in BUILT_IN:
        return line_of(parse(BUILT_IN[text], text))
    if text.startswith("lr_batch="):
        return line_of(parse(_unfolded(text), "phases"))
    path = Path(text)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{text}: not a file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        names = ", ".join(BUILT_IN)
        why = getattr(error, "strerror", None) or error
        raise UserError(
            f"phases={text}: cannot be read ({why}); give {names}, or a TOML file (docs/imagenet.md)"
        ) from None
    if len(content) > MOST_BYTES:
        raise UserError(f"{text}: larger than {MOST_BYTES} bytes; a phases file is a page")
    try:
        return line_of(parse(content.decode("utf-8"), text))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{text}, line {line}: not UTF-8 text") from None


def schedule_of(line: str, epochs: int = 0) -> Schedule:
    """The schedule that a row's line stands for, stretched to so many epochs; 0 is as many as it has."""
    return parse(_unfolded(line), "phases").stretched(epochs)


def line_of(schedule: Schedule) -> str:
    """The schedule without spaces: `lr_batch=4096;phase:epochs=[0,13],size=128,...;ramp:epochs=[0,7],lr=[1,2]`."""
    parts = [f"lr_batch={schedule.lr_batch}"]
    for phase in schedule.phases:
        text = f"phase:epochs=[{phase.first},{phase.end}],size={phase.size},batch={phase.batch}"
        text += f",copies={phase.copies}" if phase.copies else ""
        text += f",min_scale={phase.min_scale:g}" if phase.min_scale != Phase.min_scale else ""
        parts.append(text + (",rect_val=true" if phase.rect_val else ""))
    for ramp in schedule.ramps:
        text = f"ramp:epochs=[{ramp.first:.6g},{ramp.end:.6g}],lr=[{ramp.lr[0]:.6g},{ramp.lr[1]:.6g}]"
        parts.append(text + (f",power={ramp.power:.6g}" if ramp.power != Ramp.power else ""))
    return ";".join(parts)


def _unfolded(line: str) -> str:
    """The line as TOML, one key a line."""
    lines = []
    for part in line.split(";"):
        name, colon, rest = part.partition(":")
        if colon:
            lines.append(f"[[{name}]]")
        # A comma inside brackets parts numbers, not keys.
        lines += re.split(r",(?![^\[]*\])", rest if colon else part)
    return "\n".join(lines)


_PHASE_KEYS = {"epochs", "size", "batch", "copies", "min_scale", "rect_val"}
_RAMP_KEYS = {"epochs", "lr", "power"}


def parse(text: str, name: str) -> Schedule:
    """The schedule in a TOML text; raises UserError `NAME, line N: what is wrong`."""
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, and what int() says of thousands of digits
        found = re.search(r"line (\d+)", str(error))
        line = found[1] if found else str(text.count("\n") + 1)  # "at end of document"
        said = re.sub(r" \(at .*\)$", "", str(error))
        raise UserError(f"{name}, line {line}: {said[:1].lower()}{said[1:]}") from None
    except RecursionError:
        raise UserError(f"{name}, line 1: nested too deep") from None
    return _Reader(text, name).schedule(data)


Table = Mapping[str, object]


class _Reader:
    """Checks the data of a TOML text, and knows on which line a key stands."""

    def __init__(self, text: str, name: str) -> None:
        self.lines, self.name = text.splitlines(), name

    def schedule(self, data: Table) -> Schedule:
        for key in data:
            if key not in {"lr_batch", "phase", "ramp"}:
                self.fail(self.line(key), f"{key}: there is lr_batch, [[phase]] and [[ramp]]")
        lr_batch = self.whole(data.get("lr_batch"), "lr_batch", self.line("lr_batch"), 1, 2**20)
        tables: dict[str, list[Table]] = {}
        for kind in ("phase", "ramp"):
            found = data.get(kind)
            if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
                self.fail(self.line(kind), f"write each {kind} as a table [[{kind}]], at least one")
            if len(self.headers(kind)) != len(found):
                self.fail(self.line(kind), f"write each {kind} under a line [[{kind}]] of its own")
            tables[kind] = found
        phases = tuple(self.phase(index, table) for index, table in enumerate(tables["phase"]))
        ramps = tuple(self.ramp(index, table) for index, table in enumerate(tables["ramp"]))
        self.joined("phase", [(phase.first, phase.end) for phase in phases])
        self.joined("ramp", [(ramp.first, ramp.end) for ramp in ramps])
        if ramps[-1].end != phases[-1].end:
            self.fail(
                self.line("epochs", "ramp", len(ramps) - 1),
                f"the ramps end at epoch {ramps[-1].end:g} and the phases at {phases[-1].end}",
            )
        return Schedule(phases, ramps, lr_batch, phases[0].batch)

    def phase(self, index: int, table: Table) -> Phase:
        line = self.known(table, "phase", index, _PHASE_KEYS, {"epochs", "size", "batch"})
        first, end = self.span(table, "phase", index)
        if not (isinstance(first, int) and isinstance(end, int)):
            self.fail(line("epochs"), f"epochs = [{first:g}, {end:g}]: a phase takes whole epochs")
        rect_val = table.get("rect_val", False)
        if not isinstance(rect_val, bool):
            self.fail(line("rect_val"), "rect_val is true or false")
        size = self.whole(table["size"], "size", line("size"), 16, MOST_PIXELS)
        copies = self.whole(table.get("copies", 0), "copies", line("copies"), 0, 2 * MOST_PIXELS)
        if copies and copies < size:
            self.fail(line("copies"), f"copies = {copies}: they are smaller than size = {size}")
        scale = self.number(table.get("min_scale", Phase.min_scale), "min_scale", line("min_scale"))
        if not 0 < scale <= 1:
            self.fail(line("min_scale"), f"min_scale = {scale:g}: it is a share of the area, above 0 and up to 1")
        batch = self.whole(table["batch"], "batch", line("batch"), 1, 2**16)
        return Phase(int(first), int(end), size, batch, copies, scale, rect_val)

    def ramp(self, index: int, table: Table) -> Ramp:
        line = self.known(table, "ramp", index, _RAMP_KEYS, {"epochs", "lr"})
        first, end = self.span(table, "ramp", index)
        start, stop = self.pair(table["lr"], "lr", line("lr"))
        if start < 0 or stop < 0 or max(start, stop) > 1000:
            self.fail(line("lr"), f"lr = [{start:g}, {stop:g}]: a learning rate lies between 0 and 1000")
        power = self.number(table.get("power", Ramp.power), "power", line("power"))
        if not 0 < power <= 10:
            self.fail(line("power"), f"power = {power:g}: it lies above 0 and up to 10")
        return Ramp(float(first), float(end), (float(start), float(stop)), float(power))

    def joined(self, kind: str, spans: Sequence[tuple[float, float]]) -> None:
        """Each begins where the one before it ends, the first at 0."""
        before: float = 0
        for index, (first, end) in enumerate(spans):
            line = self.line("epochs", kind, index)
            if first > before:
                self.fail(line, f"a gap: no {kind} has the epochs from {before:g} to {first:g}")
            if first < before:
                self.fail(line, f"an overlap: the {kind} before has the epochs to {before:g}, this one from {first:g}")
            before = end

    def known(self, table: Table, kind: str, index: int, keys: set[str], needed: set[str]) -> Callable[[str], int]:
        """What tells the line of a key of this table, once its keys are known to be the right ones."""
        for key in table:
            if key not in keys:
                self.fail(self.line(key, kind, index), f"{key}: a {kind} has {', '.join(sorted(keys))}")
        for key in sorted(needed - set(table)):
            self.fail(self.line("", kind, index), f"this {kind} has no {key}")
        return lambda key: self.line(key, kind, index)

    def span(self, table: Table, kind: str, index: int) -> tuple[float, float]:
        line = self.line("epochs", kind, index)
        first, end = self.pair(table["epochs"], "epochs", line)
        if not 0 <= first < end <= 10_000:
            self.fail(line, f"epochs = [{first:g}, {end:g}]: write the first epoch, from 0, and the one after the last")
        return first, end

    def pair(self, value: object, key: str, line: int) -> tuple[float, float]:
        if not isinstance(value, list) or len(value) != 2:
            self.fail(line, f"{key} is two numbers, as in {key} = [0, 7]")
        return self.number(value[0], key, line), self.number(value[1], key, line)

    def number(self, value: object, key: str, line: int) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
            self.fail(line, f"{key}: {_short(value)} is not a number")
        if abs(value) > LARGEST:
            self.fail(line, f"{key}: {_short(value)} is larger than {LARGEST:,}")
        return value

    def whole(self, value: object, key: str, line: int, least: int, most: int) -> int:
        if value is None:
            self.fail(line, f"{key} is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fail(line, f"{key} = {_short(value)}: it is a whole number from {least} to {most}")
        return value

    def headers(self, kind: str) -> list[int]:
        """Lines, from 0, on which a table of this kind begins."""
        return [n for n, line in enumerate(self.lines) if re.match(rf"\s*\[\[\s*{kind}\s*\]\]", line)]

    def line(self, key: str, kind: str = "", index: int = 0) -> int:
        """Line, from 1, of a key at the top or in the table number `index` of a kind; else where it would be."""
        headers = self.headers(kind) if kind else []
        start = headers[index] if index < len(headers) else 0
        for number in range(start, len(self.lines)):
            line = self.lines[number]
            if number > start and kind and line.lstrip().startswith("["):
                break
            if key and re.match(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=.\]]""", line):
                return number + 1
        return start + 1

    def fail(self, line: int, what: str) -> NoReturn:
        raise UserError(f"{self.name}, line {line}: {what}")


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits, or lists in lists, than Python writes
        return "this"
    return text if len(text) <= 40 else f"{text[:37]}..."
