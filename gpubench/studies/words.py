"""Texts for studies and `show`: ratios, times, names, runs, caveats, titles, the foot (text below) of a chart."""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from gpubench.analysis.groups import Group, short, text_of
from gpubench.analysis.metrics import Metric
from gpubench.analysis.specimens import unit_of, units_of
from gpubench.errors import UserError
from gpubench.printed import DATA_NAMES, MARKED, shortened, shown
from gpubench.rows.alike import SPECIMEN, STACK
from gpubench.rows.params import params_of, params_text, params_without
from gpubench.studies.section import DECIDED, Result, Section
from gpubench.suite import files

NAME, FACT, CAVEAT = 36, 60, 120
"""Maximum lengths, in characters, of a name, a setting and a caveat."""
MOST_NAMED = 3
"""Maximum versions or batches that the foot of a chart names."""
PROJECTED = "projected from a sample"
COMMIT = re.compile(r"@[0-9a-f]{7,40}\b")
COMMON = {
    "suite_version": "version {}", "data": "{}", "weights": "{} weights", "mode": "{}", "processes": "{} processes",
}  # fmt: skip
"""Columns that the rows of a group share, and their words."""
POSITIVE = {
    "faster": "fast", "sooner": "soon", "cheaper": "cheap", "thriftier": "thrifty", "smaller": "small",
    "larger": "large", "better": "accurate", "lower": "low",
}  # fmt: skip
"""Adjective for the better of a metric's two verdicts, for use in sentences."""


def gain(value: float) -> str:
    """Return a ratio as text: with one decimal from 10 on, two decimals below, and two digits below 0.095."""
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


def times(value: float) -> str:
    """Return a ratio as `1.42 times`."""
    return f"{gain(value)} times"


def range_text(ends: tuple[float, float]) -> str:
    """Return two ratios as `1.08-4.34`."""
    return f"{gain(ends[0])}-{gain(ends[1])}"


def ends_of(result: Result, between: str = " to ") -> str:
    """Return the ends of the interval of a result, `1.33 to 1.58`, with their signs if they are points; else empty."""
    return between.join(f"{end:+.2f}" if result.is_points else gain(end) for end in result.interval or ())


def name(text: str, width: int = NAME) -> str:
    """Return a name without control characters; the middle of a long one is cut."""
    return shortened(text, width)


def data_name(data: str) -> str:
    """Return the names of the data of a row, such as `CIFAR-10 and CIFAR-100`."""
    return listed(DATA_NAMES.get(part, part) for part in data.split("+"))


def sample_of(suite_name: str) -> str:
    """Return what a sample of a built-in suite is, such as `tokens`; `samples` for other suites."""
    return loaded.suite.unit if (loaded := files.built_in(suite_name)) else "samples"


def listed(names: Iterable[str], most: int = 0, what: str = "more") -> str:
    """Return `a`, `a and b` or `a, b and c`; if there are over `most` + 1, `a, b and 7 more`."""
    texts = list(names)
    if most and len(texts) > most + 1:
        texts[most:] = [f"{len(texts) - most} {what}"]
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def better(
    subject: str, baseline: str, value: float | tuple[float, float], verdict: str, metric: Metric, verb: str = "be"
) -> str:
    """Return `A is 1.42 times as fast as B`, or `1.08 to 4.34 times` for two values; `may be` if undecided.

    For accuracies the value is a difference: `A is 0.30 points less accurate than B`.
    """
    does = f"may {verb}" if verdict == "undecided" else {"be": "is"}.get(verb, f"{verb}s")
    if metric.by_loss and isinstance(value, float) and abs(value) >= 0.005:
        much = f"{abs(value):.2f} points {'less' if value < 0 else 'more'}"
        return f"{subject} {does} {much} {POSITIVE[metric.words[0]]} than {baseline}"
    if isinstance(value, tuple):
        much = f"{gain(value[0])} to {times(value[1])}"
    else:
        much = "about" if metric.by_loss or gain(value) == gain(1) else times(value)
    return f"{subject} {does} {much} as {POSITIVE[metric.words[0]]} as {baseline}"


def runs(trials: tuple[int, int]) -> str:
    """Return the number of runs per side."""
    one, other = trials
    if not other:
        return f"{one} run{'s' * (one != 1)}"
    return f"{one} and {other} runs" if one != other else "1 run each" if one == 1 else f"{one} runs per side"


