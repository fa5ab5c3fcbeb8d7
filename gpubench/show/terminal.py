"""Results as lines of text for a terminal: one screen of 80 columns, or every section in full. The commands call it."""

import shutil
from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len

from gpubench.printed import duration, shortened, shown
from gpubench.show.numbers import filled_columns, interval_text, significant
from gpubench.show.wrap import WIDTH, cut, fitted, indented, line_width, wrapped
from gpubench.studies.section import Answer, Column, Result, Section, Table
from gpubench.studies.words import PROJECTED, gain, read_of, sides_of

LINES = 25
NARROW = 60
"""In fewer characters a table of results would be unreadable."""
NAME, FROM = 36, 16
"""Maximum width of a model's name, and minimum width of the column `from`, in characters."""
FOLDS = 3
"""Maximum lines of a text in a table."""
MOST = 12
"""Maximum results on the screen."""
KEYS = 3
"""Maximum number of key columns: the first columns, which identify a line."""
LONGEST = 34
"""Width of a text, in characters, in a table that would be too wide."""
CHARTS = "Charts: --charts DIR. HTML page: gpubench report FILES."


def screen(answer: Answer, *, in_full: bool = False, width: int | None = None) -> list[str]:
    """Return one screen of results: lines of at most `width` characters, at most LINES of them if that is WIDTH.

    `in_full`: every section is printed below it.
    """
    width = width or line_width()
    most = LINES * WIDTH // width
    head, room = wrapped(answer.headline, width), 4 * WIDTH // width
    if len(head) > room:
        head[room - 1 :] = [cut(f"{head[room - 1]} {head[room]}", width)]
    results = answer.comparisons[:MOST]
    own = [result for result in results if result.own]
    in_table = own or results
    figure, unit = (duration, "") if answer.unit == "s" else (significant, answer.unit)
    by_model = _by_model(in_table, figure, unit, width) if answer.metric in {"seconds", "rate"} else []
    listed = [result for result in results if result not in in_table] if by_model else results
    while True:
        tail = ["", *_tail(answer, [*in_table, *listed] if by_model else listed, width, in_full=in_full)]
        table = list(_results(listed, answer.gain, answer.unit, width)) if listed else []
        body = [*by_model, *[""] * bool(by_model and table), *table]
        if len(head) + 1 + len(body) + len(tail) <= most or (len(listed) == 1 and not by_model):
            return [*head, *[""] * bool(body), *body, *tail]
        if listed:
            listed = listed[:-1]
        elif by_model:
            by_model, listed = [], results
        else:
            return [*head, *tail]


def everything(answer: Answer, width: int | None = None, *, every_table: bool = True) -> list[str]:
    """Return every section with its results, tables and notes, as wide as the terminal; 80 columns in a pipe."""
    width = (width or shutil.get_terminal_size((WIDTH + 1, LINES)).columns) - 1
    lines: list[str] = []
    for section in answer.sections:
        lines += ["", *_section(section, width, every_table)]
    if answer.left_out:
        lines += ["", "Not compared:", *_items(answer.left_out, width)]
    return lines


def _section(section: Section, width: int, every_table: bool) -> Iterator[str]:
    """Return a section with its results, tables and notes."""
    yield from wrapped(section.title, width)
    yield "-" * min(cell_len(section.title), width)
    yield from _items([result.sentence for result in section.results], width)
    for table in section.tables:
        if every_table or table.name != "evidence":
            yield from ["", *table_lines(table, width)]
    notes = [*section.notes, *([f"Recipe: {section.recipe}"] if section.recipe and every_table else [])]
    yield from ["", *_items(notes, width)] if notes else []
    yield from ["", "Not compared:", *_items(section.left_out, width)] if section.left_out else []


def _items(texts: Sequence[str], width: int) -> Iterator[str]:
    """Return each text as an item of a list."""
    for text in texts:
        yield from indented("- ", text, width)


