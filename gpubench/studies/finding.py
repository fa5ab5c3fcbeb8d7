"""What a study found: how many times better one thing is than another, how sure that is, and on what it rests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpubench.analysis.cells import Cell

ASKED = ("card", "precision", "other", "ladder", "trick", "scaling", "batch")
"""Kinds of question, the one that is asked most first."""
DECIDED = frozenset({"faster", "slower", "same"})
Pair = tuple[str, str, str, str]


@dataclass(frozen=True)
class Part:
    """One model of a finding."""

    model: str
    subject: float
    """Seconds, or whatever is compared, as a reader expects it."""
    baseline: float
    value: float
    interval: tuple[float, float] | None = None
    subject_batch: float = math.nan
    baseline_batch: float = math.nan


@dataclass(frozen=True)
class Finding:
    """One answer. Above 1 the subject is better, whatever is compared."""

    kind: str
    """One of ASKED."""
    suite: str
    subject: str
    baseline: str
    value: float
    interval: tuple[float, float] | None
    """95%."""
    verdict: str
    """`faster`, `slower`, `same`, `unsure`, or why there is none: `one run`."""
    models: tuple[str, ...]
    trials: tuple[int, int]
    """Of the subject and of the baseline, the fewest of a model."""
    precision: str = ""
    """In which both ran; empty where that is what is compared."""
    place: str = ""
    """On which card; empty where that is what is compared."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else both sides have in common, by name, already in words."""
    settings: tuple[str, ...] = ()
    """Those facts that set it apart from a finding that would read alike."""
    caveats: tuple[str, ...] = ()
    """What speaks against it, and in what its sides differ beside what is compared."""
    parts: tuple[Part, ...] = ()
    """Its models, where it compares them one by one."""
    cells: tuple[Cell, ...] = ()
    """What it was made of."""
    source: str = ""
    """Who published its figures."""
    of_seconds: bool = True
    unit: str = ""
    """What is compared, where it is no speed."""
    figure: str = ""
    """What is shown instead of the value, where that is no gain."""
    best: str = "faster"
    """The word for better."""

    @property
    def decided(self) -> bool:
        """Whether it has a verdict."""
        return self.verdict in DECIDED

    @property
    def what(self) -> str:
        """Subject over baseline."""
        return f"{self.subject} / {self.baseline}"

    @property
    def where(self) -> str:
        """In which precision, on which card."""
        parts = ((self.precision, "in"), (self.place, "on"))
        return " ".join(f"{word} {name}" for name, word in parts if name)

    @property
    def on(self) -> str:
        """Which models, in words."""
        return self.models[0] if len(self.models) == 1 else f"{len(self.models)} models"


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """What is asked most first; then what is decided; then pairs by their best, and a pair's own together."""
    best: dict[Pair, float] = {}
    sure: dict[Pair, bool] = {}
    for each in findings:
        pair = _pair(each)
        best[pair] = max(best.get(pair, 0.0), each.value)
        sure[pair] = sure.get(pair, False) or each.decided

    def place(each: Finding) -> tuple[object, ...]:
        pair = _pair(each)
        return ASKED.index(each.kind), not sure[pair], -best[pair], pair, not each.decided, -each.value

    return sorted(findings, key=place)


def _pair(each: Finding) -> Pair:
    return each.kind, each.suite, each.subject, each.baseline
