"""An answer in a terminal: findings on one screen of 80 columns, and on request every section in full."""

import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len

from gpubench.rows.read import shown
from gpubench.show.numbers import duration, interval_text, significant, text_of
from gpubench.studies.section import Answer, Column, Finding, Section, Table
from gpubench.studies.words import gain, read_of

WIDTH, LINES = 79, 25
NAME, FROM = 36, 16
"""Columns of a name, and in a table of findings the least of where they come from."""
FOLDS = 3
"""Lines that a text in a table may take."""
MOST = 12
"""Findings on the screen."""
COLUMNS = ("speedup", "95%", "verdict", "what", "from")
KEYS = 3
"""At most so many of the first columns say which line it is."""
LONGEST = 34
"""Columns of a text in a table that is too wide otherwise."""
LEGEND = {
    "^~": "~: projected from a sample of the run.",
    r"\*$": "*: something speaks against it, as its sentence says.",
    "#": "#: which of several cards or machines of that name.",
}
"""What signs in a table of findings mean, by how they are found."""
CHARTS = "Charts: --charts DIR. A page to pass on: gpubench report FILES."


def screen(answer: Answer, *, in_full: bool = False) -> list[str]:
    """At most LINES lines, none wider than WIDTH; `in_full` where the sections follow."""
    head = [*wrapped(answer.headline)[:4], ""]
    findings = answer.compared[:MOST]
    by_model = _by_model(findings, duration if answer.unit == "s" else significant)
    tail = ["", *_tail(answer, findings, in_full=in_full), CHARTS]
    if by_model and len(head) + len(by_model) + len(tail) <= LINES:
        return [*head, *by_model, *tail]
    while findings:
        tail = ["", *_tail(answer, findings, in_full=in_full), CHARTS]
        table = list(_findings(findings, answer.gain))
        if len(head) + len(table) + len(tail) <= LINES or len(findings) == 1:
            return [*head, *table, *tail]
        findings = findings[:-1]
    return [*head[:-1], *tail]


def everything(answer: Answer, width: int | None = None, *, every_table: bool = True) -> list[str]:
    """Every section: its findings, tables and notes, as wide as the terminal; 80 columns in a pipe."""
    width = (width or shutil.get_terminal_size((WIDTH + 1, LINES)).columns) - 1
    lines: list[str] = []
    for section in answer.sections:
        lines += ["", *_section(section, width, every_table)]
    if answer.left_out:
        lines += ["", "Not compared:", *_items(answer.left_out, width)]
    return lines


def _section(section: Section, width: int, every_table: bool) -> Iterator[str]:
    yield from wrapped(section.title, width)
    yield "-" * min(cell_len(section.title), width)
    yield from _items([finding.sentence for finding in section.findings], width)
    for table in section.tables:
        if every_table or table.name != "evidence":
            yield from ["", *table_lines(table, width)]
    notes = [*section.notes, *([f"Recipe: {section.recipe}"] if section.recipe and every_table else [])]
    yield from ["", *_items(notes, width)] if notes else []
    yield from ["", "Not compared:", *_items(section.left_out, width)] if section.left_out else []


def _items(texts: Sequence[str], width: int) -> Iterator[str]:
    """Each text as an item whose further lines are set in."""
    for text in texts:
        first, *more = wrapped(text, width - 2)
        yield f"- {first}"
        yield from (f"  {line}" for line in more)


def table_lines(table: Table, width: int) -> list[str]:
    """A table no wider than `width`.

    Columns without anything in them are left out; texts and counts that are the same in all lines go into the heading,
    notes below the table. Long texts are folded where it is too wide, and then it is parted into blocks, each of which
    repeats the columns that tell the lines apart.
    """
    head, notes, marks = [table.name], dict[str, str](), [""] * len(table.lines)
    columns: list[tuple[Column, list[str]]] = []
    for at, column in enumerate(table.columns):
        values = [line[at] for line in table.lines]
        texts = [shown(text_of(value, column)) for value in values]
        if not any(texts):
            continue
        if column.note:
            marks = [notes.setdefault(text, _mark(len(notes))) if text else "" for text in texts]
        elif _same(texts, column, at):
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
    return lines + [line for text, mark in notes.items() for line in _noted(mark, text, width)]


