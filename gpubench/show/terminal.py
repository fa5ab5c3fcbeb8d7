"""Findings on one screen of 80 columns: the answer in a sentence, a line each, and how to see the rest."""

from collections.abc import Iterator, Sequence

from gpubench.studies.answer import Answer
from gpubench.studies.finding import Finding

WIDTH = 79
WHAT = 28
"""Characters of what is compared; the longest names are cut."""
MOST = 12
"""Findings on the screen."""
POSITIVE = {
    "faster": "fast", "sooner": "soon", "cheaper": "cheap", "thriftier": "thrifty", "smaller": "small",
    "larger": "large", "better": "accurate",
}  # fmt: skip
COLUMNS = ("speedup", "95%", "verdict", "what", "from")


def screen(answer: Answer, most: int = MOST) -> list[str]:
    """All lines; none is longer than WIDTH, and there are no more than `most` findings and 12 lines around them."""
    findings = answer.findings[:most]
    pair = [each for each in findings if each.kind == "card"]
    alone = len({each.what for each in pair}) == 1 and len({each.suite for each in findings}) == 1
    pair.sort(key=lambda each: each.where != "in fp32")
    drawn = _by_model(pair) if alone and pair[0].of_seconds and len(pair) < 3 else []
    if not drawn or max(map(len, drawn)) > WIDTH or len(drawn) > most:
        return [
            *wrapped(headline(answer.findings)),
            "",
            *_table(findings, answer.gain),
            "",
            *_tail(answer, len(findings)),
        ]
    others = [line for each in findings if each.kind != "card" for line in wrapped(sentence(each))]
    return [
        *wrapped(headline(answer.findings)),
        "",
        *drawn,
        "",
        *others,
        *([""] if others else []),
        *_tail(answer, len(findings)),
    ]


def headline(findings: Sequence[Finding]) -> str:
    """The first finding as a sentence, with the others of the same pair."""
    first = findings[0]
    same = [each for each in findings if (each.kind, each.suite, each.what) == (first.kind, first.suite, first.what)]
    same = [each for each in same if (each.models, each.trials) == (first.models, first.trials)][:3]
    parts = [sentence(first).removesuffix(".")]
    if first.kind == "card" and len(same) > 1:
        parts += [f"{times(each)} {each.where}" for each in same[1:]]
    return f"{', and '.join(parts)} ({basis(first)})."


def sentence(each: Finding) -> str:
    """Who is how much better than whom, and where."""
    where = f" {each.where}" if each.where else ""
    subject = "Mixed precision" if each.subject == "mixed" and each.kind == "precision" else each.subject
    if each.figure:
        return f"{each.subject} has {each.figure} of accuracy against {each.baseline}: {each.where}."
    if each.kind == "ladder":
        return f"The steps from {each.baseline} to {each.subject} make training {times(each)} as fast{where}."
    if each.kind == "scaling":
        return f"{each.subject} train {times(each)} as fast as {each.baseline}: {each.verdict}."
    verb = "trains" if each.kind == "card" and each.best[0] == "faster" else "is"
    return f"{subject} {verb} {times(each)} as {POSITIVE[each.best[0]]} as {each.baseline}{where}."


def told(each: Finding) -> str:
    """The sentence, and what it rests on."""
    return f"{sentence(each).removesuffix('.')} ({basis(each)})."


def times(each: Finding) -> str:
    """`1.42 times`."""
    return f"{number(each.value)} times"


def number(value: float) -> str:
    """Three digits, as a gain is read."""
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.095 else f"{value:.3f}"


def basis(each: Finding) -> str:
    """On what it rests, and what it is worth."""
    runs = "one run each" if each.trials == 1 else f"{each.trials} runs a side"
    words = [each.suite, each.on] if each.on else [each.suite]
    words.append(runs)
    if each.decided and each.interval:
        words.append(f"95%: {number(each.interval[0])} to {number(each.interval[1])}")
    elif each.verdict == "unsure":
        words.append("not sure")
    elif each.trials == 1:
        words.append("so no verdict")
    return ", ".join(words)


