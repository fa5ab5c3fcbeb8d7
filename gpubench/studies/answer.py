"""Builds the answer to a question about rows: it calls all STUDIES. The commands, the library and the site use it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpubench.analysis.compare import Compared, Question, compare_rows, load_rows
from gpubench.analysis.groups import short
from gpubench.errors import UserError, names_there
from gpubench.interval import median_interval
from gpubench.rows.params import params_of
from gpubench.rows.read import Loaded
from gpubench.studies import ablation, batch, buyer, ladder, pairs, published, roofline, scaling, words
from gpubench.studies.cases import rate_text
from gpubench.studies.section import Answer, Bars, Result, Section, Table, Value, in_order

STUDIES: dict[str, Callable[[Compared], Iterator[Section]]] = {
    "pairs": pairs.sections, "ladder": ladder.sections, "ablation": ablation.sections,
    "scaling": scaling.sections, "epochs": published.epoch_sections, "published": published.published_sections,
    "batch": batch.sections, "stages": published.stage_sections, "buyer": buyer.sections,
    "roofline": roofline.sections,
}  # fmt: skip
CLOSE = 0.1
"""A projection without an interval contradicts full runs if it differs from them by more than this share."""
HOLM = "p < 0.05 after Holm's correction over all ratios here"
RULE = (
    f"Faster or slower needs {HOLM}, and an interval of the ratio that is wholly beyond 2%. Its level is 95%, or 99%"
    " between specimens or sessions and for sides with different scatter. With 3 to 5 trials per side, p < 0.002 is"
    " needed; inside a session the interval then has level 99.8%, and a scatter of 6% is added to the measured one."
    " Same needs 6 trials per side or 5 specimens, and a 90% interval within 2%."
)
"""The conditions for a verdict, in words."""
RULE_FOR_ACCURACY = f"Non-inferior: a loss of accuracy below half a point; inferior: a larger loss. Both need {HOLM}."
NAMES_CARDS = {"card", "subject", "baseline", "on"}
"""Table columns that may contain a card's name."""


def answer(paths: Sequence[Path], question: Question | None = None, *, keep: bool = False) -> Answer:
    """Load the files and return the answer about their rows; `keep` stores the rows for export. Raises UserError."""
    loaded = load_rows(paths, keep=keep)
    return answer_to(compare_rows(loaded, question or Question()), loaded, files=count_files(paths))


def answer_to(compared: Compared, loaded: Loaded, *, files: int = 0) -> Answer:
    """Return the answer with the results of all studies; `compared` was computed from `loaded`."""
    sections = _finished([section for study in STUDIES.values() for section in study(compared)], _own_cases(compared))
    results = in_order([result for section in sections for result in section.results])
    rows = compared.frame["case"]
    gains = [result for result in results if not result.says_why]
    lost = dict.fromkeys(line for workload in compared.workloads for line in pairs.without_compared(workload, compared))
    why_nothing = words.listed(lost, 3) if lost else f"no two rows differ in {' or '.join(compared.axes)} alone"
    return Answer(
        headline=headline(gains) if gains else f"{_first_rate(compared)}Nothing here can be compared: {why_nothing}.",
        results=tuple(results), sections=tuple(sections),
        gain=compared.metric.gain, metric=compared.metric.name, unit=compared.metric.unit,
        rule=RULE_FOR_ACCURACY if compared.metric.by_loss else RULE,
        files=len(loaded.sources) if files else 0,
        unread=max(files - len(loaded.sources), 0),
        rows=len(rows), about=len(rows), failed=compared.failed, missed=compared.missed,
        stopped=int(compared.frame["status"].isin(["interrupted"]).sum()),
        left_out=tuple(compared.left_out), problems=tuple(loaded.problems),
        table=lambda cases: loaded.table(rows.index if cases is None else rows.index[rows.isin(cases)]),
        count=lambda cases: int(rows.isin(cases).sum()),
    )  # fmt: skip


def _first_rate(compared: Compared) -> str:
    """Return the median rate of the first unpublished case of one process, and how many more cases there are."""
    rows = compared.frame
    rated = rows[(rows["status"] == "ok") & (rows["source"] == "") & (rows["processes"] == 1)]
    rated = rated[rated["samples_per_second"] > 0]
    if rated.empty:
        return ""
    suite, model, card, precision, identity = rated.iloc[0][["suite", "model", "card", "precision", "identity"]]
    trials = rated[rated["identity"] == identity]
    rates = trials["samples_per_second"]
    claim = f"{short(card)} trains {model} at {rate_text(rates.median())} {words.sample_of(suite)}/s in {precision}"
    ends = median_interval(list(rates), until=bool(trials["until"].gt(0).any()))
    basis = [suite, words.runs((len(rates), 0)), f"95%: {' to '.join(map(rate_text, ends))}" if ends else ""]
    basis += words.marked(Counter(" ".join(trials["marks"]).split()), len(rates), "runs ")
    more = sum(len(workload.cases) for workload in compared.workloads) - 1
    return f"{claim} ({', '.join(filter(None, basis))}). " + f"{more} more case{'s' * (more > 1)}. " * (more > 0)


