"""Schedules of a training with growing images: reads and checks a phases file, returns the settings of each epoch.

A schedule has phases (image size, batch, data) and ramps (learning rate). It is TOML, or one line with the same
content, and is never executed. Phases come from fast.ai's and DIUx's ImageNet training (cybertronai/imagenet18), which
had them in Python code.
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
"""Largest size of a phases file."""
MOST_PIXELS = 2048
LARGEST = 10**9
"""Largest number allowed in a schedule."""


@dataclass(frozen=True)
class Phase:
    """Epochs with the same settings, from `first` to before `end`."""

    first: int
    end: int
    size: int
    """Side of a training image, in pixels."""
    batch: int
    """Images in a step of one process."""
    copies: int = 0
    """Shorter side of the resized copies that it reads, in pixels; 0: the original images."""
    min_scale: float = 0.08
    """Smallest share of an image's area in a random crop."""
    rect_val: bool = False
    """Whether to validate on rectangles with each image's aspect ratio instead of squares."""


@dataclass(frozen=True)
class Ramp:
    """The learning rate changes from `lr[0]` at epoch `first` to `lr[1]` at epoch `end`, linearly or by a power."""

    first: float
    end: float
    lr: tuple[float, float]
    power: float = 1.0
    """The difference to `lr[1]` is proportional to this power of the remaining epochs; 1: linear."""


@dataclass(frozen=True)
class Schedule:
    """Phases and ramps, both without gaps or overlaps from epoch 0 to the last."""

    phases: tuple[Phase, ...]
    ramps: tuple[Ramp, ...]
    lr_batch: int
    """Images in a step of all processes together that the learning rates are for; rates scale in proportion."""
    first_batch: int
    """Images in a step of one process in the first phase; the batches of all phases scale with it."""

    @property
    def epochs(self) -> int:
        """Number of epochs of the whole run."""
        return self.phases[-1].end

    def phase(self, epoch: int) -> Phase:
        """Return the phase of epoch number `epoch`."""
        return next(phase for phase in self.phases if epoch < phase.end)

    def lr(self, epoch: float, images: int) -> float:
        """Return the learning rate at `epoch` (which may be a fraction), for steps of `images` images."""
        ramp = next((ramp for ramp in self.ramps if epoch < ramp.end), self.ramps[-1])
        left: float = max(0.0, 1 - (epoch - ramp.first) / (ramp.end - ramp.first)) ** ramp.power
        return (ramp.lr[1] + left * (ramp.lr[0] - ramp.lr[1])) * images / self.lr_batch

    @property
    def peak(self) -> float:
        """The highest learning rate, for steps of `lr_batch` images."""
        return max(lr for ramp in self.ramps for lr in ramp.lr)

    def stretched(self, epochs: int) -> "Schedule":
        """Return the schedule scaled to `epochs` epochs (0: unchanged): phases are rounded to whole epochs.

        Ramps are scaled with the phases. Phases without an epoch are removed; batches stay in proportion.
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
        """Return the images in a step of one process in `phase`, if the first phase has `first_batch` images."""
        return max(1, phase.batch * first_batch // self.first_batch)


def read(text: str) -> str:
    """Return the one-line schedule for rows from a built-in name, a file or such a line (`--set phases=`).

    Raises UserError that names the faulty line.
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
            f"phases={text}: cannot be read ({why}); use {names}, or a TOML file (docs/imagenet.md)"
        ) from None
    if len(content) > MOST_BYTES:
        raise UserError(f"{text}: larger than {MOST_BYTES} bytes, the limit for a phases file")
    try:
        return line_of(parse(content.decode("utf-8"), text))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{text}, line {line}: not UTF-8 text") from None


def schedule_of(line: str, epochs: int = 0) -> Schedule:
    """Return the schedule of a row's line, scaled to `epochs` epochs (0: unchanged)."""
    return parse(_unfolded(line), "phases").stretched(epochs)


def line_of(schedule: Schedule) -> str:
    """Return the schedule in one line: `lr_batch=4096;phase:epochs=[0,13],size=128,...;ramp:epochs=[0,7],lr=[1,2]`."""
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
    """Return the line as TOML with one key per line."""
    lines = []
    for part in line.split(";"):
        name, colon, rest = part.partition(":")
        if colon:
            lines.append(f"[[{name}]]")
        # A comma inside brackets separates numbers, not keys.
        lines += re.split(r",(?![^\[]*\])", rest if colon else part)
    return "\n".join(lines)


_PHASE_KEYS = {"epochs", "size", "batch", "copies", "min_scale", "rect_val"}
_RAMP_KEYS = {"epochs", "lr", "power"}


