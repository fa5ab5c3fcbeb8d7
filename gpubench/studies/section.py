"""What a study hands to the faces: findings, typed tables, described charts. Nothing here draws, prints or judges."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

ASKED = ("card", "precision", "other", "ladder", "ablation", "scaling", "epochs", "published", "batch", "stages",
         "roofline")  # fmt: skip
"""Kinds of finding, the one that is asked for most first."""
DECIDED = frozenset(
    {
        *("faster", "slower", "same", "non-inferior", "inferior", "sooner", "later", "thriftier", "hungrier"),
        *("cheaper", "dearer", "smaller", "larger", "better", "worse"),
    }
)
"""Verdicts that say something, in the words of every metric."""
BOUND = "bound by "
"""How the subject of a finding begins that says what holds cases back."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval, of as many percent as its column's `level` says."""

    value: float
    low: float | None = None
    high: float | None = None


Value = str | int | float | Estimate | tuple[float, ...] | None
"""What a line of a table holds: a text, a figure, several of them, or nothing."""


@dataclass(frozen=True)
class Column:
    """A column of a table: what it holds, and how it is to be read."""

    name: str
    unit: str = ""
    """Of a figure: `s`, `samples/s`, `share` (0.94, shown as 94%), `ratio`, `bytes`, `count` ...; empty for texts."""
    better: Literal["", "lower", "higher"] = ""
    note: bool = False
    """A text that may be long, which a narrow face puts below the table."""
    places: int | None = None
    """Decimals; without, as many digits as mean something."""
    level: int = 95


@dataclass(frozen=True)
class Table:
    """Typed lines, each as long as `columns`."""

    name: str
    """What the lines are, in a word or two: `cases`, `speedups`."""
    columns: tuple[Column, ...]
    lines: tuple[tuple[Value, ...], ...]

    def to_frame(self) -> "pd.DataFrame":
        """A column for each column; of an estimate three: the value, `... low` and `... high`."""
        import pandas as pd

        return pd.DataFrame(list(flat(self)), columns=flat_names(self))


def flat_names(table: Table) -> list[str]:
    """Names of the columns once estimates are taken apart."""
    found = []
    for at, column in enumerate(table.columns):
        split = any(isinstance(line[at], Estimate) for line in table.lines)
        found += [column.name, f"{column.name} low", f"{column.name} high"] if split else [column.name]
    return found


def flat(table: Table) -> list[list[str | int | float | None]]:
    """The lines with estimates taken apart, under `flat_names`."""
    split = [any(isinstance(line[at], Estimate) for line in table.lines) for at in range(len(table.columns))]
    found = []
    for line in table.lines:
        cells: list[str | int | float | None] = []
        for value, apart in zip(line, split, strict=True):
            if isinstance(value, Estimate):
                cells += [value.value, value.low, value.high]
            else:
                plain = ", ".join(map(repr, value)) if isinstance(value, tuple) else value
                cells += [plain, None, None] if apart else [plain]
        found.append(cells)
    return found


@dataclass(frozen=True)
class Bar:
    """One bar, or one dot with its whiskers."""

    name: str
    """What it is inside its group: a card, a precision. Bars of one name have one colour."""
    value: float | None
    """None where there is no figure; `text` then says why."""
    interval: tuple[float, float] | None = None
    text: str = ""
    """What stands at its end; the value where it is empty."""
    note: str = ""
    """Small, after the text: a batch, `one run`, what speaks against it."""


@dataclass(frozen=True)
class BarGroup:
    """Bars that stand together, most often those of a model."""

    name: str
    bars: tuple[Bar, ...]
    text: str = ""
    """At the right edge: the ratio of a pair."""
    strong: bool = False
    """Whether it sums up the others, as a mean does."""
    worse: bool = False
    """Whether the `winner` of the chart is the slower one here, and has the colour of what is slower."""


