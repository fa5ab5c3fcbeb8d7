"""Results as text for a terminal: a screen of 25 lines of 79 characters, or all sections. The commands call it."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from rich.cells import cell_len

from gpubench.printed import duration, shortened, shown
from gpubench.show.numbers import filled_columns, interval_text, read_of, sides_of, significant
from gpubench.show.wrap import LEAST_WIDTH, WIDTH, cut, fitted, folded, indented, line_width, wrapped
from gpubench.studies.section import Answer, Estimate, Result, Section, Table
from gpubench.studies.words import PROJECTED, ends_of, gain

LINES = 25
NARROW = 60
"""In a terminal with fewer characters, results are sentences instead of a table."""
NAME, CARD = 36, 16
"""Maximum width of a model's name, and of a card's name above a column, in characters."""
MOST_CASES = 12
"""Maximum number of cases of a section on a screen without comparisons."""
KEYS = 3
"""Maximum number of key columns: the first columns, which identify a line."""
LEAST, LEAST_FIRST = 16, 34
"""Least widths, in characters, to which text columns and the first column are narrowed."""


@dataclass(frozen=True)
class TextColumn:
    """A column of a table as texts. Figures are at the right side of their column and are never wrapped."""

    name: str
    texts: Sequence[str]
    is_figure: bool = False

    @property
    def width(self) -> int:
        """Width of its longest text, in characters."""
        return max(map(cell_len, [self.name, *self.texts]))


def screen(answer: Answer, *, in_full: bool = False, width: int | None = None) -> list[str]:
    """Return one screen of results: at most LINES lines of WIDTH characters, or more lines if `width` is smaller.

    `in_full`: every section is printed below the screen. If nothing is compared and not `in_full`, it has the cases.
    """
    width = width or line_width()
    most = LINES * WIDTH // width
    head, room = wrapped(answer.headline, width), 4 * WIDTH // width
    if len(head) > room:
        head[room - 1 :] = [cut(f"{head[room - 1]} {head[room]}", width)]
    results = answer.comparisons[:12]  # more do not fit
    in_table = [result for result in results if result.own] or results
    by_model = _by_model(in_table, answer, width)
    others = [result for result in results if result not in in_table]
    choices = [(by_model, others[:count]) for count in range(len(others), -1, -1)] if by_model else []
    if not in_full and all(result.says_why for result in answer.results):
        fewer = range(len(results), -1, -1)
        choices, others = [(cases, results[:n]) for cases in cases_tables(answer, width) for n in fewer], results
    choices += [([], results[:count]) for count in range(len(results), -1, -1)]
    lines: list[str] = []
    for table, listed in choices:  # the first that fits
        printed = [*(result for result in in_table if result not in others), *listed] if table else listed
        body = [line for block in (table, _results(listed, answer, width)) if block for line in ["", *block]]
        lines = [*head, *body, "", *_tail(answer, printed, listed, width, in_full=in_full)]
        if len(lines) <= most:
            break
    return lines


def everything(answer: Answer, width: int | None = None, *, every_table: bool = True) -> list[str]:
    """Return every section in lines as wide as the terminal (79 in a pipe); `every_table` adds evidence and recipes."""
    width = max((width or shutil.get_terminal_size((WIDTH + 1, LINES)).columns) - 1, LEAST_WIDTH)
    lines: list[str] = []
    for section in answer.sections:
        lines += ["", *_section(section, answer.metric, width, every_table)]
    if answer.left_out:
        lines += ["", "Not compared:", *_items(answer.left_out, width)]
    return lines


def _section(section: Section, metric: str, width: int, every_table: bool) -> Iterator[str]:
    yield from wrapped(section.title, width)
    yield "-" * min(cell_len(section.title), width)
    yield from _items([result.sentence for result in section.results], width)
    for table in section.tables:
        if table.lines and (every_table or table.name != "evidence"):
            name = f"evidence: {metric} of each trial" if table.name == "evidence" else table.name
            yield from ["", *table_lines(replace(table, name=name), width)]
    notes = [*section.notes, *([f"Recipe: {section.recipe}"] if section.recipe and every_table else [])]
    yield from ["", *_items(notes, width)] if notes else []
    yield from ["", "Not compared:", *_items(section.left_out, width)] if section.left_out else []


def _items(texts: Sequence[str], width: int) -> Iterator[str]:
    for text in texts:
        yield from indented("- ", text, width)


def table_lines(table: Table, width: int) -> list[str]:
    """Return a table of at most `width` characters per line.

    Empty and `detail` columns are left out. Texts and counts equal in all lines are in the heading, notes at the end.
    If the table is too wide, long texts are wrapped. If it stays too wide, it becomes blocks that repeat key columns.
    """
    shared, notes, marks = list[str](), dict[str, str](), [""] * len(table.lines)
    columns: list[TextColumn] = []
    for at, (column, values, texts) in enumerate(filled_columns(table)):
        texts = list(map(shown, texts))
        if column.detail:
            continue
        fits_heading = column.unit in {"", "count"} if len(texts) > 1 else not column.unit and at >= KEYS
        if column.note:
            marks = [notes.setdefault(text, _mark(len(notes))) if text else "" for text in texts]
        elif fits_heading and len(set(texts)) == 1:
            shared.append(f"{column.name} {texts[0]}")
        else:
            columns.append(TextColumn(column.name, texts, bool(column.unit)))
            ends = [interval_text(value, column) for value in values]
            if any(ends):
                columns.append(TextColumn(f"{column.level}% interval", ends, is_figure=True))
    if notes and columns:
        key = columns[0]
        texts = [f"{text} ({mark})" if mark else text for text, mark in zip(key.texts, marks, strict=True)]
        columns[0] = TextColumn(key.name, texts, key.is_figure)
    title = f"{table.name} (in all lines: {', '.join(shared)})" if shared else table.name
    lines = wrapped(title, width) if title else []
    for block in _blocks(columns, width):
        lines += _drawn(block, width)
    return lines + [line for text, mark in notes.items() for line in indented(f"  {mark}: ", text, width)]


def _mark(number: int) -> str:
    """Return the mark of a note: a, b ... z, aa ..."""
    letter = chr(ord("a") + number % 26)
    return letter if number < 26 else _mark(number // 26 - 1) + letter


def _blocks(columns: Sequence[TextColumn], width: int) -> list[Sequence[TextColumn]]:
    """Return the columns in as few blocks as fit into `width`; every block begins with the key columns."""
    if not columns or _total(_widths(columns, width)) <= width:
        return [columns] if columns else []
    widths = [column.width if column.is_figure else min(column.width, _least_first(width)) for column in columns]
    keys = _keys(columns, widths, width)
    blocks = [list(range(keys))]
    for at in range(keys, len(columns)):
        if len(blocks[-1]) == keys or _total([widths[other] for other in [*blocks[-1], at]]) <= width:
            blocks[-1].append(at)
        else:
            blocks.append([*range(keys), at])
    return [[columns[at] for at in block] for block in blocks]


def _keys(columns: Sequence[TextColumn], widths: Sequence[int], width: int) -> int:
    """Return the number of key columns: the first texts, in at most 2/3 of the width. At least 1."""
    keys, most = 1, min(KEYS, len(columns))
    while keys < most and not columns[keys].is_figure and _total(widths[: keys + 1]) <= width * 2 // 3:
        keys += 1
    return keys


def _least_first(width: int) -> int:
    """Return the width to which the first column may be narrowed. `_blocks` counts wider text columns as this wide."""
    return min(LEAST_FIRST, max(width - 16, 10))


def _total(widths: Sequence[int]) -> int:
    """Return the width of a line of columns: one space before the first, two between columns."""
    return sum(widths) + 2 * len(widths) - 1


def _widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """Return the width of each column. If a line is too wide, texts are narrowed, from the last column to the first."""
    widths = [min(column.width, width) for column in columns]
    least = [_least_first(width), *[LEAST] * (len(columns) - 1)]
    while _total(widths) > width:
        texts = [at for at, column in enumerate(columns) if not column.is_figure and widths[at] > least[at]]
        if not texts:
            break
        widths[texts[-1]] -= 1
    return widths


def _drawn(columns: Sequence[TextColumn], width: int) -> Iterator[str]:
    """Return the lines of a table; long texts continue on up to two further lines, then lose their middle."""
    widths = _widths(columns, width)
    for line in zip(*([column.name, *column.texts] for column in columns), strict=True):
        cells = [
            [text] if cell_len(text) <= wide else folded(text, wide, most=3)
            for text, wide in zip(line, widths, strict=True)
        ]
        for at in range(max(map(len, cells))):
            texts = [cell[at] if at < len(cell) else "" for cell in cells]
            gaps = [" " * (wide - cell_len(text)) for text, wide in zip(texts, widths, strict=True)]
            parts = [
                gap + text if column.is_figure else text + gap
                for text, gap, column in zip(texts, gaps, columns, strict=True)
            ]
            yield cut(" " + "  ".join(parts).rstrip(), width)


def _results(results: Sequence[Result], answer: Answer, width: int) -> list[str]:
    """Return the table of results; in a narrow terminal they are sentences."""
    if not results or width < NARROW:
        return list(_items([result.sentence for result in results], width))
    figures = [bool(result.figure) for result in results]
    value = "value" if any(figures) else answer.gain
    units = {result.unit or answer.unit for result in results if result.parts}
    unit = units.pop() if len(units) == 1 else "figures"
    figure = {"s": "time", "share": answer.metric, "count": "batch"}.get(unit, unit)
    what = "A / B" if all(result.baseline for result in results) else "what"
    heads = (value, "interval", f"{figure} A/B", what, "details")
    cells = zip(*(_line(result, answer.unit) for result in results), strict=True)
    columns = [TextColumn(head, texts, head == value) for head, texts in zip(heads, cells, strict=True) if any(texts)]
    return list(_drawn(columns, width))


def _line(result: Result, unit: str) -> tuple[str, str, str, str, str]:
    """Return the line of a result: value with signs, interval or verdict, both figures, what is compared, details."""
    value, interval, verdict, what, origin = cells_of(result)
    doubt = "?" if result.interval and not result.decided else ""
    signs = f"{doubt}{'*' * bool(result.caveats)}"
    ends = [interval, verdict.removesuffix("*")][: 2 if not interval or (result.is_points and result.decided) else 1]
    return f"{value}{signs}", ", ".join(filter(None, ends)), sides_of(result, unit), what, origin


def cells_of(result: Result) -> tuple[str, str, str, str, str]:
    """Return a result's value, interval, verdict, what is compared, and details. `legend` explains the signs."""
    interval = f"{'mean ' * bool(result.figure)}{ends_of(result, ' to ' if result.is_points else '-')}"
    what = f"{result.what} on {result.place}" if result.place else result.what
    figure = result.figure or (f"{result.value:+.2f}" if result.is_points else gain(result.value))
    line = (
        f"{'~' * result.projected}{figure}",
        interval if result.interval else "",
        f"{'undecided' if result.sure else result.verdict}{'*' * bool(result.caveats)}",
        what,
        ", ".join(part for part in (result.origin, *result.settings, result.models_beside(what)) if part),
    )
    return tuple(shown(text) for text in line)  # type: ignore[return-value]


