"""Bar charts, and charts of ratios: dots with whiskers beside a line at what they are compared with."""

import math
import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpubench.show.numbers import number
from gpubench.show.sheet import EDGE, INSET, NORMAL, SMALL, Key, Sheet, palette, setting, sheet_of
from gpubench.show.style import fitted, log_locator, wide, wrapped
from gpubench.studies.section import Bar, BarGroup, Bars, Column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOG_FROM = 100
"""The largest over the smallest value from which on an axis is logarithmic."""
ROW = (0.21, 0.6)
"""Inches from bar to bar, at least and at most."""
GAP = 0.08
"""Inches between a bar and its text."""
AXIS = 0.3
"""Inches that the numbers of an axis take."""


def values_of(chart: Bars) -> list[float]:
    """Of all its bars that have one."""
    return [bar.value for group in chart.groups for bar in group.bars if bar.value is not None]


def logarithmic(chart: Bars) -> bool:
    """Whether its values are too far from each other to be seen beside each other."""
    values = values_of(chart)
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM


@dataclass(frozen=True)
class _Scale:
    """Values to inches: `low` stands at `start`, `high` is `length` farther right, and nothing beyond."""

    low: float
    high: float
    log: bool
    start: float = 0.0
    length: float = 1.0

    def at(self, value: float) -> float:
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + self.length * min(max(share, 0.0), 1.0)

    def ticks(self) -> list[float]:
        from matplotlib.ticker import MaxNLocator

        locator = log_locator(self.low, self.high) if self.log else MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
        return [float(each) for each in locator.tick_values(self.low, self.high) if self.low <= each <= self.high]


@dataclass
class _Row:
    """A bar, or the name of a group above its bars; heights are counted in bars."""

    y: float
    group: BarGroup
    bar: Bar | None = None
    text: str = ""
    note: str = ""
    named: bool = False
    """Whether the bar's name stands in it."""


@dataclass
class _Layout:
    """Where bars and groups stand."""

    listed: bool
    """Whether each bar has its name to its left, and its group's above."""
    rows: list[_Row] = field(default_factory=list)
    spans: list[tuple[BarGroup, float, float]] = field(default_factory=list)
    """Groups, and where each begins and ends."""

    @property
    def height(self) -> float:
        return self.spans[-1][2]


def figure_of(chart: Bars, width: float, *, framed: bool) -> "Figure":
    """The chart in the style that is set."""
    layout, edge = _layout(chart), EDGE if framed else INSET
    labels = [row.bar.name for row in layout.rows if row.bar] if layout.listed else [g.name for g in chart.groups]
    pairs = not layout.listed and all(len(group.bars) > 1 or group.strong for group in chart.groups)
    label_room = min((0.28 if pairs else 0.38) * width, max(wide(text, NORMAL, "bold") for text in labels))
    left = edge + label_room + 0.12
    right_room = min(0.28 * width, max(wide(group.text, NORMAL, "bold") for group in chart.groups))
    right = width - edge - (right_room + 0.15 if right_room else 0.0)
    scale = _scale(chart, layout, left, right)
    colours = _colours(chart, layout)
    keys = [Key("mark", colour, name) for name, colour in _mark_colours(chart).items()]
    if len(set(colours.values())) > 1 and not layout.listed and not _name_inside(layout, colours, scale):
        keys = [Key("box", colour, name) for name, colour in colours.items()] + keys
    axis = AXIS if chart.reference is not None or scale.log else 0.0
    sheet = sheet_of(chart, width, keys, layout.height * (ROW[0] if framed else 0.25) + axis, framed=framed)
    room = sheet.bottom - sheet.top - axis
    row = min(room / layout.height, ROW[1])
    top = sheet.top + 0.4 * (room - row * layout.height)
    if axis:
        _draw_axis(sheet, chart, scale, top, top + row * layout.height + 0.06)
    for each in layout.rows:
        if each.bar:
            _draw_row(sheet, chart, each, scale, top + (each.y + 0.5) * row, row, colours)
    _draw_marks(sheet, chart, layout, scale, top, row)
    _draw_words(sheet, chart, layout, top, row, edge, left - 0.12, width - edge)
    return sheet.figure


def _layout(chart: Bars) -> _Layout:
    several = [group for group in chart.groups if len(group.bars) > 1]
    names = {bar.name for group in several for bar in group.bars}
    one = sum(not group.strong for group in chart.groups) == 1
    told_apart = 1 if chart.reference is not None else 2 if chart.winner else 3
    listed = bool(several) and (one or len(names) > told_apart)
    layout = _Layout(listed)
    intervals = [bar.interval for group in chart.groups for bar in group.bars if bar.interval]
    widest = max((high - low for low, high in intervals), default=None)
    y = 0.0
    for group in chart.groups:
        begin = y
        if listed:
            layout.rows.append(_Row(y, group))
            y += 1.0
        for bar in group.bars:
            layout.rows.append(_Row(y, group, bar, _text(bar, chart, widest), bar.note))
            y += 1.0
        y = max(y, begin + 1.0)
        layout.spans.append((group, begin, y))
        y += 0.25 if len(group.bars) < 2 and not several else 0.5
    return layout


