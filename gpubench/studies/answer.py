"""Build the answer to a question about rows: the sections of all studies (STUDIES), and all results in order."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gpubench.analysis.compare import Question, Result, compare_rows, load_rows
from gpubench.analysis.metrics import Metric, did_you_mean
from gpubench.errors import UserError
from gpubench.rows.params import params_of
from gpubench.rows.read import Loaded
from gpubench.studies import ablation, batch, goals, ladder, pairs, roofline, scaling, stages, words
from gpubench.studies.section import Answer, Bars, Chart, Finding, Section, Table, Value, in_order

STUDIES: dict[str, Callable[[Result], Iterator[Section]]] = {
    "pairs": pairs.sections,
    "ladder": ladder.sections,
    "ablation": ablation.sections,
    "scaling": scaling.sections,
    "epochs": goals.epoch_sections,
    "published": goals.published_sections,
    "batch": batch.sections,
    "stages": stages.sections,
    "roofline": roofline.sections,
}
CLOSE = 0.1
"""Accepted relative difference between a projection without an interval and full runs."""
NAMES_CARDS = {"card", "subject", "baseline", "on"}
"""Table columns that may contain a card's name."""


def answer(paths: Sequence[Path], question: Question | None = None, *, keep: bool = False) -> Answer:
    """Load the files and return their answer; `keep` stores their rows for export. Raises UserError."""
    return answer_of(load_rows(paths, keep=keep), question or Question(), files=count_files(paths))


def answer_of(loaded: Loaded, question: Question, *, files: int = 0) -> Answer:
    """Return the answer of loaded rows. Raises UserError if the question names something that they lack."""
    return answer_to(compare_rows(loaded, question), loaded, files=files)


def answer_to(
    result: Result,
    loaded: Loaded,
    *,
    files: int = 0,
    alpha_beta: tuple[float, float] | None = None,
    scale_to: int | None = None,
) -> Answer:
    """Return the answer that shows what was compared."""
    studies = STUDIES | {"scaling": lambda compared: scaling.sections(compared, alpha_beta, scale_to)}
    sections = _finished([section for study in studies.values() for section in study(result)])
    findings = in_order([finding for section in sections for finding in section.findings])
    rows = result.frame["case"]

    def table(cases: frozenset[int] | None) -> bytes:
        return loaded.table(rows.index if cases is None else rows.index[rows.isin(cases)])

    def count(cases: frozenset[int]) -> int:
        return int(rows.isin(cases).sum())

    gains = [finding for finding in findings if not finding.says_why]
    return Answer(
        headline=headline(gains) if gains else f"Nothing here can be compared: {_why_nothing(result)}.",
        findings=tuple(findings),
        sections=tuple(sections),
        gain=result.metric.gain,
        metric=result.metric.name,
        unit=result.metric.unit,
        rule=_rule(result.metric),
        files=files,
        rows=len(rows),
        about=len(rows),
        failed=result.failed,
        missed=result.missed,
        stopped=int((result.frame["status"] == "interrupted").sum()),
        left_out=tuple(result.left_out),
        problems=tuple(result.problems),
        table=table,
        count=count,
    )


def count_files(paths: Sequence[Path]) -> int:
    """Return the number of CSV files, those in given folders included."""
    return sum(len(list(path.glob("*.csv"))) if path.is_dir() else 1 for path in paths)


def _why_nothing(result: Result) -> str:
    lost = dict.fromkeys(line for group in result.groups for line in pairs.without_result(group, result))
    return "; ".join(lost) or f"no two rows differ in {' or '.join(result.axes)} alone"


def _rule(metric: Metric) -> str:
    """Return the conditions for a verdict, in words."""
    holm = "p < 0.05 after Holm's correction over all ratios here"
    if metric.by_loss:
        return f"A verdict on accuracy needs {holm}, for a loss below half a point or above it."
    return (
        f"Faster or slower needs {holm}, and an interval of the ratio (95%; 99% between specimens) beyond 2%."
        " Same needs a 90% interval within 2%."
    )


def _finished(sections: Sequence[Section]) -> list[Section]:
    """Return the sections with distinct titles, results and chart names, sorted by their first result."""
    findings = _against_full_runs([finding for section in sections for finding in section.findings])
    settings = words.apart([_words(finding) for finding in findings], [finding.facts for finding in findings])
    names: Counter[str] = Counter()
    complete = iter([_told(finding, facts, names) for finding, facts in zip(findings, settings, strict=True)])
    finished = [
        replace(
            section,
            findings=tuple(in_order([next(complete) for _ in section.findings])),
            charts=tuple(_named(chart, names) for chart in section.charts),
        )
        for section in sections
    ]
    titles = [(section.study, section.title) for section in finished]
    recipes = [{name: f"{name}={value}" for name, value in params_of(section.recipe).items()} for section in finished]
    more = [facts[:3] for facts in words.apart(titles, recipes)]
    named = [replace(s, title=", ".join([s.title, *facts])) for s, facts in zip(finished, more, strict=True)]
    order = {id(finding): at for at, finding in enumerate(in_order([finding for s in named for finding in s.findings]))}
    return sorted(named, key=lambda s: min((order[id(finding)] for finding in s.findings), default=len(order)))


