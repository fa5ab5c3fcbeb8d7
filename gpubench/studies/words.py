"""How findings are put into words: names, gains, what they rest on, and what sets like ones apart."""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from gpubench.analysis.cells import Cell, text_of
from gpubench.analysis.metrics import Metric
from gpubench.analysis.specimens import unit_of, units_of
from gpubench.errors import UserError
from gpubench.rows.params import params_of, params_text, params_without
from gpubench.rows.read import shown
from gpubench.studies.section import DECIDED, Answer, Finding
from gpubench.suite import files

NAME, FACT, DOUBT = 36, 60, 120
"""Characters of a name, of a fact and of a doubt in a sentence."""
PROJECTED = "projected from a sample"
MARKED = {"shared": "shared with other programs", "clock_fell": "with a falling clock"}
"""What is said of a run with a mark, where that is not the mark itself."""
COMMON = {
    "suite_version": "version {}",
    "data": "{}",
    "weights": "{} weights",
    "mode": "{}",
    "processes": "{} processes",
}
"""What rows of one group share, and how it is said."""
POSITIVE = {
    "faster": "fast", "sooner": "soon", "cheaper": "cheap", "thriftier": "thrifty", "smaller": "small",
    "larger": "large", "better": "accurate",
}  # fmt: skip
"""How good what is better by a metric's word is."""


def gain(value: float) -> str:
    """Three digits, as a gain is read."""
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


def times(value: float) -> str:
    """`1.42 times`."""
    return f"{gain(value)} times"


def name(text: str, width: int = NAME) -> str:
    """A name in a sentence: nothing that steers a terminal, and of a long one not the middle."""
    text = shown(text)
    keep = (width - 2) * 3 // 5
    return text if len(text) <= width else f"{text[:keep]}..{text[keep + 2 - width :]}"


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def better(
    subject: str, baseline: str, value: float | tuple[float, float], verdict: str, metric: Metric, verb: str = "be"
) -> str:
    """`A is 1.42 times as fast as B`, or of two values `1.08 to 4.34 times`; `may be` where nobody is sure."""
    does = f"may {verb}" if verdict == "unsure" else {"be": "is"}.get(verb, f"{verb}s")
    if isinstance(value, tuple):
        much = f"{gain(value[0])} to {times(value[1])}"
    else:
        much = "about" if gain(value) == gain(1) else times(value)
    return f"{subject} {does} {much} as {POSITIVE[metric.words[0]]} as {baseline}"


def runs(trials: tuple[int, int]) -> str:
    """How many runs of each side."""
    one, other = trials
    if not other:
        return f"{one} run{'s' * (one != 1)}"
    return f"{one} and {other} runs" if one != other else "one run each" if one == 1 else f"{one} runs a side"


def basis(finding: Finding) -> str:
    """On what a finding rests, and what it is worth."""
    words = [finding.suite, finding.on, *finding.settings[:2], runs(finding.trials)]
    if finding.interval:
        words.append(f"95%: {gain(finding.interval[0])} to {gain(finding.interval[1])}")
    if finding.sure:
        words.append(f"{finding.sure[0]} of {len(finding.parts)} {finding.sure[1]}, not sure of the others")
    elif finding.verdict not in {*DECIDED, "no test", ""}:
        reasons = {"one run": "so no verdict", "unsure": "not sure"}
        words.append(reasons.get(finding.verdict, f"{finding.verdict}: no verdict"))
    words += [*finding.caveats, *([PROJECTED] if finding.projected else [])]
    return ", ".join([*(name(word, FACT) for word in words if word), *(name(doubt, DOUBT) for doubt in finding.doubts)])


def author(source: str) -> str:
    """Who published a figure, from where it was."""
    return name(source.removeprefix("github.com/").partition("/")[0].partition(",")[0])


def labels_of(cells: Sequence[Cell]) -> list[str]:
    """Their cards, without the name of who measured where that is the same of all."""
    sources = {cell.source for cell in cells}
    source = sources.pop() if len(sources) == 1 else ""
    return [without_author(cell.label, source) for cell in cells]


def without_author(label: str, source: str) -> str:
    """A card's label without the name of who measured it."""
    return label.removesuffix(f" ({author(source)})") if source else label


