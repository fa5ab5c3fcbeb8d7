"""Draws bar charts, and charts of ratios: dots with whiskers, and a line at the reference. `charts` calls it."""

import itertools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpubench.show.chart_sheet import EDGE, INSET, NORMAL, SMALL, Key, Sheet, palette, setting, sheet_of
from gpubench.show.numbers import number
from gpubench.show.style import FASTER, SLOWER, contrast, fitted, locator, wide
from gpubench.studies.section import Bar, BarGroup, Bars, Column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_ROW, MOST_ROW = 0.152, 0.8
"""Minimum and maximum distance from bar to bar, in inches."""
BELOW = 5
"""Index in the palette of the colour of ratios below the reference. Other ratios have the first colour."""
Span = tuple[BarGroup, float, float]
"""A group, and its upper and lower end, in bars from the top."""
GAP = 0.08
"""Distance between a bar and its text, in inches."""


def values_of(chart: Bars) -> list[float]:
    """Return the values of all bars that have one."""
    return [bar.value for group in chart.groups for bar in group.bars if bar.value is not None]


@dataclass(frozen=True)
class _Scale:
    """The axis of values: from `low` at `start` inches to `high`, `length` inches farther right."""

    low: float
    high: float
    start: float = 0.0
    length: float = 1.0

    def at(self, value: float) -> float:
        """Return the position of a value, in inches; values beyond the axis are at its ends."""
        return self.start + self.length * min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Return the numbers along the axis."""
        ticks = locator().tick_values(self.low, self.high)
        return [float(tick) for tick in ticks if self.low <= tick <= self.high]


@dataclass(frozen=True)
class _Row:
    """A bar with its texts; `y` is its upper end, in bars from the top."""

    y: float
    group: BarGroup
    bar: Bar
    text: str
    note: str

    @property
    def end(self) -> float:
        """The value at which the text of the bar begins."""
        return -math.inf if self.bar.value is None else max(self.bar.value, *(self.bar.interval or (self.bar.value,)))


def figure_of(chart: Bars, width: float, *, framed: bool, whole: Bars | None = None) -> "Figure":
    """Return the chart drawn in the current style. With a frame, groups and bars that do not fit are left out.

    `whole` is the complete chart if `chart` has been shortened.
    """
    whole = whole or chart
    edge, listed = EDGE if framed else INSET, _listed(chart)
    rows, spans = _layout(chart, width, listed=listed)
    labels = [row.bar.name for row in rows] if listed else [group.name for group in chart.groups]
    left = edge + min((0.5 if listed else 0.43) * width, max(wide(text, NORMAL, "bold") for text in labels)) + 0.12
    group_text = min(0.28 * width, max(wide(group.text, NORMAL, "bold") for group in chart.groups))
    scale = _scale(chart, rows, left, width - edge - (group_text + 0.15 if group_text else 0.0))
    colours = _colours(chart, listed=listed)
    marks = dict(zip(chart.marks, itertools.cycle((palette()[3], palette()[2])), strict=False))
    keys = [Key("mark", colour, name) for name, colour in marks.items()]
    naming = None
    named = all(bar.name == group.name for group in chart.groups for bar in group.bars)
    if len(set(colours.values())) > 1 and not listed and not named:
        naming = next((group for group in chart.groups if _has_room(group, colours, scale)), None)
        keys = keys if naming else [Key("box", colour, name) for name, colour in colours.items()] + keys
    axis = 0.3 if chart.reference is not None else 0.0  # inches for the axis' numbers
    sheet = sheet_of(chart, width, keys, spans[-1][2] * 0.25 + axis, framed=framed)
    room = sheet.bottom - sheet.top - axis
    height = spans[-1][2]
    if framed and height * LEAST_ROW > room and (fewer := shortened(whole, room / LEAST_ROW)) != chart:
        return figure_of(fewer, width, framed=framed, whole=whole)
    row_height = min(room / height, MOST_ROW)
    top = sheet.top + 0.4 * (room - row_height * height)
    plot = _Plot(sheet, chart, scale, top, row_height)
    if axis:
        plot.draw_axis(top + row_height * height + 0.06)
    for row in rows:
        plot.draw_row(row, colours[row.bar.name], named=row.group is naming)
        if listed:
            name = fitted(row.bar.name, left - 0.12 - edge, plot.size)
            sheet.text(left - 0.12, plot.y(row.y + 0.5), name, plot.size, ha="right")
    plot.draw_marks(spans, marks)
    plot.draw_groups(spans, edge, left - 0.12, width - edge, listed=listed)
    return sheet.figure


def shortened(chart: Bars, most: float) -> Bars:
    """Return the chart at most `most` bars high; its foot has the number of bars that are left out."""
    listed, gap = _listed(chart), _gap(chart)
    plain = [group for group in chart.groups if not group.strong]
    left = most - sum(1 + gap for group in chart.groups if group.strong)
    sizes = [listed + len(group.bars) + gap for group in plain]
    if not plain:
        return chart
    if len(plain) == 1 or sizes[0] + sizes[-1] > left:
        kept = [replace(plain[0], bars=plain[0].bars[: max(int(left) - listed, 1)])]
    else:
        fits = sum(total <= left - sizes[-1] for total in itertools.accumulate(sizes[:-1]))
        kept = plain if fits == len(plain) - 1 else [*plain[:fits], plain[-1]]
    more = sum(len(group.bars) for group in plain) - sum(len(group.bars) for group in kept)
    if not more:
        return chart
    groups = (*kept, *(group for group in chart.groups if group.strong))
    foot = f"{chart.foot}{'. ' * bool(chart.foot)}{more} bar{'s' * (more > 1)} not drawn"
    return replace(chart, groups=groups, foot=foot)


def _weight(group: BarGroup) -> str:
    return "bold" if group.strong else "normal"


def _listed(chart: Bars) -> bool:
    """Return whether each bar has its name to its left, and each group its name above its bars."""
    names = {bar.name for group in chart.groups for bar in group.bars if len(group.bars) > 1}
    every_name = {bar.name for group in chart.groups for bar in group.bars}
    single = sum(not group.strong for group in chart.groups) == 1
    colours = 1 if chart.reference is not None else 2 if chart.winner else 4
    too_many = len(names) > colours or (colours == 4 and len(every_name) > len(palette()))
    return bool(names) and (single or too_many)


def _gap(chart: Bars) -> float:
    """Return the distance between groups, in bars."""
    return 0.35 if any(len(group.bars) > 1 for group in chart.groups) else 0.05


def _layout(chart: Bars, width: float, *, listed: bool) -> tuple[list[_Row], list[Span]]:
    intervals = [bar.interval for group in chart.groups for bar in group.bars if bar.interval]
    widest = max((high - low for low, high in intervals), default=None)
    gap = _gap(chart)
    rows, spans, y = [], [], 0.0
    for group in chart.groups:
        begin, y = y, y + listed
        for bar in group.bars:
            text = fitted(_text(bar, chart, widest), 0.27 * width, SMALL)
            rows.append(_Row(y, group, bar, text, fitted(bar.note, 0.22 * width, SMALL)))
            y += 1.0
        y = max(y, begin + 1.0)
        spans.append((group, begin, y))
        y += gap
    return rows, spans


def _text(bar: Bar, chart: Bars, widest: float | None) -> str:
    """Return the text at a bar; all ratios have as many digits as the `widest` interval allows."""
    if bar.text or bar.value is None:
        return bar.text or "no data"
    width = bar.interval[1] - bar.interval[0] if bar.interval else None
    width = widest if chart.unit == "ratio" else width
    return number(bar.value, Column("", chart.unit), width and width / 2)


def _scale(chart: Bars, rows: Sequence[_Row], left: float, right: float) -> _Scale:
    """Return the longest axis with which every bar and its text end left of `right`."""
    scale = _limits(chart)
    length = right - left
    for row in rows:
        text = wide(row.text, SMALL, _weight(row.group)) + wide(row.note, SMALL) + (3 if row.note else 2) * GAP
        length = min(length, (right - left - text) / max(scale.at(row.end), 0.01))
    return replace(scale, start=left, length=length)


def _limits(chart: Bars) -> _Scale:
    """Return the axis with its ends; a whisker that is much longer than the others is cut off."""
    values = [*values_of(chart), *(value for marks in chart.marks.values() for value in marks.values())]
    values += [] if chart.reference is None else [chart.reference]
    intervals = [bar.interval for group in chart.groups for bar in group.bars if bar.interval]
    usual = statistics.median(high - low for low, high in intervals or [(0.0, 0.0)])
    reach = max(0.6 * (max(values) - min(values)), 1.2 * usual)
    low = max(min([*values, *(low for low, _ in intervals)]), min(values) - reach)
    high = min(max([*values, *(high for _, high in intervals)]), max(values) + reach)
    if chart.reference is None:
        return _Scale(min(0.0, low), max(0.0, high) or 1.0)
    margin = 0.04 * (high - low) or 0.1
    return _Scale(low - margin, high + margin)


def _colours(chart: Bars, *, listed: bool) -> dict[str, str]:
    """Return the colour of each name: a `winner` is blue, the others grey; without one all are blue, or all differ."""
    names = list(dict.fromkeys(bar.name for group in chart.groups for bar in group.bars))
    blue = palette()[0]
    if chart.winner:
        return {name: blue if name == chart.winner else setting("patch.facecolor") for name in names}
    if listed or all(len(group.bars) < 2 for group in chart.groups):
        return dict.fromkeys(names, blue)
    return dict(zip(names, palette(), strict=False))


def _has_room(group: BarGroup, names: Collection[str], scale: _Scale) -> bool:
    """Return whether the group has a bar for every name, and each of these bars is long enough to contain its name."""
    room = {bar.name: scale.at(bar.value) - scale.start for bar in group.bars if bar.value}
    return set(room) == set(names) and all(wide(name, SMALL) + 2.5 * GAP < has for name, has in room.items())


@dataclass(frozen=True)
class _Plot:
    """Draws on a sheet: the first bar begins at `top`, and each is `row` inches high."""

    sheet: Sheet
    chart: Bars
    scale: _Scale
    top: float
    row: float

    @property
    def size(self) -> float:
        """Font size of names."""
        return NORMAL if self.row > 0.24 else SMALL

    def y(self, bars: float) -> float:
        """Return the vertical position that is `bars` bars below the top, in inches."""
        return self.top + bars * self.row

    def draw_axis(self, bottom: float) -> None:
        """Draw the numbers of the axis, a grid line at each, and a bold line at the reference."""
        base = [] if self.chart.reference is None else [self.chart.reference]
        at, soft, grid = self.scale.at, setting("axes.edgecolor"), setting("grid.color")
        ticks = [tick for tick in self.scale.ticks() if all(abs(at(tick) - at(value)) > 0.4 for value in base)]
        for value in [*base, *ticks]:
            look = {"linewidth": 1.6, "zorder": 0.5} if value in base else {"linewidth": 0.8, "zorder": 0}
            self.sheet.line([at(value)] * 2, [self.top, bottom], soft if value in base else grid, **look)
            self.sheet.text(at(value), bottom + 0.14, f"{value:,.6g}", ha="center", color=soft)

    def draw_row(self, row: _Row, colour: str, *, named: bool) -> None:
        """Draw a bar or dot with its whiskers, value and note, and its name if `named`."""
        bar, y, start = row.bar, self.y(row.y + 0.5), self.scale.start
        x = self.scale.at(row.end)
        if bar.value is None:
            x = start + 0.45
            look = {"fill": False, "linewidth": 1.0, "edgecolor": setting("axes.edgecolor"), "linestyle": (0, (3, 2))}
            self.sheet.box(start, y - 0.32 * self.row, 0.45, 0.64 * self.row, **look)
        elif self.chart.reference is not None:
            x += 0.05
            colour = palette()[0 if bar.value >= self.chart.reference else BELOW]
            self._draw_whiskers(bar, y, colour, 2.0)
            self.sheet.line([self.scale.at(bar.value)], [y], colour, marker="oD"[row.group.strong], markersize=8)
        else:
            left, right = sorted([self.scale.at(0.0), self.scale.at(bar.value)])
            self.sheet.box(left, y - 0.43 * self.row, right - left, 0.86 * self.row, facecolor=colour)
            self._draw_whiskers(bar, y, setting("text.color"), 1.3)
        if named:
            black_or_white = max(("#ffffff", "#111111"), key=lambda ink: contrast(ink, colour))
            ink = setting("text.color") if colour == setting("patch.facecolor") else black_or_white
            self.sheet.text(start + GAP, y, bar.name, color=ink)
        self.sheet.text(x + GAP, y, row.text, weight=_weight(row.group), paper=self.chart.reference is not None)
        x += GAP + wide(row.text, SMALL, _weight(row.group))
        self.sheet.text(x + GAP, y, row.note, color=setting("axes.edgecolor"))

    def _draw_whiskers(self, bar: Bar, y: float, colour: str, linewidth: float) -> None:
        """Draw the interval, with an arrow where it ends beyond the axis."""
        if not bar.interval:
            return
        low, high = map(self.scale.at, bar.interval)
        self.sheet.line([low, high], [y, y], colour, linewidth=linewidth)
        if bar.interval[0] < self.scale.low:
            self.sheet.line([low], [y], colour, marker="<", markersize=6)
        if bar.interval[1] > self.scale.high:
            self.sheet.line([high], [y], colour, marker=">", markersize=6)

    def draw_marks(self, spans: Sequence[Span], colours: Mapping[str, str]) -> None:
        """Draw the marks of each group as lines across its bars."""
        for name, colour in colours.items():
            for group, begin, end in spans:
                if (value := self.chart.marks[name].get(group.name)) is not None:
                    ys = [self.y(begin - 0.06), self.y(end + 0.06)]
                    self.sheet.line([self.scale.at(value)] * 2, ys, colour, linewidth=2.5)

    def draw_groups(self, spans: Sequence[Span], edge: float, right: float, far: float, *, listed: bool) -> None:
        """Draw the names of groups, their texts at the right edge, and a line above means."""
        for at, (group, begin, end) in enumerate(spans):
            middle, weight = self.y((begin + listed + end) / 2), _weight(group)
            colour = setting("text.color" if not self.chart.winner else SLOWER if group.worse else FASTER)
            text = fitted(group.text, 0.25 * far, NORMAL)
            self.sheet.text(far, middle, text, NORMAL, weight=weight, ha="right", color=colour)
            if group.strong and at:
                self.sheet.line([edge, far], [self.y((begin + spans[at - 1][2]) / 2)] * 2, setting("grid.color"))
            if listed:
                name = fitted(group.name, far - edge - 1.0, self.size, "bold")
                self.sheet.text(edge, self.y(begin + 0.5), name, self.size, weight="bold", paper=True)
            else:
                name = fitted(group.name, right - edge, self.size, weight)
                self.sheet.text(right, middle, name, self.size, ha="right", weight=weight)