def _same(texts: Sequence[str], column: Column, at: int) -> bool:
    """Whether a column says one thing of all lines; of a single line only what does not say which it is."""
    if len(texts) == 1:
        return not column.unit and at >= KEYS
    return column.unit in {"", "count"} and len(set(texts)) == 1


def _mark(number: int) -> str:
    """a, b ... z, aa ..."""
    letter = chr(ord("a") + number % 26)
    return letter if number < 26 else _mark(number // 26 - 1) + letter


def _noted(mark: str, text: str, width: int) -> Iterator[str]:
    head = f"  {mark}: "
    first, *more = wrapped(text, width - len(head))
    yield head + first
    yield from (" " * len(head) + line for line in more)


def _blocks(columns: Sequence[tuple[Column, list[str]]], width: int) -> Iterator[list[str]]:
    """The columns as lines, in as many blocks as the width takes; each begins with what tells the lines apart."""
    if not columns:
        return
    widths = [_widest(*column) for column in columns]
    if sum(widths) + 2 * len(widths) > width:
        widths = [min(wide, LONGEST, max(width - 16, 10)) for wide in widths]
    keys = _keys(columns, widths, width)
    rest = list(range(keys, len(columns)))
    while True:
        chosen = list(range(keys))
        used = sum(widths[at] + 2 for at in chosen) - 1
        while rest and (len(chosen) == keys or used + 2 + widths[rest[0]] <= width):
            used += 2 + widths[rest[0]]
            chosen.append(rest.pop(0))
        block = [columns[at] for at in chosen]
        own = [widths[at] for at in chosen]
        right = [bool(column.unit) for column, _ in block]
        yield [
            *_folded([column.name for column, _ in block], own, right, width),
            *(
                line
                for at in range(len(columns[0][1]))
                for line in _folded([texts[at] for _, texts in block], own, right, width)
            ),
        ]
        if not rest:
            return


def _keys(columns: Sequence[tuple[Column, list[str]]], widths: Sequence[int], width: int) -> int:
    """How many of the first columns, all texts, tell the lines apart and leave half of the width; one at least."""
    for count in range(1, KEYS + 1):
        chosen = columns[:count]
        if any(column.unit for column, _ in chosen) or sum(widths[:count]) + 2 * count > width * 2 // 3:
            return max(1, count - 1)
        if len(set(zip(*(texts for _, texts in chosen), strict=True))) == len(chosen[0][1]):
            return count
    return KEYS


def _widest(column: Column, texts: Sequence[str]) -> int:
    return max(cell_len(column.name), *map(cell_len, texts))


def _folded(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool], width: int) -> Iterator[str]:
    """The cells of a line of a table, those that are too long for their column on further lines."""
    cells = [[text] if cell_len(text) <= wide else folded(text, wide) for text, wide in zip(texts, widths, strict=True)]
    for at in range(max(map(len, cells))):
        parts = [
            _padded(cell[at] if at < len(cell) else "", wide, right=to_right)
            for cell, wide, to_right in zip(cells, widths, right, strict=True)
        ]
        yield cut(" " + "  ".join(parts).rstrip(), width)


def folded(text: str, width: int) -> list[str]:
    """At most FOLDS lines of so many columns, broken at words; what is longer lacks its middle."""
    lines = wrapped(" ".join(fitted(word, width) for word in text.split()), width)
    return lines if len(lines) <= FOLDS else [*lines[: FOLDS - 1], fitted(" ".join(lines[FOLDS - 1 :]), width)]


