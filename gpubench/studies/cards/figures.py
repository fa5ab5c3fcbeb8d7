"""Published training speeds: read, sorted into classes of precision, and which are left out by which rule."""

import csv
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Class:
    """What a kind of precision is called."""

    called: str
    """In a sentence."""
    title: str
    """In the title of a chart."""
    head: str
    """Of a column: as few letters as say it."""


CLASSES = {
    "half": Class("half precision", "half precision", "half"),
    "single": Class("fp32 as the card does it", "fp32", "fp32"),
    "strict": Class("fp32 without TF32", "fp32 without TF32", "strict"),
}
"""Kinds of precision: speeds are compared within one."""
CLASS_OF = {
    "amp-fp16": "half",
    "bf16": "half",
    "fp16": "half",
    "fp32": "single",
    "tf32": "single",
    "strict-fp32": "strict",
}
"""By the precision of a figure; one that is not here has no class."""
MAKERS = frozenset({"nvidia", "geforce", "tesla", "amd", "instinct"})
UNSAID = frozenset({"Blackwell", "Edition", "Generation", "with", "Design", "GPU"})
"""Words of a card's name that tables leave out."""
SECONDS = frozenset({"seconds"})
"""Units of which less is faster."""


@dataclass(frozen=True)
class Figure:
    """One published speed."""

    line: int
    """In public_speeds.csv."""
    card: str
    """Without its maker's boilerplate."""
    source: str
    """The repository."""
    commit: str
    file: str
    year: int
    """In which it was published."""
    workload: str
    framework: str
    software: str
    """The version that ran, where figures of one workload have several."""
    precision: str
    batch: str
    gpus: int
    figure: float
    unit: str
    family: str
    """`convolution` or `matmul`: of what the model mostly consists."""
    note: str

    @property
    def speed(self) -> float:
        """More is faster."""
        return 1 / self.figure if self.unit in SECONDS else self.figure

    @property
    def where(self) -> str:
        """The repository at its commit, and the file in it."""
        return f"{self.source}@{self.commit} {self.file}"


@dataclass(frozen=True)
class Cell:
    """What one source says of a card on one workload in one class: the median of its figures."""

    card: str
    source: str
    kind: str
    """One of CLASSES."""
    workload: str
    framework: str
    software: str
    family: str
    figures: tuple[Figure, ...]

    @property
    def recipe(self) -> tuple[str, ...]:
        """What cells must share so that their speeds can be compared."""
        return self.source, self.workload, self.framework, self.kind

    @property
    def figure(self) -> float:
        """The median in their unit; of an even number of figures the geometric mean of the two in the middle."""
        figures = [each.figure for each in self.figures]
        lower, upper = statistics.median_low(figures), statistics.median_high(figures)
        return lower if lower == upper else math.sqrt(lower * upper)

    @property
    def speed(self) -> float:
        """Of the median; more is faster."""
        return 1 / self.figure if self.figures[0].unit in SECONDS else self.figure

    @property
    def log_speed(self) -> float:
        """Natural logarithm of the median speed."""
        return math.log(self.speed)


@dataclass(frozen=True)
class Published:
    """All figures: those that are used, as cells, and the others with the reason."""

    figures: tuple[Figure, ...]
    cells: tuple[Cell, ...]
    left_out: tuple[tuple[Figure, str], ...]

    @property
    def used(self) -> list[Figure]:
        """The figures in the cells."""
        return [figure for cell in self.cells for figure in cell.figures]


def short_name(card: str) -> str:
    """As people call it: `RTX 3090`, `V100-SXM2-16GB`, `MI100`, `RTX PRO 6000 Server`."""
    words = card.split()
    while len(words) > 1 and words[0].lower() in MAKERS:
        words = words[1:]
    return " ".join(word for word in words if word not in UNSAID)


def read_figures() -> tuple[Figure, ...]:
    """All lines of public_speeds.csv."""
    text = (files("gpubench.studies.cards") / "public_speeds.csv").read_text(encoding="utf-8")
    return tuple(_figure(number, row) for number, row in enumerate(csv.DictReader(text.splitlines()), 2))


def _figure(line: int, row: Mapping[str, str]) -> Figure:
    """Return the figure in a line of the file, whose columns are the fields of Figure."""
    fields: dict[str, Any] = {
        **row,
        "line": line,
        "card": short_name(row["card"]),
        "year": int(row["year"]),
        "gpus": int(row["gpus"]),
        "figure": float(row["figure"]),
    }
    return Figure(**fields)


@cache
def published() -> Published:
    """The figures, sorted by `reason_against` and by whether two cards have the same recipe."""
    figures = read_figures()
    largest = _largest_batches(figures)
    reasons = {each.line: reason_against(each, largest) for each in figures}
    cells = _cells([each for each in figures if not reasons[each.line]])
    cards = defaultdict(set)
    for cell in cells:
        cards[cell.recipe].add(cell.card)
    alone = [cell for cell in cells if len(cards[cell.recipe]) == 1]
    reasons |= {each.line: "no other card has the same recipe" for cell in alone for each in cell.figures}
    left_out = tuple((each, reasons[each.line]) for each in figures if reasons[each.line])
    return Published(figures, tuple(cell for cell in cells if len(cards[cell.recipe]) > 1), left_out)


RECIPE_BY_MEMORY = frozenset({"pytorch/torchtune"})
"""Its table has one model at 18.9 GiB on one card and 37.4 GiB on another: two recipes under one name."""
CURVES = frozenset({"siasosp23/artifacts"})
"""Sources that list several batches of a card, which differ from card to card: the largest is what one would use."""


def reason_against(figure: Figure, largest: dict[tuple[str, ...], float]) -> str:
    """Why a figure is not used; empty if it is. Only what its source documents counts, never how well it fits."""
    if figure.gpus > 1:
        return "several GPUs at once: that is also how they scale"
    if figure.precision not in CLASS_OF:
        return f"precision {figure.precision}: no one class"
    if figure.source in RECIPE_BY_MEMORY:
        return "the recipe changes with the memory of the card"
    if figure.note.startswith("doubtful"):
        return figure.note
    if figure.source in CURVES and float(figure.batch) < largest[_curve(figure)]:
        return "not the largest batch of the card"
    return ""


def _curve(figure: Figure) -> tuple[str, ...]:
    return figure.card, figure.source, figure.workload, figure.precision


def _largest_batches(figures: Sequence[Figure]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for each in figures:
        if each.source in CURVES:
            found[_curve(each)] = max(float(each.batch), found.get(_curve(each), 0.0))
    return found


def _cells(figures: Sequence[Figure]) -> list[Cell]:
    members: dict[tuple[str, str, str, str, str, str, str], list[Figure]] = defaultdict(list)
    for each in figures:
        recipe = (each.workload, each.framework, each.software, each.family)
        members[each.card, each.source, CLASS_OF[each.precision], *recipe].append(each)
    return [Cell(*facts, tuple(alike)) for facts, alike in members.items()]


def sources(found: Published) -> Iterator[tuple[str, str, list[Figure], list[tuple[Figure, str]]]]:
    """Each source with its commit, the figures that are used and those that are not; the one with the most first."""
    used, against = found.used, found.left_out
    counts = Counter((each.source, each.commit) for each in found.figures)
    for (source, commit), _ in counts.most_common():
        yield (
            source,
            commit,
            [each for each in used if each.source == source],
            [(each, reason) for each, reason in against if each.source == source],
        )