def parse(text: str, name: str) -> Schedule:
    """Return the schedule in a TOML text; raises UserError `NAME, line N: what is wrong`."""
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or int() refuses thousands of digits
        match = re.search(r"line (\d+)", str(error))
        line = match[1] if match else str(text.count("\n") + 1)  # "at end of document"
        reason = re.sub(r" \(at .*\)$", "", str(error))
        raise UserError(f"{name}, line {line}: {reason[:1].lower()}{reason[1:]}") from None
    except RecursionError:
        raise UserError(f"{name}, line 1: nested too deep") from None
    return _Reader(text, name).schedule(data)


Table = Mapping[str, object]


class _Reader:
    """Checks the data of a TOML text; errors have the line number of the key."""

    def __init__(self, text: str, name: str) -> None:
        self.lines, self.name = text.splitlines(), name

    def schedule(self, data: Table) -> Schedule:
        for key in data:
            if key not in {"lr_batch", "phase", "ramp"}:
                self.fail(self.line(key), f"{key}: there is lr_batch, [[phase]] and [[ramp]]")
        lr_batch = self.whole(data.get("lr_batch"), "lr_batch", self.line("lr_batch"), 1, 2**20)
        tables: dict[str, list[Table]] = {}
        for kind in ("phase", "ramp"):
            value = data.get(kind)
            if not isinstance(value, list) or not value or not all(isinstance(table, dict) for table in value):
                self.fail(self.line(kind), f"write each {kind} as a table [[{kind}]], at least one")
            if len(self.headers(kind)) != len(value):
                self.fail(self.line(kind), f"write each {kind} under a separate line [[{kind}]]")
            tables[kind] = value
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
        line = self.line_finder(table, "phase", index, _PHASE_KEYS, {"epochs", "size", "batch"})
        first, end = self.span(table, "phase", index)
        if not (isinstance(first, int) and isinstance(end, int)):
            self.fail(line("epochs"), f"epochs = [{first:g}, {end:g}]: a phase has whole epochs")
        rect_val = table.get("rect_val", False)
        if not isinstance(rect_val, bool):
            self.fail(line("rect_val"), "rect_val is true or false")
        size = self.whole(table["size"], "size", line("size"), 16, MOST_PIXELS)
        copies = self.whole(table.get("copies", 0), "copies", line("copies"), 0, 2 * MOST_PIXELS)
        if copies and copies < size:
            self.fail(line("copies"), f"copies = {copies}: they are smaller than size = {size}")
        scale = self.number(table.get("min_scale", Phase.min_scale), "min_scale", line("min_scale"))
        if not 0 < scale <= 1:
            self.fail(line("min_scale"), f"min_scale = {scale:g}: it is a share of the area, above 0 and at most 1")
        batch = self.whole(table["batch"], "batch", line("batch"), 1, 2**16)
        return Phase(int(first), int(end), size, batch, copies, scale, rect_val)

    def ramp(self, index: int, table: Table) -> Ramp:
        line = self.line_finder(table, "ramp", index, _RAMP_KEYS, {"epochs", "lr"})
        first, end = self.span(table, "ramp", index)
        start, stop = self.pair(table["lr"], "lr", line("lr"))
        if start < 0 or stop < 0 or max(start, stop) > 1000:
            self.fail(line("lr"), f"lr = [{start:g}, {stop:g}]: a learning rate is between 0 and 1000")
        power = self.number(table.get("power", Ramp.power), "power", line("power"))
        if not 0 < power <= 10:
            self.fail(line("power"), f"power = {power:g}: it is above 0 and at most 10")
        return Ramp(float(first), float(end), (float(start), float(stop)), float(power))

    def joined(self, kind: str, spans: Sequence[tuple[float, float]]) -> None:
        """Fail unless each span begins where the previous one ends, and the first at 0."""
        before: float = 0
        for index, (first, end) in enumerate(spans):
            line = self.line("epochs", kind, index)
            if first > before:
                self.fail(line, f"a gap: no {kind} has the epochs from {before:g} to {first:g}")
            if first < before:
                self.fail(
                    line, f"an overlap: the previous {kind} ends at epoch {before:g}, this one begins at {first:g}"
                )
            before = end

    def line_finder(
        self, table: Table, kind: str, index: int, keys: set[str], needed: set[str]
    ) -> Callable[[str], int]:
        """Fail unless the table has the right keys; return a function from key to line number."""
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
        """Return the line numbers, from 0, at which tables of this kind begin."""
        return [n for n, line in enumerate(self.lines) if re.match(rf"\s*\[\[\s*{kind}\s*\]\]", line)]

    def line(self, key: str, kind: str = "", index: int = 0) -> int:
        """Return the line number, from 1, of a key at the top or in table `index` of a kind, or of the table."""
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
    except (ValueError, RecursionError):  # too many digits or nested lists for repr
        return "this"
    return text if len(text) <= 40 else f"{text[:37]}..."