def without_test(trials: tuple[int, int]) -> str:
    """Return the reason for no verdict where nothing is tested, from the fewest runs of each side."""
    return "one run" if min(trials) == 1 else "no test"


def basis(result: Result) -> str:
    """Return suite, models, settings (not `synthetic` beside `synthetic data`), runs, interval and caveats as text."""
    settings = [text for text in result.settings if not any(d.startswith(f"{text} ") for d in result.differences)]
    words = [result.suite, result.models_beside(result.said), *settings[:2]]
    count = f"at least {runs(result.trials)} each" if len(result.models) > 1 > result.trials[1] else runs(result.trials)
    words.append(count + ": rough" * (result.verdict == "one run"))
    of_mean = " of the mean" * bool(result.figure)
    words += [f"95%{of_mean}: {ends_of(result)}{' points' * result.is_points}"] if result.interval else []
    words.append(result.verdict if result.is_points and result.decided else why_undecided(result))
    words += [*result.differences, *([PROJECTED] if result.projected else [])]
    texts = [*(name(word, FACT) for word in words if word), *(name(caveat, CAVEAT) for caveat in result.caveats)]
    return ", ".join(texts)


def why_undecided(result: Result) -> str:
    """Return `undecided`, or why there is no verdict; empty for a verdict, and if nothing was tested."""
    if result.sure:
        return f"{result.sure[0]} of {len(result.parts)} {result.sure[1]}, the rest undecided"
    if result.verdict in {*DECIDED, "one run", "no test", ""}:
        return ""
    return "undecided" if result.verdict == "undecided" else f"no verdict: {result.verdict}"


def time_unit(seconds: float) -> tuple[int, str]:
    """Return the unit in which a time is shown: its seconds and its name."""
    if seconds > 100 * 3600:
        return 86_400, "days"
    return (3600, "h") if seconds >= 7200 else (60, "min") if seconds >= 180 else (1, "s")


def time(seconds: float, whole: float | None = None) -> str:
    """Return a time with three digits, such as `2.37 h`. A part of a `whole` time gets the unit of the whole."""
    unit, unit_name = time_unit(whole or seconds)
    return f"{seconds / unit:.3g} {unit_name}"


def author(source: str) -> str:
    """Return who published a figure, from its source."""
    return name(source.removeprefix("github.com/").partition("/")[0].partition(",")[0])


def without_commit(source: str) -> str:
    """Return a source without its commit."""
    return COMMIT.sub("", source)


def labels_of(groups: Sequence[Group]) -> list[str]:
    """Return the labels of the cards, without the author if all have the same author.

    If cases of one model differ in parameters (`--by compile`), the label has those: `RTX 2080 Ti, compile=true`.
    """
    sources = {group.source for group in groups}
    source = sources.pop() if len(sources) == 1 else ""
    values = {(group.model, *setting) for group in groups for setting in params_of(group.params).items()}
    counts = Counter((model, name) for model, name, _ in values)
    compared = {name for (_, name), count in counts.items() if count > 1}

    def label(group: Group) -> str:
        settings = [f"{name}={value}" for name, value in params_of(group.params).items() if name in compared]
        return ", ".join([without_author(group.label, source), *settings])

    return list(map(label, groups))


def without_author(label: str, source: str) -> str:
    """Return a card's label without the author of its figures."""
    return label.removesuffix(f" ({author(source)})") if source else label


def facts_of(group: Group) -> dict[str, str]:
    """Return what the rows of a group share: texts by name."""
    texts = {column: text_of(group.row[column]) for column in COMMON}
    facts = {column: COMMON[column].format(text) for column, text in texts.items() if text not in {"", "0"}}
    facts |= {"processes": "1 process"} if texts["processes"] == "1" else {}
    if group.source:
        facts["source"] = f"by {author(group.source)}"
    return facts | settings_of(group.row)


