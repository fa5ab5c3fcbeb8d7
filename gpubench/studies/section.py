"""The types that studies return and `show` renders: Answer, Section, Result, Table and Bars (a chart)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASKED = ("card", "precision", "other", "ladder", "ablation", "scaling", "epochs", "published", "batch", "stages",
         "buyer", "roofline")  # fmt: skip
"""Kinds of result, in the order in which they are shown."""
DECIDED = frozenset({
    "faster", "slower", "same", "non-inferior", "inferior", "sooner", "later", "thriftier", "hungrier", "cheaper",
    "dearer", "smaller", "larger", "better", "worse", "lower", "higher",
})  # fmt: skip
"""Decided verdicts, in the words of every metric."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval. Its column has the confidence `level`, in percent."""

    value: float
    low: float | None = None
    high: float | None = None


Value = str | int | float | Estimate | tuple[float, ...] | None
"""A value in a table: a text, a figure, several figures, or None."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, unit and format."""

    name: str
    unit: str = ""
    """Unit: `s`, `samples/s`, `share` (0.94, shown as 94%), `ratio`, `bytes`, `count` ...; empty for texts."""
    better: Literal["", "lower", "higher"] = ""
    note: bool = False
    """Whether the texts may be long: narrow screens show them below the table."""
    detail: bool = False
    """Whether a terminal has no room for it."""
    places: int | None = None
    """Decimals; None: three significant digits."""
    level: int = 95


@dataclass(frozen=True)
class Table:
    """A table: each line has a value per column."""

    name: str
    """Such as `cases` or `speedups`."""
    columns: tuple[Column, ...]
    lines: tuple[tuple[Value, ...], ...]

    @classmethod
    def of(cls, name: str, lines: Sequence[Mapping[Column, Value]]) -> "Table":
        """Return the table of these lines; a line is empty in the columns that it lacks."""
        columns = tuple(dict.fromkeys(column for line in lines for column in line))
        return cls(name, columns, tuple(tuple(line.get(column) for column in columns) for line in lines))


def flat(table: Table) -> tuple[list[str], list[list[str | int | float | None]]]:
    """Return the names of the columns and the lines, with estimates split into value, low and high."""
    names: list[str] = []
    columns: list[list[str | int | float | None]] = []
    for at, column in enumerate(table.columns):
        values = [line[at] for line in table.lines]
        names.append(column.name)
        columns.append([_plain(value) for value in values])
        if any(isinstance(value, Estimate) for value in values):
            names += [f"{column.name} low", f"{column.name} high"]
            columns += [[getattr(value, end, None) for value in values] for end in ("low", "high")]
    return names, [list(line) for line in zip(*columns, strict=True)]


def _plain(value: Value) -> str | int | float | None:
    if isinstance(value, Estimate):
        return value.value
    return ", ".join(map(repr, value)) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Bar:
    """One bar, or one dot with its whiskers."""

    name: str
    """Such as a card or a precision. Bars of one name have one colour."""
    value: float | None
    """None if there is no figure; `text` is then the reason."""
    interval: tuple[float, float] | None = None
    text: str = ""
    """Text at the end of the bar; if empty, the value is shown."""
    note: str = ""
    """Small text after `text`: a batch, a verdict or marks."""


@dataclass(frozen=True)
class BarGroup:
    """Neighbouring bars, usually those of one model."""

    name: str
    bars: tuple[Bar, ...]
    text: str = ""
    """Text at the right edge: the ratio of a pair."""
    strong: bool = False
    """Whether this is a summary, such as a mean."""
    worse: bool = False
    """Whether the `winner` of the chart is slower in this group."""