def _against_full_runs(findings: Sequence[Finding]) -> list[Finding]:
    """Return the results; projections that differ from full runs of the same recipe get a caveat."""
    full: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        if finding.facts.get("mode") == "full" and not finding.projected:
            full[_recipe(finding)] = finding
    checked = []
    for finding in findings:
        whole = full.get(_recipe(finding)) if finding.projected else None
        low, high = finding.interval or (finding.value / (1 + CLOSE), finding.value * (1 + CLOSE))
        if whole and not low <= whole.value <= high:
            doubt = f"full runs of the same recipe measured {words.gain(whole.value)}"
            finding = replace(finding, doubts=(*finding.doubts, doubt))
        checked.append(finding)
    return checked


def _recipe(finding: Finding) -> tuple[object, ...]:
    """Return what a full run and a sample of it have in common."""
    facts = frozenset((name, fact) for name, fact in finding.facts.items() if name != "mode")
    return *_words(finding), frozenset(finding.models), facts


def _words(finding: Finding) -> tuple[str, ...]:
    return finding.kind, finding.suite, finding.what, finding.where


def _told(finding: Finding, settings: tuple[str, ...], names: Counter[str]) -> Finding:
    known = replace(finding, settings=settings)
    foot = ". ".join(filter(None, [words.basis(replace(known, doubts=())), finding.source]))
    charts = [
        replace(chart, foot=chart.foot or foot, subtitle="; ".join([chart.subtitle, *finding.doubts]))
        for chart in finding.charts
    ]
    slug = words.slug(" ".join(settings))
    return replace(known, basis=words.basis(known), charts=tuple(_named(chart, names, slug) for chart in charts))


def _named(chart: Chart, names: Counter[str], settings: str = "") -> Chart:
    """Return the chart with a unique name: its settings go before the last word; repeated names are numbered."""
    if settings:
        name, _, kind = chart.name.rpartition("-")
        chart = replace(chart, name=f"{name}-{settings}-{kind}")
    names[chart.name] += 1
    number = names[chart.name]
    return replace(chart, name=f"{chart.name}-{number}") if number > 1 else chart


def headline(findings: Sequence[Finding]) -> str:
    """Return the first result as a sentence, with the ratios of the same pair in other precisions or on other cards."""
    first = findings[0]
    alike = [finding for finding in findings if _basis(finding) == _basis(first) and finding.what == first.what][:3]
    if first.kind != "card" or first.interval or first.figure or len({finding.where for finding in alike}) < len(alike):
        return first.sentence
    parts = [
        first.said,
        *(
            f"{words.times(finding.value)} {finding.where}{', with a caveat' * bool(finding.doubts)}"
            for finding in alike[1:]
        ),
    ]
    return f"{', and '.join(parts)} ({first.basis})."


def _basis(finding: Finding) -> tuple[object, ...]:
    return (
        finding.kind,
        finding.suite,
        finding.models,
        finding.trials,
        finding.verdict,
        finding.settings,
        finding.caveats,
        finding.projected,
        bool(finding.interval),
        bool(finding.figure),
    )


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
        cards = {name for section in answer.sections for table in section.tables for name in _cards_in(table)}
        there = [*sorted(suites), *sorted(studies - suites), *sorted(cards)]
        raise UserError(f"--only {wish}: there is {', '.join(there)}{did_you_mean(wish, there)}")
    findings = in_order([finding for section in chosen for finding in section.findings])
    head = headline(findings) if findings else "Nothing here can be compared."
    left_out = tuple(line for line in answer.left_out if wanted in line.lower())
    rows = answer.count(frozenset().union(*(section.cases for section in chosen)))
    return replace(
        answer, headline=head, findings=tuple(findings), sections=tuple(chosen), left_out=left_out, about=rows
    )


def _about(section: Section, card: str) -> Section | None:
    """Return the section with only the results, lines and charts that name the card; None if none do."""

    def fits(texts: Iterable[Value]) -> bool:
        return any(card in text.lower() for text in texts if isinstance(text, str))

    findings = tuple(
        finding for finding in section.findings if fits((finding.subject, finding.baseline, finding.place))
    )
    tables = []
    for table in section.tables:
        at = [n for n, column in enumerate(table.columns) if column.name in NAMES_CARDS]
        lines = tuple(line for line in table.lines if fits(line[n] for n in at))
        # A table without card columns belongs to the results.
        tables += [replace(table, lines=lines)] if lines else [table] if findings and not at else []
    if not (findings or tables):
        return None
    charts = tuple(chart for chart in section.charts if findings or _shows(chart, card))
    left_out = tuple(line for line in section.left_out if card in line.lower())
    return replace(section, findings=findings, tables=tuple(tables), charts=charts, left_out=left_out)


def _cards_in(table: Table) -> Iterator[str]:
    at = [n for n, column in enumerate(table.columns) if column.name == "card"]
    yield from (str(line[n]) for line in table.lines for n in at)


def _shows(chart: Chart, card: str) -> bool:
    names = (
        [bar.name for group in chart.groups for bar in group.bars]
        if isinstance(chart, Bars)
        else [line.name for line in chart.lines]
    )
    return any(card in name.lower() for name in names)