def settings_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters by name, as `name=value`, or as `default name` if it is 0 by default."""
    params = str(row.get("params", ""))
    usual = _usual(str(row["suite"]), row.get("suite_version"), str(row.get("model", "")), params)
    return {
        name: f"default {name}" if value in {"0", "0.0"} and usual.get(name) == value else f"{name}={value}"
        for name, value in params_of(params).items()
    }


def behind(groups: Iterable[Group]) -> frozenset[int]:
    """Return the case numbers of these groups, which identify their rows."""
    return frozenset(number for group in groups for number in group.cases)


def section_of(
    groups: Sequence[Group], study: str, about: str = "", results: Iterable[Result] = (), **more: Any
) -> Section:
    """Return a section about these groups; `about` ends its title, `more` are its further fields."""
    fields = {"recipe": recipe_of(groups), "cases": behind(groups)} | more
    return Section(study, groups[0].suite, f"{title_of(groups)}{about}", tuple(results), **fields)


def result_of(groups: Sequence[Group], kind: str, subject: str, value: float, claim: str, **more: Any) -> Result:
    """Return a result of figures that are computed from these groups; `more` are further fields of it."""
    first = groups[0]
    fields: dict[str, Any] = {
        "models": tuple(dict.fromkeys(group.model for group in groups)),
        "trials": (max(min(group.trials for group in groups), 1), 0),
        "facts": facts_of(first),
        "differences": ("missed the goal",) if first.status == "goal_missed" else (),
        "caveats": caveats_of(groups),
        "projected": any(group.measured == "projected" for group in groups),
        "cases": behind(groups),
        "source": first.source,
    }
    return Result(kind, first.suite, subject, value, claim, **(fields | more))


def apart(keys: Sequence[Hashable], facts: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Return for each item the facts that distinguish it from other items with the same key."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for at, key in enumerate(keys):
        alike[key].append(at)
    distinct: list[tuple[str, ...]] = [()] * len(keys)
    for members in alike.values():
        names = _distinguishing([facts[at] for at in members]) if len(members) > 1 else []
        for at in members:
            distinct[at] = tuple(filter(None, (facts[at].get(name) for name in names)))
    return distinct


def with_differences(titles: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the titles; equal ones get the columns and parameters in which their rows differ."""
    facts = []
    for row in rows:
        texts = {column: f"{column}={text_of(value)}" for column, value in row.items() if column != "params"}
        texts |= {"model": str(row["model"])} if "model" in row else {}
        precision = {"unknown": "unknown precision"}.get(str(row["precision"]), str(row["precision"]))
        texts |= {"precision": precision, "card": short(str(row["card"]))}
        machine = {column: texts.pop(column) for column in (*STACK, *SPECIMEN) if column in texts}
        facts.append(texts | settings_of(row) | machine)  # earlier facts are preferred
    return [", ".join(filter(None, [title, *more])) for title, more in zip(titles, apart(titles, facts), strict=True)]