def _table(findings: Sequence[Finding], gain: str) -> Iterator[str]:
    head = (gain, *COLUMNS[1:])
    lines = [(*cells[:3], cut(cells[3], WHAT), cells[4]) for cells in map(cells_of, findings)]
    shown = [index for index in range(len(COLUMNS)) if any(line[index] for line in lines)]
    widths = {index: max(len(line[index]) for line in [head, *lines]) for index in shown}
    for line in [head, *lines]:
        cells = [line[at].rjust(widths[at]) if at == 0 else line[at].ljust(widths[at]) for at in shown]
        yield cut(" " + "  ".join(cells).rstrip(), WIDTH)


def cells_of(each: Finding) -> tuple[str, str, str, str, str]:
    """Its line in a table: value, interval, verdict, what, from."""
    interval = f"{number(each.interval[0])} to {number(each.interval[1])}" if each.interval else ""
    precision, _, place = each.where.removeprefix("in ").partition("on ")
    what = f"{each.what} on {place}" if place and each.kind in {"precision", "other"} else each.what
    origin = {
        "card": f"{precision.removesuffix(' precision')}, {each.on}",
        "ladder": f"{each.suite}, {each.on}",
        "trick": each.suite,
        "batch": f"accuracy, {each.where.partition(',')[0]}",
    }.get(each.kind, f"{each.on} {each.settings}" if each.settings else f"{each.suite} {each.on}")
    return each.figure or number(each.value), interval, each.verdict, what, origin


def _by_model(findings: Sequence[Finding]) -> list[str]:
    """Models down, what each side takes across: for findings of one pair."""
    models = list(dict.fromkeys(part.model for each in findings for part in each.parts))
    known = [{part.model: part for part in each.parts} for each in findings]
    heads = [[_short(each.baseline), _short(each.subject), "speedup"] for each in findings]
    lines = []
    for model in models:
        parts = [own.get(model) for own in known]
        texts = [
            [duration(part.baseline), duration(part.subject), number(part.value)] if part else ["", "", ""]
            for part in parts
        ]
        lines.append([model, *(text for three in texts for text in three)])
    if len(models) > 1:
        lines.append(["mean", *(text for each in findings for text in ("", "", number(each.value)))])
    head = ["", *(text for three in heads for text in three)]
    widths = [max(len(line[at]) for line in [head, *lines]) for at in range(len(head))]
    drawn = [
        " " + "  ".join(text.ljust(widths[at]) if at == 0 else text.rjust(widths[at]) for at, text in enumerate(line))
        for line in [head, *lines]
    ]
    over = " " * (widths[0] + 1)
    for at, each in enumerate(findings):
        span = sum(widths[1 + 3 * at : 4 + 3 * at]) + 4
        over += "  " + each.where.removeprefix("in ").center(span)
    return [line.rstrip() for line in [over, *drawn]]


def _short(card: str) -> str:
    return card.removeprefix("RTX ").removeprefix("GTX ")


def duration(seconds: float) -> str:
    """As a person says it: `35 min`, `1 h 45`, `2.1 s`."""
    if seconds < 90:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02}"


def _tail(answer: Answer, shown: int) -> Iterator[str]:
    more = len(answer.findings) - shown
    parts = [f"{answer.files} file{'s' * (answer.files != 1)}, {answer.rows} rows."]
    parts += [f"{more} more finding{'s' * (more > 1)}: --all."] if more else ["Every case: --all."]
    if answer.failed:
        parts.append(f"{answer.failed} row{'s' * (answer.failed > 1)} without a result.")
    suites = list(dict.fromkeys(each.suite for each in answer.findings))
    if len(suites) > 1:
        parts.append(f"One suite in full: --only {suites[0]}.")
    yield from wrapped(" ".join(parts))
    yield "Charts: --charts DIR. A page to pass on: gpubench report FILES."


def wrapped(text: str) -> list[str]:
    """Broken at words to WIDTH."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [cut(each, WIDTH) for each in [*lines, line]]


def cut(text: str, width: int) -> str:
    """No longer than this; what is missing is marked."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
