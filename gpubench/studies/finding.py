"""What a study found: how many times better one thing is than another, how sure that is, and on what it rests."""

from collections.abc import Sequence
from dataclasses import dataclass

ASKED = ("card", "precision", "other", "ladder", "trick", "scaling", "batch")
"""Kinds of question, the one that is asked most first."""
DECIDED = frozenset({"faster", "slower", "same"})


@dataclass(frozen=True)
class Part:
    """One model of a finding."""

    model: str
    subject: float
    """Seconds, or whatever is compared, as a reader expects it."""
    baseline: float
    value: float


@dataclass(frozen=True)
class Finding:
    """One answer. Above 1 the subject is better, whatever is compared."""

    kind: str
    """One of ASKED."""
    suite: str
    subject: str
    baseline: str
    where: str
    """What both sides have in common and the names do not say: `in fp32`, `on an H100`."""
    value: float
    interval: tuple[float, float] | None
    """95%."""
    verdict: str
    """`faster`, `slower`, `same`, `unsure`, or why there is none: `one run`."""
    models: tuple[str, ...]
    trials: int
    """Of a side, the fewest."""
    settings: str = ""
    """What sets it apart from another finding that would read alike."""
    parts: tuple[Part, ...] = ()
    """Its models, where it compares them one by one."""
    of_seconds: bool = True
    figure: str = ""
    """What is shown instead of the value, where that is no gain."""
    best: tuple[str, str] = ("faster", "slower")
    """The words for better and worse."""

    @property
    def decided(self) -> bool:
        """Whether it has a verdict."""
        return self.verdict in DECIDED

    @property
    def what(self) -> str:
        """Subject over baseline."""
        return f"{self.subject} / {self.baseline}"

    @property
    def on(self) -> str:
        """Which models, in words."""
        return self.models[0] if len(self.models) == 1 else f"{len(self.models)} models"


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """What is asked most first; then what is decided; then pairs by their largest effect, and a pair's own together."""
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


Pair = tuple[str, str, str, str]


def _pair(each: Finding) -> Pair:
    return each.kind, each.suite, each.subject, each.baseline