def _findings(findings: Sequence[Finding], gain: str) -> Iterator[str]:
    own = [bool(each.figure) for each in findings]
    head = ("" if all(own) else "value" if any(own) else gain, *COLUMNS[1:])
    cells = [cells_of(each) for each in findings]
    widths = [max(cell_len(line[at]) for line in [head, *cells]) for at in range(len(head))]
    # What is left beside the figures is shared by what is compared and where it comes from.
    room = WIDTH - 1 - sum(width + 2 for width in widths[:3] if width) - 2
    widths[3:] = _shares(cells, widths[3], widths[4], room)
    columns = [at for at in range(len(head)) if any(line[at] for line in cells)]
    for line, each in zip([head, *cells], [None, *findings], strict=True):
        texts = list(line)
        if each and cell_len(texts[4]) > widths[4]:
            texts[4] = shown(_from(each, on=""))
        across = [widths[at] for at in columns]
        yield from _folded([texts[at] for at in columns], across, [at == 0 for at in columns], WIDTH)


def _shares(cells: Sequence[Sequence[str]], what: int, origin: int, room: int) -> tuple[int, int]:
    """Of the room as much for what is compared and for where it comes from as folds the fewest lines."""

    def lines(origin: int) -> int:
        widths = (room - origin, origin)
        return sum(max(len(folded(text, wide)) for text, wide in zip(line[3:], widths, strict=True)) for line in cells)

    least = min(origin, max(FROM, room - what))
    best = min(range(least, min(origin, room - FROM) + 1), key=lines, default=least)
    return min(what, room - best), best


def _padded(text: str, width: int, *, right: bool) -> str:
    gap = " " * (width - cell_len(text))
    return gap + text if right else text + gap


def cells_of(each: Finding) -> tuple[str, str, str, str, str]:
    """Its line in a table: value, interval, verdict, what, from; LEGEND says what its signs mean."""
    interval = f"{gain(each.interval[0])}-{gain(each.interval[1])}" if each.interval else ""
    place = f" on {each.place}" if each.place else ""
    line = (
        f"{'~' * each.projected}{each.figure or gain(each.value)}",
        interval,
        f"{'partly' if each.sure else each.verdict}{'*' * bool(each.doubts)}",
        each.what + place,
        _from(each, each.on),
    )
    return tuple(shown(text) for text in line)  # type: ignore[return-value]


def _from(each: Finding, on: str) -> str:
    """Where it comes from; its models are the part that never tells it from another."""
    return ", ".join(part for part in (each.origin, *each.settings, on) if part)


def legend(findings: Sequence[Finding]) -> list[str]:
    """What the signs in a table of these findings mean."""
    cells = [cells_of(each) for each in findings]
    return [
        said
        for sign, said in LEGEND.items()
        if any(re.search(sign, text) for line in cells for text in (line[0], line[2], line[3]))
    ]