def _text(bar: Bar, chart: Bars, widest: float | None) -> str:
    """Ratios with the digits that the `widest` interval leaves, so that all have as many."""
    if bar.text or bar.value is None:
        return bar.text or "no figure"
    wide = bar.interval[1] - bar.interval[0] if bar.interval else None
    wide = widest if chart.unit == "ratio" else wide
    return number(bar.value, Column("", chart.unit), wide and wide / 2)


def _weight(group: BarGroup) -> str:
    return "bold" if group.strong else "normal"


def _scale(chart: Bars, layout: _Layout, left: float, right: float) -> _Scale:
    """The longest in which every bar and its text end before `right`."""
    scale = _limits(chart)
    room = right - left
    length = room
    for row in layout.rows:
        if row.bar:
            row.note = fitted(row.note, 0.35 * room, SMALL)
            row.text = fitted(row.text, 0.4 * room, SMALL)
            text = wide(row.text, SMALL, _weight(row.group)) + wide(row.note, SMALL) + (3 if row.note else 2) * GAP
            length = min(length, (room - text) / max(scale.at(_end(row.bar)), 0.01))
    return replace(scale, start=left, length=length)


def _end(bar: Bar) -> float:
    """The value after which its text stands."""
    return -math.inf if bar.value is None else max(bar.value, *(bar.interval or (bar.value,)))


def _limits(chart: Bars) -> _Scale:
    """The ends of the axis; a whisker that is much longer than all else does not stretch it."""
    log = logarithmic(chart)
    there, back = (math.log, math.exp) if log else (float, float)
    marks = [value for own in chart.marks.values() for value in own.values()]
    base = [] if chart.reference is None else [chart.reference]
    inner = [there(value) for value in [*values_of(chart), *marks, *base] if value > 0 or not log]
    low, high = min(inner), max(inner)
    intervals = [bar.interval for group in chart.groups for bar in group.bars if bar.interval]
    ends = [there(end) for interval in intervals for end in interval if end > 0 or not log]
    usual = statistics.median(there(b) - there(a) if a > 0 or not log else 0.0 for a, b in intervals or [(1.0, 1.0)])
    reach = max(0.6 * (high - low), 1.2 * usual)
    low, high = max(min([low, *ends]), low - reach), min(max([high, *ends]), high + reach)
    if chart.reference is not None:
        margin = 0.04 * (high - low) or 0.1
        return _Scale(back(low - margin), back(high + margin), log)
    if log:
        return _Scale(10.0 ** math.floor(math.log10(min(values_of(chart)) / 1.5)), back(high), log)
    return _Scale(min(0.0, low), max(0.0, high) or 1.0, log)


def _colours(chart: Bars, layout: _Layout) -> dict[str, str]:
    """By the name of a bar: the winner against grey, else one each, or one for all where names stand beside them."""
    names = list(dict.fromkeys(bar.name for group in chart.groups for bar in group.bars))
    blue, *others = palette()
    if chart.winner:
        return {name: blue if name == chart.winner else setting("patch.facecolor") for name in names}
    if layout.listed or all(len(group.bars) < 2 for group in chart.groups):
        return dict.fromkeys(names, blue)
    return dict(zip(names, [blue, *others], strict=False))


def _name_inside(layout: _Layout, colours: dict[str, str], scale: _Scale) -> bool:
    """Name the bars of the first group that has one of each name and room for it; whether there is one."""
    for group, _, _ in layout.spans:
        rows = [row for row in layout.rows if row.group is group and row.bar and row.bar.value is not None]
        room = {row.bar.name: scale.at(row.bar.value) - scale.start for row in rows if row.bar and row.bar.value}
        if set(room) == set(colours) and all(wide(name, SMALL) + 2.5 * GAP < has for name, has in room.items()):
            for row in rows:
                row.named = True
            return True
    return not any(len(group.bars) > 1 for group, _, _ in layout.spans)  # their groups' names are theirs


def _mark_colours(chart: Bars) -> dict[str, str]:
    colours = palette()
    return {name: colours[5 - 3 * (at % 2)] for at, name in enumerate(chart.marks)}


