"""Findings on one screen of 80 columns: the answer in a sentence, a line each, and how to see the rest."""

import math
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from gpubench.rows.read import shown
from gpubench.studies.answer import Answer
from gpubench.studies.finding import Finding

WIDTH, LINES = 79, 25
NAME, WHAT, FACT = 36, 28, 60
"""Columns of a name in a sentence, of what is compared in a table, of a caveat."""
MOST = 12
"""Findings on the screen."""
COLUMNS = ("speedup", "95%", "verdict", "what", "from")
POSITIVE = {
    "faster": "fast", "sooner": "soon", "cheaper": "cheap", "thriftier": "thrifty", "smaller": "small",
    "larger": "large", "better": "accurate",
}  # fmt: skip


def screen(answer: Answer) -> list[str]:
    """At most LINES lines, none wider than WIDTH."""
    findings = answer.findings[:MOST]
    head, tail = [*wrapped(headline(answer.findings))[:4], ""], ["", *_tail(answer, len(findings))]
    by_model = _by_model(findings)
    if by_model and len(head) + len(by_model) + len(tail) <= LINES:
        return [*head, *by_model, *tail]
    return [*head, *_table(findings, answer.gain), *tail]


def headline(findings: Sequence[Finding]) -> str:
    """The first finding as a sentence, with what the same pair did elsewhere where that is as sure."""
    first = findings[0]
    alike = [each for each in findings if _basis(each) == _basis(first) and each.what == first.what]
    if first.kind != "card" or first.interval or len({each.where for each in alike}) < len(alike):
        return told(first)
    parts = [sentence(first).removesuffix("."), *(f"{times(each)} {each.where}" for each in alike[1:3])]
    return f"{', and '.join(parts)} ({basis(first)})."


def _basis(each: Finding) -> tuple[object, ...]:
    return (
        each.kind,
        each.suite,
        each.models,
        each.trials,
        each.verdict,
        each.settings,
        each.caveats,
        bool(each.interval),
    )


def sentence(each: Finding) -> str:
    """Who is how much better than whom, and where."""
    subject, baseline = fitted(each.subject, NAME), fitted(each.baseline, NAME)
    where = f" {fitted(each.where, NAME + 20)}" if each.where else ""
    if each.figure:
        return f"{subject} has {each.figure} of accuracy against {baseline}."
    if each.kind == "ladder":
        return f"The steps from {baseline} to {subject} make training {times(each)} as fast{where}."
    if each.kind == "scaling":
        return f"{subject} train {times(each)} as fast as {baseline}{where}: {each.verdict}."
    if each.kind == "precision" and subject == "mixed":
        subject = "Mixed precision"
    trains = each.kind == "card" and each.best == "faster"
    verb = ("may train" if trains else "may be") if each.verdict == "unsure" else "trains" if trains else "is"
    unit = f" in {each.unit}" if each.unit else ""
    return f"{subject} {verb} {times(each)} as {POSITIVE[each.best]} as {baseline}{where}{unit}."


def told(each: Finding) -> str:
    """The sentence, and what it rests on."""
    return f"{sentence(each).removesuffix('.')} ({basis(each)})."


def times(each: Finding) -> str:
    """`1.42 times`."""
    return f"{number(each.value)} times"


def number(value: float) -> str:
    """Three digits, as a gain is read."""
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


def basis(each: Finding) -> str:
    """On what it rests, and what it is worth."""
    one, other = each.trials
    runs = f"{one} and {other} runs" if one != other else "one run each" if one == 1 else f"{one} runs a side"
    words = [each.suite, each.on, *each.settings[:2], runs]
    if each.kind in {"card", "precision", "other", "trick"} and each.of_seconds:
        if each.interval:
            words.append(f"95%: {number(each.interval[0])} to {number(each.interval[1])}")
        if not each.decided:
            words.append(
                {"one run": "so no verdict", "unsure": "not sure"}.get(each.verdict, f"{each.verdict}: no verdict")
            )
    return ", ".join(fitted(word, FACT) for word in (*words, *each.caveats) if word)


def _table(findings: Sequence[Finding], gain: str) -> Iterator[str]:
    head = (gain, *COLUMNS[1:])
    lines = [(*cells[:3], _pair(each), cells[4]) for each, cells in ((each, cells_of(each)) for each in findings)]
    columns = [at for at in range(len(head)) if any(line[at] for line in lines)]
    widths = {at: max(cell_len(line[at]) for line in [head, *lines]) for at in columns}
    for line in [head, *lines]:
        yield cut(" " + "  ".join(_padded(line[at], widths[at], right=at == 0) for at in columns).rstrip(), WIDTH)


def _padded(text: str, width: int, *, right: bool) -> str:
    gap = " " * (width - cell_len(text))
    return gap + text if right else text + gap


