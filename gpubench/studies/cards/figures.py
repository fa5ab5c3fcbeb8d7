"""Reads published training speeds (public_speeds.csv) and data sheets (data_sheets.csv); shortens names of cards.

The other modules of this folder, the commands and the site call it.
"""

import csv
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

CLASSES = {"half": "half precision", "fp32": "FP32", "strict": "FP32 without TF32"}
"""Classes of precisions, with their names in sentences. Speeds are compared within one class."""
FAMILIES = ("convolution", "matmul")
"""Kinds of models: convolutional networks; transformers and recurrent networks."""
TF32_NOTE = "FP32 includes TF32 where the card has it (Ampere and newer)."
"""The meaning of the class `fp32`."""
CLASS_OF = {
    "amp-fp16": "half", "bf16": "half", "fp16": "half", "fp16-master": "half", "fp32": "fp32", "tf32": "fp32",
    "strict-fp32": "strict",
}  # fmt: skip
"""The class of each precision; other precisions are left out."""
MAKER_WORDS = frozenset({"nvidia", "geforce", "tesla", "amd", "instinct"})
"""Words that `short_name` drops at the start of a name."""
OMITTED_WORDS = frozenset({"Blackwell", "Edition", "Generation", "with", "Design", "GPU", "VF"})
"""Words that `short_name` drops anywhere. VF (MI300X VF) means a whole card in a virtual machine."""
SECONDS = frozenset({"seconds"})
"""Units in which a smaller figure is faster."""


@dataclass(frozen=True)
class Figure:
    """One published speed."""

    line: int
    """The line in public_speeds.csv."""
    card: str
    """The card's short name."""
    source: str
    """The repository."""
    commit: str
    file: str
    year: int
    """The year of publication."""
    workload: str
    framework: str
    software: str
    """The software version, where a source has several for one workload."""
    precision: str
    batch: str
    gpus: int
    figure: float
    unit: str
    family: str
    """`convolution` or `matmul`: the main operation of the model."""
    note: str

    @property
    def speed(self) -> float:
        """Return the speed: the figure, or 1 / seconds."""
        return 1 / self.figure if self.unit in SECONDS else self.figure

    @property
    def where(self) -> str:
        """Return the repository, its commit, and the file in it."""
        return f"{self.source}@{self.commit} {self.file}"


@dataclass(frozen=True)
class FigureGroup:
    """The figures of one source that agree in card, class, workload, framework and software."""

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
        """Return what groups must share to be comparable."""
        return self.source, self.workload, self.framework, self.kind

    @property
    def figure(self) -> float:
        """Return the median figure. For an even number of figures it is the geometric mean of the middle two."""
        figures = [figure.figure for figure in self.figures]
        lower, upper = statistics.median_low(figures), statistics.median_high(figures)
        return lower if lower == upper else math.sqrt(lower * upper)

    @property
    def speed(self) -> float:
        """Return the speed of the median figure."""
        return 1 / self.figure if self.figures[0].unit in SECONDS else self.figure


@dataclass(frozen=True)
class Published:
    """All figures: the used ones in groups, the others with the reason why they are not used."""

    figures: tuple[Figure, ...]
    groups: tuple[FigureGroup, ...]
    left_out: tuple[tuple[Figure, str], ...]

    @property
    def used(self) -> list[Figure]:
        """Return the figures in the groups."""
        return [figure for group in self.groups for figure in group.figures]


def short_name(card: str) -> str:
    """Return the usual short name: `RTX 3090`, `V100-SXM2-16GB`, `MI100`, `RTX PRO 6000 Server`."""
    words = card.split()
    while len(words) > 1 and words[0].lower() in MAKER_WORDS:
        words = words[1:]
    return " ".join(word for word in words if word not in OMITTED_WORDS)


def read_figures() -> tuple[Figure, ...]:
    """Return all lines of public_speeds.csv."""
    figures = []
    for line, row in enumerate(_rows("public_speeds.csv"), start=2):
        numbers = {"line": line, "year": int(row["year"]), "gpus": int(row["gpus"]), "figure": float(row["figure"])}
        fields: dict[str, Any] = {**row, **numbers, "card": short_name(row["card"])}  # the columns are Figure's fields
        figures.append(Figure(**fields))
    return tuple(figures)


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = (files("gpubench.studies.cards") / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


@cache
def published() -> Published:
    """Return all figures; a figure is used if `reason_against` is empty and another card has its recipe."""
    figures = read_figures()
    reasons = {figure.line: reason_against(figure) for figure in figures}
    members: dict[tuple[str, str, str, str, str, str, str], list[Figure]] = defaultdict(list)
    for figure in figures:
        if not reasons[figure.line]:
            recipe = (figure.workload, figure.framework, figure.software, figure.family)
            members[figure.card, figure.source, CLASS_OF[figure.precision], *recipe].append(figure)
    groups = [FigureGroup(*facts, tuple(alike)) for facts, alike in members.items()]
    cards = defaultdict(set)
    for group in groups:
        cards[group.recipe].add(group.card)
    alone = [group for group in groups if len(cards[group.recipe]) == 1]
    reasons |= {figure.line: "no other card has the same recipe" for group in alone for figure in group.figures}
    left_out = tuple((figure, reasons[figure.line]) for figure in figures if reasons[figure.line])
    return Published(figures, tuple(group for group in groups if len(cards[group.recipe]) > 1), left_out)


def reason_against(figure: Figure) -> str:
    """Return why a figure is not used, or "". Rules depend on what the source documents, never on the speed."""
    if figure.gpus > 1:
        return "several GPUs at once: includes scaling"
    if figure.precision not in CLASS_OF:
        return f"precision {figure.precision}: not in any class"
    if figure.note.startswith("unused: "):
        return figure.note.removeprefix("unused: ").partition("; ")[0]
    return ""


def sources(published: Published) -> Iterator[tuple[str, str, list[Figure], list[tuple[Figure, str]]]]:
    """Yield each source with its commit, its used figures and its unused ones; sources with most figures first."""
    counts = Counter((figure.source, figure.commit) for figure in published.figures)
    for (source, commit), _ in counts.most_common():
        used = [figure for figure in published.used if figure.source == source]
        yield source, commit, used, [entry for entry in published.left_out if entry[0].source == source]


@dataclass(frozen=True)
class DataSheet:
    """Specifications of a card; None where unknown."""

    year: int
    """The year of announcement."""
    memory_gb: float | None
    gb_per_second: float
    """Memory bandwidth."""
    watts: float | None
    tflops: dict[str, float]
    """Dense peak TFLOP/s by class of precisions."""


@cache
def data_sheets() -> dict[str, DataSheet]:
    """Return all lines of data_sheets.csv by card."""
    return {
        row["card"]: DataSheet(
            int(row["year"]),
            float(row["memory_gb"]) if row["memory_gb"] else None,
            float(row["bandwidth_gb_per_s"]),
            float(row["watts"]) if row["watts"] else None,
            {kind: float(row[f"{kind}_tflops"]) for kind in CLASSES},
        )
        for row in _rows("data_sheets.csv")
    }
