"""Schedules of a training with growing images: reads and checks a phases file, returns the settings of each epoch.

A schedule has phases (image size, batch, data) and ramps (learning rate). It is TOML, or one line with the same
content, and is never executed. Phases come from fast.ai's and DIUx's ImageNet training (cybertronai/imagenet18), which
had them in Python code.
"""

import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gpubench.errors import UserError

TITAN_RTX = """\
lr_batch=4096;
phase:epochs=[0,13],size=128,batch=512,copies=160;
phase:epochs=[13,25],size=224,batch=224,copies=320,min_scale=0.087;
phase:epochs=[25,28],size=288,batch=128,min_scale=0.5,rect_val=true;
ramp:epochs=[0,7],lr=[1,2];
ramp:epochs=[7,13],lr=[2,0.25];
ramp:epochs=[13,22],lr=[1,0.1];
ramp:epochs=[22,25],lr=[0.1,0.01];
ramp:epochs=[25,28],lr=[0.01,0.001]"""
"""For one machine with 8 cards, from cybertronai/imagenet18 (train.py) and lambdal/imagenet18 (for 8 Titan RTX)."""

TINY = """\
lr_batch=128;
phase:epochs=[0,3],size=48,batch=16,copies=64;
phase:epochs=[3,5],size=64,batch=12,copies=96,min_scale=0.087;
phase:epochs=[5,6],size=96,batch=8,min_scale=0.5,rect_val=true;
ramp:epochs=[0,2],lr=[0.2,0.4];
ramp:epochs=[2,5],lr=[0.4,0.04];
ramp:epochs=[5,6],lr=[0.04,0.004]"""
"""A small version of TITAN_RTX, to try the suite `imagenet` on a CPU with a few hundred images."""

FOUR_MINUTES = """\
lr_batch=65536;
phase:epochs=[0,90],size=224,batch=32;
ramp:epochs=[0,5],lr=[0,20];
ramp:epochs=[5,90],lr=[20,0],power=2"""
"""The schedule of "Training ImageNet in Four Minutes" (Jia and others 2018, arXiv 1807.11205).

90 epochs in steps of 64K images, 32 for each of 2,048 cards. The learning rate warms up (Goyal and others 2017, arXiv
1706.02677), then falls by a polynomial of power 2 (You and others 2017, arXiv 1708.03888). The paper does not state its
learning rates: those here are for LARS, and should be tuned (`--set lr`).
"""

BUILT_IN: Mapping[str, str] = {"titan-rtx": TITAN_RTX, "tiny": TINY, "four-minutes": FOUR_MINUTES}
"""The built-in schedules by name. Rows store them in one line; the line ends here are for readers."""

MOST_BYTES = 65536
"""Largest size of a phases file."""
MOST_PIXELS = 2048
MOST_EPOCHS = 10_000


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
    """Shorter side of the resized copies that training reads, in pixels; 0: it reads the original images."""
    min_scale: float = 0.08
    """Smallest share of an image's area in a random crop."""
    rect_val: bool = False
    """Whether to validate on rectangles with each image's aspect ratio instead of squares."""

    def __post_init__(self) -> None:
        if 0 < self.copies < self.size:
            raise ValueError(f"copies = {self.copies}: must be 0, or at least size = {self.size}")


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
    """`Ramp.lr` is for steps of this many images in all processes together; other steps scale it in proportion."""
    first_batch: int
    """Images in a step of one process in the first phase; `batch` scales all phases if a run chooses another number."""

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

        Ramps are scaled with the phases. Phases and ramps that become empty are removed; `first_batch` is kept.
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
    """Return the one-line schedule for rows; `text` (`--set phases=`) is a built-in name, a TOML file or such a line.

    Raises UserError that names the faulty phase or ramp.
    """
    if text in BUILT_IN:
        return line_of(parse(_unfolded(BUILT_IN[text]), text))
    if text.startswith("lr_batch="):
        return line_of(parse(_unfolded(text), "phases"))
    path = Path(text)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{text}: not a file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UserError(f"{text}: larger than {MOST_BYTES} bytes, the limit for a phases file")
        return line_of(parse(content.decode("utf-8"), text))
    except UnicodeDecodeError:
        raise UserError(f"{text}: not UTF-8 text") from None
    except (OSError, ValueError) as error:
        names = ", ".join(BUILT_IN)
        why = getattr(error, "strerror", None) or error
        raise UserError(
            f"phases={text}: cannot be read ({why}); use {names}, or a TOML file (docs/imagenet.md)"
        ) from None


def schedule_of(line: str, epochs: int = 0) -> Schedule:
    """Return the schedule of a row's line, scaled to `epochs` epochs (0: unchanged)."""
    return parse(_unfolded(line), "phases").stretched(epochs)