@dataclass(frozen=True)
class Bars:
    """A chart of bars. With a `reference` it has dots with whiskers, for ratios, and a line at that value."""

    name: str
    """Stem of its file name, unique in the answer."""
    title: str
    """A sentence without a full stop."""
    subtitle: str
    """What the axis measures, on what, and whether lower is better. With the unit `s` it begins with `Seconds`, which
    `show` replaces if it draws minutes or hours."""
    groups: tuple[BarGroup, ...]
    unit: str = ""
    """Unit of the axis, as in `Column`."""
    winner: str = ""
    """Name of the bars in colour: others are grey. If empty, all bars are in colour."""
    reference: float | None = None
    marks: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Marks at the bars: values by name of the mark and name of the group."""
    foot: str = ""
    """Text below the chart: runs, software and source; `show` adds `gpubench`."""
    cases: frozenset[int] = frozenset()
    """Cases whose rows it shows."""


@dataclass(frozen=True)
class Part:
    """The figures of one model in a result."""

    model: str
    subject: float
    """The compared figure, such as seconds."""
    baseline: float
    value: float
    interval: tuple[float, float] | None = None
    subject_batch: float = math.nan
    baseline_batch: float = math.nan
    subject_marks: str = ""  # of the trials of a side
    baseline_marks: str = ""
    subject_interval: tuple[float, float] | None = None
    baseline_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Result:
    """The result of a comparison. A ratio above 1, or points above 0, mean that the subject is better."""

    kind: str
    """One of ASKED."""
    suite: str
    subject: str
    value: float
    said: str = ""
    """The result as a sentence, without a full stop and without its basis."""
    baseline: str = ""
    interval: tuple[float, float] | None = None
    """The 95% interval of the value."""
    is_points: bool = False
    """Whether value and interval are differences of mean accuracies in percentage points, not ratios."""
    verdict: str = ""
    """A verdict, such as `faster` or `undecided`; if there is none, the reason for that, such as `one run`."""
    sure: tuple[int, str] | None = None
    """Number of models with a decided verdict, and that verdict, if the other models are undecided."""
    models: tuple[str, ...] = ("",)
    trials: tuple[int, int] = (1, 0)
    """Fewest trials per model of the subject and of the baseline; 0 if there is no baseline."""
    precision: str = ""
    """Precision of both sides; empty if precisions are compared."""
    place: str = ""
    """Card of both sides; empty if cards are compared."""
    origin: str = ""
    """First words of the column `details`, such as precision and suite."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else both sides have in common: texts by name."""
    settings: tuple[str, ...] = ()
    """The facts in which it differs from results with the same subject, baseline, precision and card."""
    differences: tuple[str, ...] = ()
    """How its rows were made, such as `quick mode`, and how its sides differ, such as `batches differ`."""
    caveats: tuple[str, ...] = ()
    """Why its figure may mislead: marked runs, models that differ widely, full runs with another figure."""
    contradicted: int = 0
    """Number of its last caveats that name a sampled result with another figure; `in_order` ignores these."""
    projected: bool = False
    """Whether its figures are projected from a sample."""
    parts: tuple[Part, ...] = ()
    """The result of each model."""
    unit: str = ""
    """Unit of the figures in `parts`, where it is not that of the metric."""
    charts: tuple[Bars, ...] = ()
    """Charts of both sides and of the ratios."""
    cases: frozenset[int] = frozenset()
    """Numbers of the cases that it compares."""
    source: str = ""
    """Where its figures were published."""
    own: int = 0
    """Number of its newest session, in the order of the rows, if the user measured it on a card; else 0."""
    figure: str = ""
    """Text shown instead of the value, if the value is no ratio or the ratios differ widely."""
    basis: str = ""
    """Suite, models, runs and caveats, in words: the part of the sentence in brackets."""

    @property
    def sentence(self) -> str:
        """Return the result and its basis as one sentence."""
        return f"{self.said} ({self.basis})." if self.basis else f"{self.said}."

    @property
    def says_why(self) -> bool:
        """Return whether it explains a figure instead of comparing two."""
        return self.kind == "roofline"

    @property
    def decided(self) -> bool:
        """Return whether its verdict is decided."""
        return self.verdict in DECIDED

    @property
    def what(self) -> str:
        """Return `subject / baseline`."""
        return f"{self.subject} / {self.baseline}" if self.baseline else self.subject

    @property
    def where(self) -> str:
        """Return the precision and card, as `in fp32 on RTX 2060`."""
        parts = ((self.precision, "in"), (self.place, "on"))
        return " ".join(f"{word} {name}" for name, word in parts if name)

    def models_beside(self, text: str) -> str:
        """Return the model, or the number of models, to show beside a text; empty if the text names the model."""
        if len(self.models) > 1:
            return f"{len(self.models)} models"
        return "" if self.models[0] in text.split() else self.models[0]