def in_units(answer: Answer) -> Answer:
    """Return the answer with `tokens/s` or `images/s` instead of `samples/s` in names and units, for people to read."""

    def named(text: str, suites: Iterable[str]) -> str:
        names = set(map(words.sample_of, suites))
        return text.replace("samples", names.pop()) if len(names) == 1 else text

    def renamed(table: Table, suite: str) -> Table:
        columns = [replace(column, name=named(column.name, [suite])) for column in table.columns]
        return replace(table, columns=tuple(columns))

    def results_of(part: Answer | Section) -> tuple[Result, ...]:
        return tuple(replace(result, unit=named(result.unit, [result.suite])) for result in part.results)

    sections = []
    for section in answer.sections:
        tables = tuple(renamed(table, section.suite) for table in section.tables)
        sections.append(replace(section, results=results_of(section), tables=tables))
    unit = named(answer.unit, [result.suite for result in answer.results])
    return replace(answer, results=results_of(answer), sections=tuple(sections), unit=unit)


def count_files(paths: Sequence[Path]) -> int:
    """Return the number of files; a folder counts as its CSV files."""
    return sum(len(list(path.glob("*.csv"))) if path.is_dir() else 1 for path in paths)


def _own_cases(compared: Compared) -> dict[int, int]:
    """Return by case the position (from 1) of its newest session, for unpublished cases measured on a card."""
    rows = compared.frame.drop_duplicates("identity")
    rows = rows[(rows["source"] == "") & (rows["device"] != "cpu")]
    numbers = {session: number for number, session in enumerate(rows["session"].unique(), start=1)}
    cases = rows.drop_duplicates(["case", "session"])
    return dict(zip(cases["case"].astype(int), cases["session"].map(numbers), strict=True))  # the last session stays


def _finished(sections: Sequence[Section], own_cases: Mapping[int, int]) -> list[Section]:
    """Return the sections with distinct titles, results and chart names, sorted by their first result."""
    results = [
        replace(result, own=max((own_cases.get(case, 0) for case in result.cases), default=0))
        for section in sections
        for result in section.results
    ]
    if len({result.suite for result in results if result.kind == "card"}) > 1:
        results = [replace(r, origin=f"{r.origin}, {r.suite}") if r.kind == "card" else r for r in results]
    results = _contradicting(results)
    settings = words.apart([_names(result) for result in results], [result.facts for result in results])
    names: Counter[str] = Counter()
    complete = iter([_completed(result, facts, names) for result, facts in zip(results, settings, strict=True)])
    finished = [
        replace(
            section,
            results=tuple(in_order([next(complete) for _ in section.results])),
            charts=tuple(_named(chart, names) for chart in section.charts),
        )
        for section in sections
    ]
    titles = [(section.study, section.title) for section in finished]
    recipes = [{name: f"{name}={value}" for name, value in params_of(section.recipe).items()} for section in finished]
    more = [facts[:3] for facts in words.apart(titles, recipes)]
    named = [replace(s, title=", ".join([s.title, *facts])) for s, facts in zip(finished, more, strict=True)]
    order = {id(result): at for at, result in enumerate(in_order([result for s in named for result in s.results]))}
    return sorted(named, key=lambda s: min((order[id(result)] for result in s.results), default=len(order)))


def _contradicting(results: Sequence[Result]) -> list[Result]:
    """Return the results; a sample and full runs of one recipe that contradict each other both get a caveat."""
    full = {_recipe(result): at for at, result in enumerate(results) if result.facts.get("mode") == "full"}
    checked = list(results)
    for at, result in enumerate(results):
        other = full.get(_recipe(result), at)
        whole = results[other]
        low, high = result.interval or (result.value / (1 + CLOSE), result.value * (1 + CLOSE))
        if result.projected and not whole.projected and not low <= whole.value <= high:
            measured = f"full runs of the same recipe measured {words.gain(whole.value)}"
            projected = f"a sample of the same recipe projects {words.gain(result.value)}"
            checked[at] = replace(result, caveats=(*result.caveats, measured))
            caveats, count = (*checked[other].caveats, projected), checked[other].contradicted + 1
            checked[other] = replace(checked[other], caveats=caveats, contradicted=count)
    return checked