def line_of(schedule: Schedule) -> str:
    """Return the schedule in one line: `lr_batch=4096;phase:epochs=[0,13],size=128,...;ramp:epochs=[0,7],lr=[1,2]`."""
    parts = [f"lr_batch={schedule.lr_batch}"]
    for phase in schedule.phases:
        text = f"phase:epochs=[{phase.first},{phase.end}],size={phase.size},batch={phase.batch}"
        text += f",copies={phase.copies}" if phase.copies else ""
        text += f",min_scale={phase.min_scale:.12g}" if phase.min_scale != Phase.min_scale else ""
        parts.append(text + (",rect_val=true" if phase.rect_val else ""))
    for ramp in schedule.ramps:
        text = f"ramp:epochs=[{ramp.first:.12g},{ramp.end:.12g}],lr=[{ramp.lr[0]:.12g},{ramp.lr[1]:.12g}]"
        parts.append(text + (f",power={ramp.power:.12g}" if ramp.power != Ramp.power else ""))
    return ";".join(parts)


def _unfolded(line: str) -> str:
    """Return the line as TOML with one key per line."""
    lines = []
    for part in line.replace("\n", "").split(";"):
        name, colon, rest = part.partition(":")
        if colon:
            lines.append(f"[[{name}]]")
        # A comma inside brackets separates numbers, not keys.
        lines += re.split(r",(?![^\[]*\])", rest if colon else part)
    return "\n".join(lines)


def parse(text: str, name: str) -> Schedule:
    """Return the schedule in a TOML text; raises UserError `NAME: phase 2: what is wrong`."""
    try:
        data = tomllib.loads(text)
        phases = _spans(data.pop("phase", []), "phase", Phase)
        ramps = _spans(data.pop("ramp", []), "ramp", Ramp)
        lr_batch = _values(data, {"lr_batch": Rule(int, 1, 2**20)})["lr_batch"]
        if ramps[-1].end != phases[-1].end:
            raise ValueError(f"the ramps end at epoch {ramps[-1].end:g} and the phases at {phases[-1].end}")
    except RecursionError:
        raise UserError(f"{name}: nested too deep") from None
    except ValueError as error:  # TOMLDecodeError too, with its line
        raise UserError(f"{name}: {error}") from None
    return Schedule(phases, ramps, lr_batch, phases[0].batch)


Span = TypeVar("Span", Phase, Ramp)


def _spans(tables: object, kind: str, make: Callable[..., Span]) -> tuple[Span, ...]:
    """Return a phase or ramp for each table `[[kind]]`; raises ValueError for a wrong value, or gaps in the epochs."""
    if not isinstance(tables, list) or not tables:
        raise ValueError(f"no [[{kind}]]")
    spans: list[Span] = []
    for number, table in enumerate(tables, start=1):
        try:
            values = _values(table, RULES[kind])
            (first, end), before = values.pop("epochs"), spans[-1].end if spans else 0
            if first != before or end <= first:
                raise ValueError(f"epochs = [{first:g}, {end:g}]: must begin at {before:g} and end later")
            spans.append(make(first, end, **values))
        except ValueError as error:
            raise ValueError(f"{kind} {number}: {error}") from None
    return tuple(spans)


def _values(table: object, rules: Mapping[str, "Rule"]) -> dict[str, Any]:
    """Return the values of a table by key; raises ValueError for a missing or unknown key, or a wrong value."""
    if not isinstance(table, dict):
        raise ValueError("write it as a table")
    if missing := [key for key, rule in rules.items() if not rule.optional and key not in table]:
        raise ValueError(f"no {missing[0]}")
    if unknown := sorted(table.keys() - rules.keys()):
        raise ValueError(f"{unknown[0]}: unknown key")
    return {key: rules[key].read(key, value) for key, value in table.items()}


KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Rule:
    """The allowed values of a key: a number of type `kind` from `least` to `most`, a pair of them, or true or false."""

    kind: type
    least: float = 0
    most: float = 1
    pair: bool = False
    optional: bool = False

    def read(self, key: str, value: object) -> Any:
        """Return the value, or the pair of values; raises ValueError if it is not allowed."""
        numbers = value if self.pair and isinstance(value, list) else [value]
        if len(numbers) != 1 + self.pair or not all(map(self._allows, numbers)):
            kind = f"{'two values, each ' * self.pair}{KINDS[self.kind]}"
            limits = "" if self.kind is bool else f" from {self.least:g} to {self.most:g}"
            raise ValueError(f"{key} = {value!r:.40}: must be {kind}{limits}")
        converted = tuple(map(self.kind, numbers))
        return converted if self.pair else converted[0]

    def _allows(self, value: Any) -> bool:
        """Return whether a TOML value is allowed. A float may be written as a whole number; NaN is refused."""
        kinds = {bool} if self.kind is bool else {int, self.kind}
        return type(value) in kinds and self.least <= value <= self.most


RULES: Mapping[str, Mapping[str, Rule]] = {
    "phase": {
        "epochs": Rule(int, 0, MOST_EPOCHS, pair=True),
        "size": Rule(int, 16, MOST_PIXELS),
        "batch": Rule(int, 1, 2**16),
        "copies": Rule(int, 0, 2 * MOST_PIXELS, optional=True),
        "min_scale": Rule(float, 1e-6, 1, optional=True),
        "rect_val": Rule(bool, optional=True),
    },
    "ramp": {
        "epochs": Rule(float, 0, MOST_EPOCHS, pair=True),
        "lr": Rule(float, 0, 1000, pair=True),
        "power": Rule(float, 1e-6, 10, optional=True),
    },
}
"""The keys of a phase and of a ramp."""