def legend(results: Sequence[Result]) -> list[str]:
    """Return the explanation of the intervals and of each sign in a table of these results."""
    signs = {
        "Intervals: 95%.": any(result.interval for result in results),
        "~: projected from a sample.": any(result.projected for result in results),
        "*: has a caveat.": any(result.caveats for result in results),
        "#: id of the card or machine, if several share a name.": any("#" in cells_of(r)[3] for r in results),
    }
    return [explanation for explanation, is_there in signs.items() if is_there]


def cases_tables(answer: Answer, width: int) -> list[list[str]]:
    """Return the first cases of all sections as lines, then those of fewer sections, at last none.

    Cases with an estimate come first, or alone in their section. If there is only one card, which the headline names,
    it is left out.
    """
    named = [(section.title, table) for section in answer.sections for table in section.tables if table.name == "cases"]
    one_card = len({line[1] for _, table in named for line in table.lines}) == 1
    blocks: list[tuple[bool, list[str]]] = []
    for title, table in named:
        columns = tuple(replace(column, detail=one_card and column.name == "card") for column in table.columns)
        known = [line for line in table.lines if any(isinstance(value, Estimate) for value in line)]
        lines = tuple((known or table.lines)[:MOST_CASES])
        blocks.append((not known, ["", *table_lines(Table(title, columns, lines), width)]))
    blocks.sort(key=itemgetter(0))
    return [[line for _, block in blocks[:count] for line in block][1:] for count in range(len(blocks), -1, -1)]