def _distinguishing(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return names of facts that distinguish the items. Facts that all items have are tried first, then words."""

    def place(fact: str) -> tuple[object, ...]:
        texts = [item.get(fact, "") for item in facts]
        return not all(texts), any("=" in text for text in texts)

    def kinds(names: Sequence[str]) -> int:
        return len({tuple(item.get(name, "") for name in names) for item in facts})

    chosen: list[str] = []
    for fact in sorted(dict.fromkeys(fact for item in facts for fact in item), key=place):
        if kinds([*chosen, fact]) > kinds(chosen):
            chosen.append(fact)
    return chosen


def title_of(groups: Sequence[Group]) -> str:
    """Return what these groups have in common, in words; with its unusual parameters, or the version of the suite."""

    def common(column: str) -> str:
        values = {text_of(group.row[column]) for group in groups}
        return values.pop() if len(values) == 1 else ""

    epochs, data, processes = common("epochs"), data_name(common("data")), common("processes")
    length = f"{epochs} epoch{'s' * (epochs != '1')}" if epochs else ""
    parts = [f"{length} of {data}" if length and data else length or data]
    parts += [f"{common('weights')} weights" if common("weights") else "", common("mode")]
    parts[-1] += f" by {author(common('source'))}" if common("source") else ""
    parts += [f"{processes} processes" if processes not in {"", "1"} else ""]
    first = groups[0]
    usual = _usual(first.suite, first.number("suite_version"), first.model, first.params)
    unusual = {name: value for name, value in shared_params(groups).items() if usual.get(name) != value}
    parts += [f"{name}={unusual[name]}" for name in sorted(unusual) if usual and name != "epochs"]
    if not usual and not first.source and files.built_in(first.suite):
        parts.append(f"version {common('suite_version')}")
    return shown(f"{common('suite')}: {', '.join(part for part in parts if part)}")


def shared_params(groups: Sequence[Group]) -> dict[str, str]:
    """Return the parameters that all groups share."""
    params = [params_of(group.params) for group in groups]
    return {name: value for name, value in params[0].items() if all(p.get(name) == value for p in params)}


@cache
def _usual(suite_name: str, version: object, model: str, params: str) -> Mapping[str, str]:
    """Return the default parameters of a built-in suite, with those that follow from a preset.

    Empty for rows of another version of the suite, as its defaults may differ.
    """
    try:
        loaded = files.built_in(suite_name)
        if loaded is None or loaded.suite.version != version:
            return {}
        given = params_of(params)
        chosen = {name: given[name] for name in loaded.suite.presets if name in given}
        preset = {**loaded.resolve_params(chosen, model)}
        preset |= {name: loaded.suite.params[name].default for name in chosen}
        return params_of(params_text(preset))
    except UserError:
        return {}


def recipe_of(groups: Sequence[Group]) -> str:
    """Return the parameters that all groups share, as in the CSV file."""
    return shown(params_without(groups[0].params, params_of(groups[0].params).keys() - shared_params(groups)))


def notes_of(group: Group) -> str:
    """Return the notes about a group, in words."""
    notes = ["projected"] if group.measured == "projected" else []
    if group.parts:
        notes.append(f"{len(units_of(group))} {'sessions' if unit_of(group) == 'session' else 'specimens'}")
    notes += [*marks_of([group]), *([group.lost_note] if group.lost else [])]
    notes += ["synthetic data"] if group.data == "synthetic" else []
    return "; ".join([*notes, group.reason] if group.reason else notes)


def marks_of(groups: Sequence[Group], what: str = "", sides: Sequence[str] = ()) -> list[str]:
    """Return how many trials have each mark, as `2 of 6 throttled`, with the name of the side if only one has it."""
    unique = list({id(group): group for group in groups}.values())
    marks = sum((Counter(group.marks) for group in unique), Counter[str]())
    texts = marked(marks, sum(group.trials for group in unique), what)
    names = [
        {side for group, side in zip(groups, sides, strict=False) if mark in group.marks} for mark in sorted(marks)
    ]
    return [f"{text}: {name.pop()}" if len(name) == 1 else text for text, name in zip(texts, names, strict=True)]


def caveats_of(groups: Sequence[Group], sides: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the caveats of figures that are computed from these groups; `sides`: the name of each group's side."""
    reasons = {id(group): (group.model, group.reason.split("; ") if group.reason else []) for group in groups}
    # A remark on all groups of a publication is about its recipe, and no difference between them.
    is_published = all(group.source for group in groups)
    shared = set.intersection(*(set(texts) for _, texts in reasons.values())) if is_published else set()
    models: dict[str, dict[str, None]] = defaultdict(dict)
    for model, texts in reasons.values():
        for text in texts:
            if text not in shared:
                models[text][model] = None
    remarks = [f"{listed(names)}: {text}" for text, names in models.items()]
    names = sides or [""] * len(groups)
    lost = [f"{g.model} {name}".strip() + f": {g.lost_note}" for g, name in zip(groups, names, strict=True) if g.lost]
    return *marks_of(groups, "runs ", sides), *remarks, *dict.fromkeys(lost)


def marked(marks: Mapping[str, int], total: int, what: str = "") -> list[str]:
    """Return how many of `total` have each mark, in words."""
    return [f"{count} of {total} {what}{MARKED.get(mark, mark)}" for mark, count in sorted(marks.items())]


def chart_foot(groups: Sequence[Group]) -> str:
    """Return the text below a chart: measured or projected, runs, marks, torch, driver, batch and sources."""
    trials = sorted({group.trials for group in groups})
    counts = str(trials[0]) if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    sources = dict.fromkeys(without_commit(group.source) for group in groups if group.source)
    measured = " and ".join(dict.fromkeys(group.measured for group in groups))
    facts = ["quick mode"] if any(group.mode == "quick" for group in groups) else []
    facts += [f"{measured}, {counts} run{'s' * (trials[-1] > 1)} each{': rough' * (trials[0] == 1)}"]
    facts += marks_of(groups, "runs ")
    for name in ("torch", "driver", "batch"):
        values = dict.fromkeys(text_of(group.row["batch_size" if name == "batch" else name]) for group in groups)
        values.pop("", None)
        facts += [f"{name} {listed(values)}"] if 0 < len(values) <= MOST_NAMED else []
    return shown("; ".join([*facts, *sources]))


def slug(text: str) -> str:
    """Return a text as a part of a file name."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return plain if len(plain) <= 100 else f"{plain[:80]}-{plain[-19:].strip('-')}"