def table_lines(table: Table, width: int) -> list[str]:
    """Return a table of at most `width` characters per line.

    Empty columns are left out. Texts and counts that are equal in all lines go into the heading, notes below the table.
    Where the table is too wide, long texts are wrapped, and then it is split into blocks that repeat the key columns.
    """
    head, notes, marks = [table.name], dict[str, str](), [""] * len(table.lines)
    columns: list[tuple[Column, list[str]]] = []
    for at, (column, values, texts) in enumerate(filled_columns(table)):
        texts = list(map(shown, texts))
        if column.detail:
            continue
        if column.note:
            marks = [notes.setdefault(text, _mark(len(notes))) if text else "" for text in texts]
        elif _belongs_in_heading(texts, column, at):
            head.append(f"{column.name} {texts[0]}")
        else:
            columns.append((column, texts))
            ends = [interval_text(value, column) for value in values]
            if any(ends):
                columns.append((Column(f"{column.level}%", column.unit or "x"), ends))
    if notes and columns:
        key, texts = columns[0]
        columns[0] = key, [f"{text} ({mark})" if mark else text for text, mark in zip(texts, marks, strict=True)]
    lines = wrapped(", ".join(head), width)
    for block in _blocks(columns, width):
        lines += block
    return lines + [line for text, mark in notes.items() for line in indented(f"  {mark}: ", text, width)]


def _belongs_in_heading(texts: Sequence[str], column: Column, at: int) -> bool:
    """Return whether a column is equal in all lines; of a table with a single line, whether it is a text and no key."""
    if len(texts) == 1:
        return not column.unit and at >= KEYS
    return column.unit in {"", "count"} and len(set(texts)) == 1


def _mark(number: int) -> str:
    """Return the mark of a note: a, b ... z, aa ..."""
    letter = chr(ord("a") + number % 26)
    return letter if number < 26 else _mark(number // 26 - 1) + letter


def _blocks(columns: Sequence[tuple[Column, list[str]]], width: int) -> Iterator[list[str]]:
    """Return the lines of each block; every block fits into `width` and begins with the key columns."""
    if not columns:
        return
    widths = [max(cell_len(column.name), *map(cell_len, texts)) for column, texts in columns]
    if sum(widths) + 2 * len(widths) > width:
        widths = [min(wide, LONGEST, max(width - 16, 10)) for wide in widths]
    keys = list(range(_keys(columns, widths, width)))
    blocks = [keys]
    for at in range(len(keys), len(columns)):
        if blocks[-1] == keys or sum(widths[other] + 2 for other in [*blocks[-1], at]) - 1 <= width:
            blocks[-1] = [*blocks[-1], at]
        else:
            blocks.append([*keys, at])
    for block in blocks:
        right = [bool(columns[at][0].unit) for at in block]
        heads, texts = [columns[at][0].name for at in block], [columns[at][1] for at in block]
        lines = [heads, *zip(*texts, strict=True)]
        yield [part for line in lines for part in _folded(line, [widths[at] for at in block], right, width)]


def _keys(columns: Sequence[tuple[Column, list[str]]], widths: Sequence[int], width: int) -> int:
    """Return the number of key columns: texts that identify each line, in at most 2/3 of the width. At least 1."""
    for count in range(1, KEYS + 1):
        chosen = columns[:count]
        if any(column.unit for column, _ in chosen) or sum(widths[:count]) + 2 * count > width * 2 // 3:
            return max(1, count - 1)
        if len(set(zip(*(texts for _, texts in chosen), strict=True))) == len(chosen[0][1]):
            return count
    return KEYS


def _folded(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool], width: int) -> Iterator[str]:
    """Return a line of a table; cells that are too long for their column continue on further lines."""
    cells = [[text] if cell_len(text) <= wide else folded(text, wide) for text, wide in zip(texts, widths, strict=True)]
    for at in range(max(map(len, cells))):
        parts = [
            _padded(cell[at] if at < len(cell) else "", wide, right=to_right)
            for cell, wide, to_right in zip(cells, widths, right, strict=True)
        ]
        yield cut(" " + "  ".join(parts).rstrip(), width)


def folded(text: str, width: int) -> list[str]:
    """Return a text as at most FOLDS lines of `width` characters; of a longer text the middle is left out."""
    lines = wrapped(" ".join(fitted(word, width) for word in text.split()), width)
    return lines if len(lines) <= FOLDS else [*lines[: FOLDS - 1], fitted(" ".join(lines[FOLDS - 1 :]), width)]