@dataclass(frozen=True)
class Bars:
    """A bar chart, or with `reference` a chart of ratios: dots with whiskers on a line at it."""

    name: str
    """Stem of its file, unique in its answer."""
    title: str
    """What it shows, as a sentence without a full stop."""
    subtitle: str
    """What the axis measures, on what, and which way is better; of `s` it says `Seconds`, for which a face that draws
    in another unit says that one."""
    groups: tuple[BarGroup, ...]
    unit: str = ""
    """Of the axis, as in `Column`."""
    winner: str = ""
    """Name of the bars in colour, where the others are grey."""
    reference: float | None = None
    marks: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Lines beside the bars, by what they are: a value by group."""
    foot: str = ""
    """On what it rests; `gpubench` is added by who draws it."""
    cases: frozenset[int] = frozenset()
    """The cases whose rows it carries."""


@dataclass(frozen=True)
class Point:
    """A point, with what stands beside it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Line:
    """Points of one name, joined in order unless `style` is `points`."""

    name: str
    points: tuple[Point, ...]
    style: Literal["solid", "dashed", "dotted", "points"] = "solid"
    of: str = ""
    """The line whose colour it has."""


@dataclass(frozen=True)
class Lines:
    """A chart with two number axes."""

    name: str
    title: str
    subtitle: str
    lines: tuple[Line, ...]
    x: str
    y: str
    log_x: int = 0
    """Base of the axis, 0 where it is linear."""
    log_y: int = 0
    reference: float | None = None
    """A horizontal line."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Of the x axis, where its numbers are names."""
    foot: str = ""
    cases: frozenset[int] = frozenset()


Chart = Bars | Lines


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
    subject_marks: str = ""
    baseline_marks: str = ""
    """What speaks against runs of a side."""


@dataclass(frozen=True)
class Finding:
    """One answer. Above 1 the subject is better, whatever is compared."""

    kind: str
    """One of ASKED."""
    suite: str
    subject: str
    value: float
    said: str = ""
    """The answer as a sentence, without a full stop and without what it rests on."""
    baseline: str = ""
    interval: tuple[float, float] | None = None
    """95%."""
    verdict: str = ""
    """`faster`, `slower`, `same`, `unsure`, or why there is none: `one run`."""
    sure: tuple[int, str] | None = None
    """Of how many of its models a verdict holds, where of the others nobody is sure."""
    models: tuple[str, ...] = ("",)
    trials: tuple[int, int] = (1, 0)
    """Of the subject and of the baseline, the fewest of a model; 0 where there is no baseline."""
    precision: str = ""
    """In which both ran; empty where that is what is compared."""
    place: str = ""
    """On which card; empty where that is what is compared."""
    origin: str = ""
    """Where it comes from, in a few words: the precision, the suite, the models."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else both sides have in common, by name, already in words."""
    settings: tuple[str, ...] = ()
    """Those facts that set it apart from a finding that would read alike."""
    caveats: tuple[str, ...] = ()
    """How its rows were made, and in what its sides differ beside what is compared."""
    doubts: tuple[str, ...] = ()
    """What speaks against its figure: marked runs, models that differ widely, a full run that says another."""
    projected: bool = False
    """Whether its figures are projected from a sample."""
    parts: tuple[Part, ...] = ()
    """Its models, where it compares them one by one."""
    charts: tuple[Chart, ...] = ()
    """What is shared of it: the figures of both sides, and the ratios."""
    cases: frozenset[int] = frozenset()
    """The cases it was made of."""
    source: str = ""
    """Who published its figures."""
    unit: str = ""
    """What is compared, where it is no speed."""
    figure: str = ""
    """What is shown instead of the value, where that is no gain."""
    basis: str = ""
    """On what it rests and what it is worth, in words; `said` and this are the whole sentence."""

    @property
    def sentence(self) -> str:
        """The answer and what it rests on, as one sentence."""
        return f"{self.said} ({self.basis})." if self.basis else f"{self.said}."

    @property
    def says_why(self) -> bool:
        """Whether it explains a figure and compares nothing."""
        return self.kind == "roofline"

    @property
    def names_bound(self) -> bool:
        """Whether it says what holds its cases back."""
        return self.says_why and self.subject.startswith(BOUND)

    @property
    def decided(self) -> bool:
        """Whether it has a verdict."""
        return self.verdict in DECIDED

    @property
    def what(self) -> str:
        """Subject over baseline."""
        return f"{self.subject} / {self.baseline}" if self.baseline else self.subject

    @property
    def where(self) -> str:
        """In which precision, on which card."""
        parts = ((self.precision, "in"), (self.place, "on"))
        return " ".join(f"{word} {name}" for name, word in parts if name)

    @property
    def on(self) -> str:
        """Which models, in words."""
        return self.models[0] if len(self.models) == 1 else f"{len(self.models)} models"