def _draw_row(
    sheet: Sheet, chart: Bars, each: _Row, scale: _Scale, y: float, row: float, colours: dict[str, str]
) -> None:
    """The bar or dot, its whiskers, its value and note."""
    bar = each.bar
    assert bar
    if bar.value is None:
        x = scale.start + 0.45
        look = {"fill": False, "linewidth": 1.0, "edgecolor": setting("axes.edgecolor"), "linestyle": (0, (3, 2))}
        sheet.box(scale.start, y - 0.32 * row, 0.45, 0.64 * row, **look)
    else:
        x = scale.at(_end(bar))
        colour = colours.get(bar.name, palette()[0])
        if chart.reference is not None:
            colour = palette()[0] if bar.value >= chart.reference else palette()[5]
            _draw_whiskers(sheet, bar, scale, y, colour, 2.0)
            look = {"marker": "D" if each.group.strong else "o", "markersize": 8, "linestyle": "none"}
            sheet.line([scale.at(bar.value)], [y], colour, **look)
            x += 0.05
        else:
            start, end = sorted([scale.at(0.0), scale.at(bar.value)])
            sheet.box(start, y - 0.43 * row, end - start, 0.86 * row, facecolor=colour)
            _draw_whiskers(sheet, bar, scale, y, setting("text.color"), 1.3)
            if each.named:
                ink = setting("text.color") if colour == setting("patch.facecolor") else _on(colour)
                sheet.text(start + GAP, y, bar.name, color=ink)
    sheet.text(x + GAP, y, each.text, weight=_weight(each.group), paper=chart.reference is not None)
    x += GAP + wide(each.text, SMALL, _weight(each.group))
    sheet.text(x + GAP, y, each.note, color=setting("axes.edgecolor"))


def _on(colour: str) -> str:
    """Black or white, whichever is read better on the colour."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#ffffff" if 0.3 * red + 0.59 * green + 0.11 * blue < 100 else "#111111"


def _draw_whiskers(sheet: Sheet, bar: Bar, scale: _Scale, y: float, colour: str, linewidth: float) -> None:
    """The interval; an arrow where it goes on beyond the axis."""
    if not bar.interval:
        return
    low, high = bar.interval
    sheet.line([scale.at(low), scale.at(high)], [y, y], colour, linewidth=linewidth)
    for beyond, x, marker in ((low < scale.low, low, "<"), (high > scale.high, high, ">")):
        if beyond:
            sheet.line([scale.at(x)], [y], colour, marker=marker, markersize=6, linestyle="none")


def _draw_axis(sheet: Sheet, chart: Bars, scale: _Scale, top: float, bottom: float) -> None:
    """Numbers below, a soft line at each, and a strong one at what is compared with."""
    soft = setting("axes.edgecolor")
    base = [] if chart.reference is None else [chart.reference]
    apart = [tick for tick in scale.ticks() if all(abs(scale.at(tick) - scale.at(at)) > 0.4 for at in base)]
    for tick in [*base, *apart]:
        x = scale.at(tick)
        sheet.line([x, x], [top, bottom], setting("grid.color"), linewidth=0.8, zorder=0)
        text = number(tick, Column("", chart.unit)) if chart.unit in {"share", "bytes"} else f"{tick:,.6g}"
        sheet.text(x, bottom + 0.14, text, ha="center", color=soft)
    if chart.reference is not None:
        x = scale.at(chart.reference)
        sheet.line([x, x], [top, bottom], soft, linewidth=1.6, zorder=0.5)


def _draw_marks(sheet: Sheet, chart: Bars, layout: _Layout, scale: _Scale, top: float, row: float) -> None:
    for name, colour in _mark_colours(chart).items():
        for group, begin, end in layout.spans:
            if (value := chart.marks[name].get(group.name)) is not None:
                x = scale.at(value)
                sheet.line([x, x], [top + (begin - 0.06) * row, top + (end + 0.06) * row], colour, linewidth=2.5)


def _draw_words(
    sheet: Sheet, chart: Bars, layout: _Layout, top: float, row: float, edge: float, right: float, far: float
) -> None:
    """Names to the left, what is said of a group at the right edge, a line above what sums up."""
    size = NORMAL if row > 0.24 else SMALL
    colour = palette()[0] if chart.winner else setting("text.color")
    for each in layout.rows:
        y = top + (each.y + 0.5) * row
        if each.bar is None:
            sheet.text(
                edge, y, fitted(each.group.name, far - edge - 1.0, size, "bold"), size, weight="bold", paper=True
            )
        elif layout.listed:
            sheet.text(right, y, fitted(each.bar.name, right - edge, size), size, ha="right")
    for at, (group, begin, end) in enumerate(layout.spans):
        y = top + (begin + end) / 2 * row
        sheet.text(
            far, y, fitted(group.text, 0.25 * far, NORMAL), NORMAL, ha="right", weight=_weight(group), color=colour
        )
        if group.strong and at:
            rule = top + (begin + layout.spans[at - 1][2]) / 2 * row
            sheet.line([edge, far], [rule, rule], setting("grid.color"))
        if not layout.listed:
            name = wrapped(group.name, right - edge, size, 2 if (end - begin) * row > 0.38 else 1, _weight(group))
            sheet.text(right, y, "\n".join(name), size, ha="right", weight=_weight(group))