def _names(result: Result) -> tuple[str, ...]:
    return result.kind, result.suite, result.what, result.where


def _recipe(result: Result) -> tuple[object, ...]:
    """Return what a full run and a sample of it have in common."""
    facts = frozenset((name, fact) for name, fact in result.facts.items() if name != "mode")
    return *_names(result), frozenset(result.models), facts


def _completed(result: Result, settings: tuple[str, ...], names: Counter[str]) -> Result:
    """Return the result with its settings, its basis, and charts with caveats, a foot and unique names."""
    known = replace(result, settings=settings)
    foot = ". ".join(filter(None, [words.basis(replace(known, caveats=())), result.source]))
    slug, charts = words.slug(" ".join(settings)), []
    for chart in (_named(chart, names, slug) for chart in result.charts):
        facts = [fact for fact in (chart.foot or foot).split("; ") if fact not in result.caveats]
        charts.append(replace(chart, foot="; ".join(facts), subtitle="; ".join([chart.subtitle, *result.caveats])))
    return replace(known, basis=words.basis(known), charts=tuple(charts))


def _named(chart: Bars, names: Counter[str], settings: str = "") -> Bars:
    """Return the chart with its lines explained and a unique name: `settings` go before its last word."""
    if "interval" not in chart.subtitle and any(bar.interval for group in chart.groups for bar in group.bars):
        chart = replace(chart, subtitle=f"{chart.subtitle}; lines: 95% intervals")
    if settings:
        name, _, kind = chart.name.rpartition("-")
        chart = replace(chart, name=f"{name}-{settings}-{kind}")
    names[chart.name] += 1
    number = names[chart.name]
    return replace(chart, name=f"{chart.name}-{number}") if number > 1 else chart


def headline(results: Sequence[Result]) -> str:
    """Return the first result as a sentence. If it is of two cards and has no interval, other precisions are added."""
    first = results[0]

    def basis(result: Result) -> tuple[str, ...]:
        return result.kind, result.what, words.basis(replace(result, caveats=()))

    alike = [result for result in results if basis(result) == basis(first)][:3]
    alone = first.kind != "card" or first.interval or first.figure or first.is_points
    if alone or len({result.where for result in alike}) < len(alike):
        return first.sentence
    more = [f"{', with a caveat,' * bool(r.caveats)} {words.times(r.value)} {r.where}" for r in alike[1:]]
    return f"{', and'.join([first.said, *more])} ({first.basis})."


def only(answer: Answer, wish: str) -> Answer:
    """Return only the sections of a suite or study, or the results about a card. Raises UserError if none match."""
    suites = {section.suite.lower() for section in answer.sections}
    studies = {section.study for section in answer.sections}
    wanted = wish.lower()
    if wanted in suites | studies:
        chosen = [section for section in answer.sections if wanted in {section.suite.lower(), section.study}]
    else:
        chosen = [about for section in answer.sections if (about := _about(section, wanted)) is not None]
    if not chosen:
        tables = [table for section in answer.sections for table in section.tables]
        places = [(table, at) for table in tables for at, column in enumerate(table.columns) if column.name == "card"]
        cards = {str(line[at]) for table, at in places for line in table.lines}
        there = [*sorted(suites), *sorted(studies - suites), *sorted(cards)]
        raise UserError(f"--only {wish}: {names_there(wish, there)}")
    results = in_order([result for section in chosen for result in section.results])
    head = headline(results) if results else "Nothing here can be compared."
    left_out = tuple(line for line in answer.left_out if wanted in line.lower())
    rows = answer.count(frozenset().union(*(section.cases for section in chosen)))
    return replace(answer, headline=head, results=tuple(results), sections=tuple(chosen), left_out=left_out, about=rows)


def _about(section: Section, card: str) -> Section | None:
    """Return the section with the results and lines that name the card, and their charts; None if nothing names it."""

    def fits(texts: Iterable[Value]) -> bool:
        return any(card in text.lower() for text in texts if isinstance(text, str))

    results = tuple(result for result in section.results if fits((result.subject, result.baseline, result.place)))
    tables = []
    for table in section.tables:
        at = [n for n, column in enumerate(table.columns) if column.name in NAMES_CARDS]
        lines = tuple(line for line in table.lines if fits(line[n] for n in at))
        # A table without card columns is kept with the results.
        tables += [replace(table, lines=lines)] if lines else [table] if results and not at else []
    if not (results or tables):
        return None
    charts = tuple(c for c in section.charts if results or fits(bar.name for group in c.groups for bar in group.bars))
    left_out = tuple(line for line in section.left_out if card in line.lower())
    return replace(section, results=results, tables=tuple(tables), charts=charts, left_out=left_out)