def cells_of(each: Finding) -> tuple[str, str, str, str, str]:
    """Its line in a table: value, interval, verdict, what, from."""
    interval = f"{number(each.interval[0])} to {number(each.interval[1])}" if each.interval else ""
    place = f" on {each.place}" if each.place and each.kind in {"precision", "other"} else ""
    on = each.on if each.settings else f"{each.suite} {each.on}"
    origin = {
        "card": [each.precision.removesuffix(" precision"), each.on],
        "ladder": [each.suite, each.on],
        "trick": [each.suite],
        "batch": [each.on],
        "other": [each.precision, on],
    }.get(each.kind, [on])
    line = (
        each.figure or number(each.value),
        interval,
        each.verdict,
        each.what + place,
        ", ".join([*origin, *each.settings]),
    )
    return tuple(shown(text) for text in line)  # type: ignore[return-value]


def _pair(each: Finding) -> str:
    """What is compared, in WHAT columns: of long names the middle is left out."""
    text = shown(cells_of(each)[3])
    if cell_len(text) <= WHAT:
        return text
    place = f" on {fitted(each.place, 11)}" if each.place and each.kind in {"precision", "other"} else ""
    room = (WHAT - len(place) - 3) // 2
    return f"{fitted(each.subject, room)} / {fitted(each.baseline, room)}{place}"


def _by_model(findings: Sequence[Finding]) -> list[str]:
    """Models down, what each side takes across; none where the findings are more than this table can hold.

    It holds one pair of cards in one suite, in one precision or two, without a verdict; precisions become sentences.
    """
    cards = sorted((each for each in findings if each.kind == "card"), key=lambda each: each.precision != "fp32")
    others = [each for each in findings if each.kind != "card"]
    known = [{part.model: part for part in each.parts} for each in cards]
    alike = {(each.what, each.verdict, each.settings) for each in cards}
    plain = all(each.of_seconds and not each.decided for each in cards)
    whole = all(len(own) == len(each.parts) for own, each in zip(known, cards, strict=True))  # each model once
    if not (len(alike) == 1 and len({each.where for each in cards}) == len(cards) <= 2 and plain and whole):
        return []
    if len({each.suite for each in findings}) > 1 or any(each.kind != "precision" for each in others):
        return []
    head = ["", *(text for each in cards for text in (_short(each.baseline), _short(each.subject), "speedup"))]
    lines = []
    for model in dict.fromkeys(name for own in known for name in own):
        parts = [own.get(model) for own in known]
        texts = [(duration(p.baseline), duration(p.subject), number(p.value)) if p else ("", "", "") for p in parts]
        lines.append([fitted(model, NAME), *(text for three in texts for text in three)])
    if len(lines) > 1:
        lines.append(["mean", *(text for each in cards for text in ("", "", number(each.value)))])
    widths = [max(cell_len(line[at]) for line in [head, *lines]) for at in range(len(head))]
    drawn = [
        " " + "  ".join(_padded(text, widths[at], right=at > 0) for at, text in enumerate(line))
        for line in [head, *lines]
    ]
    over = " " * (widths[0] + 1)
    for at, each in enumerate(cards):
        over += "  " + each.precision.center(sum(widths[1 + 3 * at : 4 + 3 * at]) + 4)
    said = [line for each in others for line in wrapped(told(each))]
    drawn = [line.rstrip() for line in [over, *drawn, *([""] if said else []), *said]]
    return drawn if max(map(cell_len, drawn)) <= WIDTH else []


def _short(card: str) -> str:
    return fitted(card.removeprefix("RTX ").removeprefix("GTX "), 12)


def duration(seconds: float) -> str:
    """As a person says it: `35 min`, `1 h 45`, `2.1 s`."""
    if seconds < 90:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02}"


def _tail(answer: Answer, seen: int) -> Iterator[str]:
    parts = [f"{answer.files} file{'s' * (answer.files != 1)}, {answer.rows} row{'s' * (answer.rows != 1)}."]
    if answer.failed:
        parts.append(f"{answer.failed} without a result.")
    if answer.left_out and not answer.in_full:
        parts.append(f"{answer.left_out} kind{'s' * (answer.left_out > 1)} of rows not compared.")
    if not answer.in_full:
        more = len(answer.findings) - seen
        parts.append(f"{more} more finding{'s' * (more > 1)}: --all." if more else "Every case: --all.")
        suites = list(dict.fromkeys(each.suite for each in answer.findings))
        parts += [f"One suite in full: --only {fitted(suites[0], 20)}."] if len(suites) > 1 else []
    yield from wrapped(" ".join(parts))
    yield "Charts: --charts DIR. A page to pass on: gpubench report FILES."


def wrapped(text: str) -> list[str]:
    """Broken at words to WIDTH."""
    lines, line = [], ""
    for word in text.split():
        if line and cell_len(line) + 1 + cell_len(word) > WIDTH:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [cut(each, WIDTH) for each in [*lines, line]]


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
    while cell_len(text) > width - 2:
        text = text[:-1]
    return text.rstrip() + ".."