@dataclass(frozen=True)
class Section:
    """What one study shows of some rows: results, tables and charts."""

    study: str
    suite: str
    title: str
    """What its rows have in common, in words, without the defaults of the suite's present version."""
    results: tuple[Result, ...] = ()
    """Results in the order of `in_order`; empty if nothing is compared."""
    tables: tuple[Table, ...] = ()
    charts: tuple[Bars, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    recipe: str = ""
    """The parameters that its rows share, as in the CSV file."""
    cases: frozenset[int] = frozenset()
    """Numbers of its cases, which identify its rows."""


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer to a question about rows: all that the screen, pages and charts show."""

    headline: str
    """The first result as a sentence, or why nothing can be compared."""
    results: tuple[Result, ...]
    """Results of all sections, in the order of `in_order`."""
    sections: tuple[Section, ...]
    gain: str = "speedup"
    """Name of the value of a result."""
    metric: str = "seconds"
    unit: str = "s"
    """Unit of the compared metric."""
    rule: str = ""
    """Conditions for a verdict, in words."""
    files: int = 0
    unread: int = 0
    """Number of given files that could not be read."""
    rows: int = 0
    about: int = 0
    """Number of rows that this answer covers."""
    failed: int = 0
    """Number of rows that should have the compared metric and lack it, unfinished ones included."""
    stopped: int = 0
    """Number of unfinished rows: their run was stopped."""
    missed: int = 0
    """Number of rows left out of pairs because their run missed the goal."""
    left_out: tuple[str, ...] = ()
    """Notes on rows that were not compared, besides those of the sections."""
    problems: tuple[str, ...] = ()
    """Problems while reading files."""
    table: Callable[[frozenset[int] | None], bytes] = lambda cases: b""
    """Returns the rows of these cases, or all rows (None), as CSV."""
    count: Callable[[frozenset[int]], int] = len
    """Returns the number of rows of these cases."""
    chart: "Callable[..., Figure] | None" = None
    """Returns a chart as a matplotlib figure, given its name or nothing, and the theme; `gpubench.compare` sets it."""

    def __repr__(self) -> str:
        """Return the headline and the numbers of results and rows."""
        results = f"{len(self.comparisons)} result{'s' * (len(self.comparisons) != 1)}"
        return f"{self.headline} [{results}, {self.rows} rows]"

    @property
    def comparisons(self) -> list[Result]:
        """Return the results that compare, or all if none does."""
        return [result for result in self.results if not result.says_why] or list(self.results)


def in_order(results: Sequence[Result]) -> list[Result]:
    """Return the results sorted: the user's own on cards first (the newest session first), then by kind (ASKED).

    Bottlenecks come last, also those of own rows, because they compare nothing. Results of one kind are sorted by these
    keys: decided, without caveats, with an interval, not published, the order of the suites in the rows, highest value.
    The results of a pair are kept together, at the place of the first.
    """
    suites = list(dict.fromkeys(result.suite for result in results))

    def doubt(result: Result) -> tuple[object, ...]:
        return (
            not result.decided,
            len(result.caveats) > result.contradicted,
            not result.interval,
            bool(result.source),
            suites.index(result.suite),  # not the suite with the largest ratio first: that would choose by the result
            -result.value,
        )

    first: dict[tuple[str, ...], tuple[object, ...]] = {}
    for result in sorted(results, key=doubt):
        first.setdefault(_pair(result), doubt(result))

    return sorted(
        results, key=lambda r: (r.kind == "roofline", -r.own, ASKED.index(r.kind), first[_pair(r)], _pair(r), doubt(r))
    )


def _pair(result: Result) -> tuple[str, ...]:
    return (result.kind,) if result.says_why else (result.kind, result.suite, result.subject, result.baseline)