def _by_model(results: Sequence[Result], answer: Answer, width: int) -> list[str]:
    """Return a table with a line per model and both sides' figures; empty where the results do not fit such a table.

    They fit if they are of one suite and compare one pair of cards in at most two precisions, or the precisions of one
    card. Other results of the same cards become sentences below the table.
    """
    compared = [result for result in results if result.kind == "card"]
    compared = compared or [result for result in results if result.kind == "precision"]
    compared.sort(key=lambda result: result.precision != "fp32")
    others = sorted((result for result in results if result not in compared), key=lambda result: result.kind != "buyer")
    pairs = {(result.what if result.kind == "card" else result.where, result.settings) for result in compared}
    parts_by_model = [{part.model: part for part in result.parts} for result in compared]
    fits = (
        answer.metric in {"seconds", "rate"}
        and len(pairs) == 1
        and len(compared) <= 2
        and len({result.suite for result in results}) == 1
        and all(len(parts) == len(r.parts) > 0 for parts, r in zip(parts_by_model, compared, strict=True))
        and not any(result.figure for result in compared)
        and all(result.kind in {"precision", "buyer"} for result in others)
    )
    if not fits:
        return []
    models = list(dict.fromkeys(model for parts in parts_by_model for model in parts))
    unit = compared[0].unit or answer.unit
    figure, unit = (duration, "") if unit == "s" else (significant, unit)
    summary = ["mean"] if len(models) > 1 else []
    blank = [""] * len(summary)
    columns = [TextColumn("", [*(shortened(model, NAME) for model in models), *summary])]
    for result, parts in zip(compared, parts_by_model, strict=True):
        known = [parts.get(model) for model in models]
        ratios = [gain(part.value) if part else "" for part in known] if summary else []
        columns += [
            TextColumn(_short(result.baseline), [*(figure(p.baseline) if p else "" for p in known), *blank], True),
            TextColumn(_short(result.subject), [*(figure(p.subject) if p else "" for p in known), *blank], True),
            TextColumn("speedup", [*ratios, _line(result, answer.unit)[0]], True),
        ]
    widths = _widths(columns, width)
    if _total(widths) > width:
        return []
    head = f" {unit:<{widths[0]}}"
    for number, result in enumerate(compared):
        room = _total(widths[3 * number + 1 : 3 * number + 4]) - 1
        head += "  " + shortened(result.precision or result.place, room).center(room)
    details = [(r, ", ".join([*_details(r), *r.caveats])) for r in compared]
    texts = [f"{'* ' * bool(r.caveats)}{r.precision or r.what}: {detail}." for r, detail in details if detail]
    for other in others:
        basis = ", ".join(filter(None, [other.models_beside(other.said), *_details(other)]))
        texts.append(f"{other.said}{f' ({basis})' * bool(basis)}{'*' * bool(other.caveats)}.")
    below = [line for text in texts for line in wrapped(text, width)]
    return [head.rstrip(), *_drawn(columns, width), *([""] if below else []), *below]