def _results(results: Sequence[Result], gain: str, unit: str, width: int) -> Iterator[str]:
    """Return the table of results, headed `gain` unless a result has a figure that is not a gain.

    In a narrow terminal they are sentences.
    """
    if width < NARROW:
        yield from _items([result.sentence for result in results], width)
        return
    figures = [bool(result.figure) for result in results]
    time = "time" if unit == "s" else unit
    head = ("" if all(figures) else "value" if any(figures) else gain, "95%", time, "what", "from")
    cells = [_line(result, unit) for result in results]
    widths = [max(cell_len(line[at]) for line in [head, *cells]) for at in range(len(head))]
    # The columns `what` and `from` share the width that the others leave.
    room = width - 1 - sum(wide + 2 for wide in widths[:3] if wide) - 2
    widths[4] = min(widths[4], max(FROM, room - widths[3]))
    widths[3] = min(widths[3], room - widths[4])
    used = [at for at in range(len(head)) if any(line[at] for line in cells)]
    for line, result in zip([head, *cells], [None, *results], strict=True):
        texts = list(line)
        if result and cell_len(texts[4]) > widths[4]:
            texts[4] = shown(_from(result, on=""))
        yield from _folded([texts[at] for at in used], [widths[at] for at in used], [at == 0 for at in used], width)


def _line(result: Result, unit: str) -> tuple[str, str, str, str, str]:
    """Return the line of a result: value with its signs, interval or verdict, both sides' figures, what, from."""
    value, interval, verdict, what, origin = cells_of(result)
    doubt = "?" if result.interval and not result.decided else ""
    signs = f"{doubt}{'*' * bool(result.caveats)}"
    return f"{value}{signs}", interval or verdict.removesuffix("*"), sides_of(result, unit), what, origin


def _padded(text: str, width: int, *, right: bool) -> str:
    """Return the text with spaces up to `width` characters, aligned left or right."""
    gap = " " * (width - cell_len(text))
    return gap + text if right else text + gap


def cells_of(result: Result) -> tuple[str, str, str, str, str]:
    """Return the line of a result in a table: value, interval, verdict, what, from. `legend` explains the signs."""
    interval = f"{gain(result.interval[0])}-{gain(result.interval[1])}" if result.interval else ""
    place = f" on {result.place}" if result.place else ""
    line = (
        f"{'~' * result.projected}{result.figure or gain(result.value)}",
        interval,
        f"{'undecided' if result.sure else result.verdict}{'*' * bool(result.caveats)}",
        result.what + place,
        _from(result, result.on),
    )
    return tuple(shown(text) for text in line)  # type: ignore[return-value]


def _from(result: Result, on: str) -> str:
    """Return the origin of a result, its settings and its models."""
    return ", ".join(part for part in (result.origin, *result.settings, on) if part)


def legend(results: Sequence[Result]) -> list[str]:
    """Return the explanation of each sign in a table of these results."""
    signs = {
        "~: projected from a sample.": any(result.projected for result in results),
        "*: has a caveat.": any(result.caveats for result in results),
        "#: number of the card or machine, where several have that name.": any("#" in cells_of(r)[3] for r in results),
    }
    return [explanation for explanation, is_there in signs.items() if is_there]