@dataclass(frozen=True)
class Section:
    """One study of like rows: what it found, and all that stands behind it."""

    study: str
    suite: str
    title: str
    """What its rows have in common, in words; what all of a suite's rows have is not said."""
    findings: tuple[Finding, ...] = ()
    """The one that is asked for most first; none where nothing is compared."""
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    recipe: str = ""
    """Every parameter that its rows share, as they have it."""
    cases: frozenset[int] = frozenset()
    """Numbers of the cases behind it, by which its rows are found again."""


@dataclass(frozen=True, repr=False)
class Answer:
    """All that some rows say to a question. Every face shows this and nothing else."""

    headline: str
    """The first finding as a sentence; where nothing can be compared, why."""
    findings: tuple[Finding, ...]
    """Of all sections, the one that is asked for most first."""
    sections: tuple[Section, ...]
    gain: str = "speedup"
    """What the value of a finding is called."""
    metric: str = "seconds"
    unit: str = "s"
    """What was compared, as `--metric` calls it, and its unit."""
    rule: str = ""
    """What a verdict takes, in a sentence or two."""
    files: int = 0
    rows: int = 0
    about: int = 0
    """Those of the rows that this is about."""
    failed: int = 0
    """Rows without a result that should have one."""
    stopped: int = 0
    """Those of them that were to run when the run was stopped."""
    missed: int = 0
    """Rows left out of the pairs because their run missed its goal."""
    left_out: tuple[str, ...] = ()
    """What belongs to no section."""
    problems: tuple[str, ...] = ()
    """What could not be read."""
    table: Callable[[frozenset[int] | None], bytes] = lambda cases: b""
    """The CSV of the rows behind some cases, or behind all."""
    count: Callable[[frozenset[int]], int] = len
    """How many rows are behind some cases."""

    def __repr__(self) -> str:
        """The headline, and how much more there is."""
        return f"{self.headline} [{len(self.compared)} findings, {self.rows} rows]"

    @property
    def compared(self) -> list[Finding]:
        """The findings that compare; all of them where none does."""
        return [finding for finding in self.findings if not finding.says_why] or list(self.findings)

    def to_frame(self) -> "pd.DataFrame":
        """A line for each finding, the one that is asked for most first."""
        import pandas as pd

        names = ("kind", "suite", "subject", "baseline", "precision", "place", "value", "verdict", "sentence")
        lines = [
            [*(getattr(finding, name) for name in names), *(finding.interval or (None, None))]
            for finding in self.findings
        ]
        return pd.DataFrame(lines, columns=[*names, "low", "high"])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        table = self.to_frame()[["value", "low", "high", "verdict", "sentence"]]
        return f"<p>{escape(self.headline)}</p>{table.to_html(index=False, na_rep='', float_format='{:.3g}'.format)}"


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """What is asked for most first; of that what is decided, not doubted, with an interval, one's own, then the best.

    The findings of a pair stay together, where the one that comes first puts them.
    """

    def worth(finding: Finding) -> tuple[object, ...]:
        return not finding.decided, bool(finding.doubts), not finding.interval, bool(finding.source), -finding.value

    first: dict[tuple[str, ...], tuple[object, ...]] = {}
    for finding in sorted(findings, key=worth):
        first.setdefault(_pair(finding), worth(finding))

    def place(finding: Finding) -> tuple[object, ...]:
        return ASKED.index(finding.kind), first[_pair(finding)], _pair(finding), worth(finding)

    return sorted(findings, key=place)


def _pair(finding: Finding) -> tuple[str, ...]:
    return (finding.kind,) if finding.says_why else (finding.kind, finding.suite, finding.subject, finding.baseline)