def _details(result: Result) -> list[str]:
    """Return the interval, the verdict and the differences of a result, where it has them."""
    texts = [f"95% {ends_of(result)}"] if result.interval else []
    texts += [result.verdict] if result.verdict != "one run" else []
    return [*texts, *result.differences, *[PROJECTED] * result.projected]


def _short(card: str) -> str:
    return fitted(card.removeprefix("RTX ").removeprefix("GTX "), CARD)


def _tail(answer: Answer, results: list[Result], listed: list[Result], width: int, *, in_full: bool) -> Iterator[str]:
    """Return what was read, the options that print the rest, and the legend; `listed` are the results with A / B."""
    parts = read_of(answer)
    more = len(answer.comparisons) - len(results)
    plural = "s" * (more > 1)
    if in_full:
        parts += [f"{more} more result{plural} below."] if more else []
    else:
        left = len(answer.left_out) + sum(len(section.left_out) for section in answer.sections)
        parts += [f"{left} note{'s' * (left > 1)} on rows not compared: --all."] if left else []
        parts.append(f"{more} more result{plural}: --all." if more else "Every case: --all.")
        suites = list(dict.fromkeys(result.suite for result in answer.results))
        parts += [f"To show one suite: --only {fitted(suites[0], 20)}."] if len(suites) > 1 else []
        explained = [result.cases for result in answer.results if result.says_why]
        has_bottleneck = any(shown.cases & cases for shown in results for cases in explained)
        parts += ["Bottlenecks: --only roofline."] * has_bottleneck
    yield from wrapped(" ".join(parts), width)
    if width >= NARROW:
        better = "faster" if answer.gain == "speedup" else "better"
        compares = any(r.baseline and (r.parts or not r.figure) for r in listed)
        ratios = [f"A / B: above {int(answer.gain != 'points')}, A is {better}."] * compares
        doubt = ["?: no clear verdict."] if any(result.interval and not result.decided for result in results) else []
        signs = " ".join([*ratios, *doubt, *legend(results)])
        signs = signs if in_full else signs.replace("has a caveat.", "has a caveat; see --all.")
        yield from wrapped(signs, width) if signs else []
    if results:
        yield from wrapped("Charts: --charts DIR. HTML page: gpubench report FILES.", width)