def _by_model(results: Sequence[Result], figure: Callable[[float], str], unit: str, width: int) -> list[str]:
    """Return a table with a line per model and both sides' figures; empty where the results do not fit such a table.

    They fit if they are of one suite and compare one pair of cards in at most two precisions, or the precisions of one
    card. Other results of the same cards become sentences below the table. `unit`: of the figures.
    """
    columns = [result for result in results if result.kind == "card"]
    columns = columns or [result for result in results if result.kind == "precision"]
    columns.sort(key=lambda result: result.precision != "fp32")
    others = sorted((result for result in results if result not in columns), key=lambda result: result.kind != "buyer")
    pairs = {(result.what if result.kind == "card" else result.where, result.settings) for result in columns}
    is_alike = len(pairs) == 1 and len(columns) <= 2 and len({result.suite for result in results}) == 1
    parts_by_model = [{part.model: part for part in result.parts} for result in columns]
    has_models = all(len(parts) == len(r.parts) > 0 for parts, r in zip(parts_by_model, columns, strict=True))
    are_figures = not any(result.figure for result in columns)
    if not (is_alike and has_models and are_figures and all(r.kind in {"precision", "buyer"} for r in others)):
        return []
    head = ["", *(text for r in columns for text in (_short(r.baseline), _short(r.subject), "speedup"))]
    lines = []
    for model in dict.fromkeys(name for parts in parts_by_model for name in parts):
        line = [shortened(model, NAME)]
        for part in (parts.get(model) for parts in parts_by_model):
            line += [figure(part.baseline), figure(part.subject), gain(part.value)] if part else ["", "", ""]
        lines.append(line)
    values = [_line(result, unit)[0] for result in columns]
    if len(lines) > 1:
        lines.append(["mean", *(text for value in values for text in ("", "", value))])
    else:
        lines[0][3::3] = values
    widths = [max(cell_len(line[at]) for line in [head, *lines]) for at in range(len(head))]
    widths[0] = max(widths[0], len(unit))
    drawn = [
        " " + "  ".join(_padded(text, widths[at], right=at > 0) for at, text in enumerate(line))
        for line in [head, *lines]
    ]
    over = f" {unit:<{widths[0]}}"
    for at, result in enumerate(columns):
        three = sum(widths[1 + 3 * at : 4 + 3 * at]) + 4
        over += "  " + shortened(result.precision or result.place, three).center(three)
    below = [line for text in [*_remarks(columns), *map(_briefly, others)] for line in wrapped(text, width)]
    drawn = [line.rstrip() for line in [over, *drawn, *([""] if below else []), *below]]
    return drawn if max(map(cell_len, drawn)) <= width else []


def _remarks(columns: Sequence[Result]) -> Iterator[str]:
    """Return the interval, verdict, differences and caveats of each column that has one."""
    for result in columns:
        texts = [f"95% {gain(result.interval[0])} to {gain(result.interval[1])}"] if result.interval else []
        texts += [result.verdict] if result.verdict != "one run" else []
        texts += [*result.differences, *[PROJECTED] * result.projected, *result.caveats]
        if texts:
            yield f"{'* ' * bool(result.caveats)}{result.precision or result.what}: {', '.join(texts)}."


def _briefly(result: Result) -> str:
    """Return a result as a sentence with its models, and a star for its caveats."""
    about = ", ".join([result.on, *result.differences, *([PROJECTED] if result.projected else [])])
    interval = f", 95%: {gain(result.interval[0])} to {gain(result.interval[1])}" if result.interval else ""
    return f"{result.said} ({about}{interval}){'*' * bool(result.caveats)}."


def _short(card: str) -> str:
    """Return a card's name for the head of a column."""
    return fitted(card.removeprefix("RTX ").removeprefix("GTX "), 12)


def _tail(answer: Answer, results: Sequence[Result], width: int, *, in_full: bool) -> Iterator[str]:
    """Return what was read, what is not on the screen, the options that print it, and the legend."""
    parts = read_of(answer)
    more = len(answer.comparisons) - len(results)
    plural = "s" * (more > 1)
    if in_full:
        parts += [f"{more} more result{plural} below."] if more else []
    else:
        left = len(answer.left_out) + sum(len(section.left_out) for section in answer.sections)
        parts += [f"{left} note{'s' * (left > 1)} on what was not compared: --all."] if left else []
        parts.append(f"{more} more result{plural}: --all." if more else "Every case: --all.")
        suites = list(dict.fromkeys(result.suite for result in answer.results))
        parts += [f"One suite: --only {fitted(suites[0], 20)}."] if len(suites) > 1 else []
        explained = [result.cases for result in answer.results if result.says_why]
        parts += ["Why: --only roofline."] if any(shown.cases & why for shown in results for why in explained) else []
    yield from wrapped(" ".join(parts), width)
    if width >= NARROW and any(result.baseline for result in results):
        better = "faster" if answer.gain == "speedup" else "better"
        doubt = ["?: no clear verdict."] if any(result.interval and not result.decided for result in results) else []
        signs = " ".join([f"A / B: above 1, A is {better}.", *doubt, *legend(results)])
        yield from wrapped(signs if in_full else signs.replace("has a caveat.", "has a caveat; see --all."), width)
    if results:
        yield from wrapped(CHARTS, width)