def _by_model(findings: Sequence[Finding], figure: Callable[[float], str]) -> list[str]:
    """Models down, what each side takes across; none where the findings are more than this table can hold.

    It holds one pair of cards in one suite, in one precision or two, without a verdict; precisions become sentences.
    """
    cards = sorted((each for each in findings if each.kind == "card"), key=lambda each: each.precision != "fp32")
    others = [each for each in findings if each.kind != "card"]
    known = [{part.model: part for part in each.parts} for each in cards]
    alike = {(each.what, each.verdict, each.settings) for each in cards}
    plain = all(
        not (each.unit or each.caveats or each.projected or each.figure) and each.verdict == "one run" for each in cards
    )
    whole = all(len(own) == len(each.parts) for own, each in zip(known, cards, strict=True))  # each model once
    if not (len(alike) == 1 and len({each.where for each in cards}) == len(cards) <= 2 and plain and whole):
        return []
    if len({each.suite for each in findings}) > 1 or any(each.kind != "precision" for each in others):
        return []
    head = ["", *(text for each in cards for text in (_short(each.baseline), _short(each.subject), "speedup"))]
    lines = []
    for model in dict.fromkeys(name for own in known for name in own):
        parts = [own.get(model) for own in known]
        texts = [(figure(p.baseline), figure(p.subject), gain(p.value)) if p else ("", "", "") for p in parts]
        lines.append([fitted(model, NAME), *(text for three in texts for text in three)])
    if len(lines) > 1:
        means = [f"{gain(each.value)}{'*' * bool(each.doubts)}" for each in cards]
        lines.append(["mean", *(text for mean in means for text in ("", "", mean))])
    widths = [max(cell_len(line[at]) for line in [head, *lines]) for at in range(len(head))]
    drawn = [
        " " + "  ".join(_padded(text, widths[at], right=at > 0) for at, text in enumerate(line))
        for line in [head, *lines]
    ]
    over = " " * (widths[0] + 1)
    for at, each in enumerate(cards):
        over += "  " + each.precision.center(sum(widths[1 + 3 * at : 4 + 3 * at]) + 4)
    doubts = [f"* in {each.precision}: {'; '.join(each.doubts)}." for each in cards if each.doubts]
    said = [line for text in [*doubts, *(each.sentence for each in others)] for line in wrapped(text)]
    drawn = [line.rstrip() for line in [over, *drawn, *([""] if said else []), *said]]
    return drawn if max(map(cell_len, drawn)) <= WIDTH else []


def _short(card: str) -> str:
    return fitted(card.removeprefix("RTX ").removeprefix("GTX "), 12)


def _tail(answer: Answer, findings: Sequence[Finding], *, in_full: bool) -> Iterator[str]:
    """What was read, what else there is beside these findings, and how to see it."""
    parts = read_of(answer)
    more = len(answer.compared) - len(findings)
    plural = "s" * (more > 1)
    if in_full:
        parts += [f"{more} more finding{plural} below."] if more else []
    else:
        left = len(answer.left_out) + sum(len(section.left_out) for section in answer.sections)
        parts += [f"{left} kind{'s' * (left > 1)} of rows not compared (--all says why)."] if left else []
        parts.append(f"{more} more finding{plural}: --all." if more else "Every case: --all.")
        suites = list(dict.fromkeys(each.suite for each in answer.findings))
        parts += [f"One suite: --only {fitted(suites[0], 20)}."] if len(suites) > 1 else []
        explained = frozenset[int]().union(*(each.cases for each in answer.findings if each.names_bound))
        parts += ["Why: --only roofline."] if any(each.cases & explained for each in findings) else []
    yield from wrapped(" ".join(parts))
    if any(each.baseline for each in findings):
        good = "as fast" if answer.gain == "speedup" else "as good"
        signs = " ".join([f"A / B: how many times {good} A is; below 1 it is worse.", *legend(findings)])
        yield from wrapped(signs if in_full else signs.replace("its sentence says", "its sentence (--all) says"))


def wrapped(text: str, width: int = WIDTH) -> list[str]:
    """Broken at words to a width, without what steers a terminal."""
    lines, line = [], ""
    for word in shown(text).split():
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [cut(each, width) for each in [*lines, line]]


def fitted(text: str, width: int) -> str:
    """A name in so many columns: without what steers a terminal, and where it is long without its middle."""
    text = shown(text)
    while cell_len(text) > width:
        keep = max(1, len(text) - max(3, math.ceil((cell_len(text) - width) / 2) + 2))
        head = keep * 3 // 5
        text = f"{text[:head]}..{text[len(text) - (keep - head) :]}"
    return text


def cut(text: str, width: int) -> str:
    """No wider than this; what is missing at the end is marked."""
    if cell_len(text) <= width:
        return text
    text = text[: 4 * width]  # of a text of megabytes not one letter after the other
    while cell_len(text) > width - 2:
        text = text[:-1]
    return text.rstrip() + ".."