def facts_of(cell: Cell) -> dict[str, str]:
    """What its group shares, by name, in words."""
    facts = {column: words.format(text_of(cell.row[column])) for column, words in COMMON.items()}
    facts = {column: facts[column] for column in COMMON if text_of(cell.row[column]) not in {"", "0"}}
    if cell.source:
        facts["source"] = f"by {author(cell.source)}"
    return facts | settings_of(cell.suite, cell.number("suite_version"), cell.model, cell.params)


def settings_of(suite: str, version: object, model: str, params: str) -> dict[str, str]:
    """Return the parameters by name, as `name=value`; a 0 that is the suite's default means "chosen by the recipe"."""
    usual = _usual(suite, version, model, params)
    return {
        name: f"default {name}" if value in {"0", "0.0"} and usual.get(name) == value else f"{name}={value}"
        for name, value in params_of(params).items()
    }


def apart(keys: Sequence[Hashable], facts: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """For each of several things the facts, as few as are needed, that tell it from the others of its key."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for at, key in enumerate(keys):
        alike[key].append(at)
    found: list[tuple[str, ...]] = [()] * len(keys)
    for members in alike.values():
        names = _telling([facts[at] for at in members]) if len(members) > 1 else []
        for at in members:
            found[at] = tuple(filter(None, (facts[at].get(name) for name in names)))
    return found


def _telling(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Names of facts by which these differ, as they come: but first those that all have, and words before settings."""

    def place(fact: str) -> tuple[object, ...]:
        texts = [own.get(fact, "") for own in facts]
        return not all(texts), any("=" in text for text in texts)

    every = dict.fromkeys(fact for own in facts for fact in own)
    kinds: list[Hashable] = [()] * len(facts)
    chosen = []
    for fact in sorted(every, key=place):
        finer: list[Hashable] = [(kind, own.get(fact, "")) for kind, own in zip(kinds, facts, strict=True)]
        numbers = {kind: at for at, kind in enumerate(dict.fromkeys(finer))}
        if len(numbers) > len(set(kinds)):
            chosen.append(fact)
            kinds = [numbers[kind] for kind in finer]
    return chosen


def title_of(cells: Sequence[Cell]) -> str:
    """What a group of cells has in common, in words: what is as usual in its suite is left out."""

    def common(column: str) -> str:
        values = {text_of(cell.row[column]) for cell in cells}
        return values.pop() if len(values) == 1 else ""

    epochs, data, processes = common("epochs"), common("data"), common("processes")
    length = f"{epochs} epoch{'s' * (epochs != '1')}" if epochs else ""
    parts = [f"{length} of {data}" if length and data else length or data]
    parts += [f"{common('weights')} weights" if common("weights") else "", common("mode")]
    parts[-1] += f" by {author(common('source'))}" if common("source") else ""
    parts += [f"{processes} processes" if processes not in {"", "1"} else "", *_unusual(cells)]
    return shown(f"{common('suite')}: {', '.join(part for part in parts if part)}")


def _unusual(cells: Sequence[Cell]) -> Iterator[str]:
    """Parameters that all cells share and that are not what their suite has by default."""
    first = cells[0]
    usual = _usual(first.suite, first.number("suite_version"), first.model, first.params)
    for name, value in sorted(_shared(cells).items()):
        if usual and usual.get(name) != value and name != "epochs":
            yield f"{name}={value}"


def _shared(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the parameters that all cells have alike."""
    params = [params_of(cell.params) for cell in cells]
    return {name: value for name, value in params[0].items() if all(p.get(name) == value for p in params)}


@cache
def _usual(suite_name: str, version: object, model: str, params: str) -> Mapping[str, str]:
    """Return the default parameters of a built-in suite, with those that follow from a preset.

    Empty for rows of another version of the suite: its defaults may have been others.
    """
    try:
        found = _built_in(suite_name)
        if found is None or found.suite.version != version:
            return {}
        own = params_of(params)
        chosen = {name: own[name] for name in found.suite.presets if name in own}
        preset = {**found.resolve_params(chosen, model)}
        preset |= {name: found.suite.params[name].default for name in chosen}
        return params_of(params_text(preset))
    except UserError:
        return {}


@cache
def _built_in(name: str) -> files.LoadedSuite | None:
    return files.find(name) if name in files.built_in_names() else None


def recipe_of(cells: Sequence[Cell]) -> str:
    """Every parameter that all cells share, as rows have it."""
    return shown(params_without(cells[0].params, params_of(cells[0].params).keys() - _shared(cells)))


def notes_of(cell: Cell) -> str:
    """What to know about a case, in words."""
    notes = ["projected"] if cell.measured == "projected" else []
    if cell.parts:
        notes.append(f"{len(units_of(cell))} {'sessions' if unit_of(cell) == 'session' else 'specimens'}")
    notes += [*marks_of([cell]), *([cell.lost_note] if cell.lost else [])]
    notes += ["synthetic data"] if cell.data == "synthetic" else []
    return "; ".join([*notes, cell.reason] if cell.reason else notes)


def marks_of(cells: Iterable[Cell], what: str = "") -> list[str]:
    """What speaks against some of their trials, as `2 of 6 throttled`."""
    own = list({id(cell): cell for cell in cells}.values())
    marks = sum((Counter(cell.marks) for cell in own), Counter[str]())
    return marked(marks, sum(cell.trials for cell in own), what)


def doubts_of(cells: Sequence[Cell]) -> tuple[str, ...]:
    """What speaks against figures that are made of these."""
    contradicting = [f"{cell.model}: {cell.contradicting}" for cell in cells if cell.contradicting]
    return *marks_of(cells, "runs "), *remarks_of(cells), *dict.fromkeys(contradicting)


def marked(marks: Mapping[str, int], total: int, what: str = "") -> list[str]:
    """How many of so many have each mark."""
    return [f"{count} of {total} {what}{MARKED.get(mark, mark)}" for mark, count in sorted(marks.items())]


def remarks_of(cells: Iterable[Cell]) -> list[str]:
    """What their rows say of themselves and not of all of these, with the models."""
    said = {id(cell): (cell.model, cell.reason.split("; ") if cell.reason else []) for cell in cells}
    shared = set.intersection(*(set(texts) for _, texts in said.values())) if said else set()
    models: dict[str, dict[str, None]] = defaultdict(dict)
    for model, texts in said.values():
        for text in texts:
            if text not in shared:
                models[text][model] = None
    return [f"{listed(names)}: {text}" for text, names in models.items()]


def origin(cells: Sequence[Cell]) -> str:
    """The foot of a chart: what its figures are, of how many trials, by which software."""
    trials = sorted({cell.trials for cell in cells})
    counts = str(trials[0]) if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    sources = dict.fromkeys(cell.source for cell in cells if cell.source)
    facts = [
        f"{' and '.join(dict.fromkeys(cell.measured for cell in cells))}, {counts} run{'s' * (trials[-1] > 1)} each"
    ]
    facts += marks_of(cells)
    facts += (
        [f"torch {' and '.join(versions)}"] if (versions := dict.fromkeys(c.torch for c in cells if c.torch)) else []
    )
    return shown("; ".join([*facts, *sources]))


def read_of(answer: Answer) -> list[str]:
    """What was read, in sentences; where the answer is about all rows, also how many gave nothing to compare."""
    files = f"{answer.files:,} file{'s' * (answer.files != 1)}"
    rows = f"{answer.rows:,} row{'s' * (answer.rows != 1)}"
    if not answer.rows:
        return [f"{files}, no rows."] if answer.files else []
    if answer.about < answer.rows:
        return [f"{answer.about:,} of {rows}{f' in {files}' if answer.files else ''}."]
    told = [f"{files}, {rows}." if answer.files else f"{rows}."]
    told += [f"{answer.stopped:,} not finished."] if answer.stopped else []
    told += [f"{answer.failed - answer.stopped:,} without a result."] if answer.failed > answer.stopped else []
    told += [f"{answer.missed:,} missed the goal."] if answer.missed else []
    return told


def slug(text: str) -> str:
    """A text as a part of a file's name."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return plain if len(plain) <= 100 else f"{plain[:80]}-{plain[-19:].strip('-')}"
