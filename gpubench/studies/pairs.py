"""Pairs: this card, precision, version, trick over that one, pooled over the models that both have."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from gpubench.analysis import stats
from gpubench.analysis.cells import short, text_of
from gpubench.analysis.compare import Comparison, Group, Result
from gpubench.analysis.geomeans import interval_of
from gpubench.analysis.matching import FULL, TWIN_POLICIES
from gpubench.analysis.metrics import SECONDS
from gpubench.studies.finding import Finding, Part

MASTER = "fp16-master"
"""The precision that is called mixed where no other one is there: that of 2019."""
COMMON = {
    "suite_version": "version {}",
    "data": "{}",
    "weights": "{} weights",
    "mode": "{}",
    "processes": "{} processes",
}
"""What a group's rows share, and how it is said."""


def findings(result: Result) -> Iterator[Finding]:
    """Of each group the comparisons that differ in their model alone, as one."""
    for group in result.groups:
        pooled: dict[tuple[str, ...], list[Comparison]] = defaultdict(list)
        for c in group.comparisons:
            if c.subject.batch_policy in TWIN_POLICIES:
                continue  # it tells the batch's part of a speedup, which is another question
            place = c.subject.label if c.subject.label == c.other.label else short(str(c.subject.card))
            place = place if c.axis != "card" else ""
            precision = str(c.subject.precision) if c.axis != "precision" else ""
            batch = text_of(c.subject.row["fixed_batch"]) if c.axis != "batch_size" else ""
            key = (place, precision, str(c.subject.batch_policy), batch)
            pooled[c.axis, c.subject_name, c.other_name, *key].append(c)
        for (_, _, _, place, precision, _, batch), own in pooled.items():
            yield _finding(group, own, place, precision, batch, result)


def _finding(
    group: Group, own: Sequence[Comparison], place: str, precision: str, batch: str, result: Result
) -> Finding:
    c = own[0]
    kind = _kind(c, result)
    source = str(c.subject.row["source"])
    ratios = [each.ratio if result.metric.by_loss else each.ratio.inverse for each in own]
    subject, baseline = c.subject_name, c.other_name
    if plain(subject, source) != plain(baseline, source):
        subject, baseline = plain(subject, source), plain(baseline, source)
    if kind == "other":
        subject = f"{c.axis} {subject}"
    mixed = {str(cell.precision) for cell in group.cases} - FULL == {MASTER}
    if kind == "precision" and mixed:
        subject, baseline = ("mixed" if name == MASTER else name for name in (subject, baseline))
    if precision == MASTER and mixed:
        precision = "mixed precision"
    return Finding(
        kind=kind,
        suite=str(c.subject.suite),
        subject=subject,
        baseline=baseline,
        value=stats.geometric_mean([ratio.value for ratio in ratios]),
        interval=interval_of(ratios),
        verdict=_verdict([each.verdict for each in own]),
        models=tuple(dict.fromkeys(str(each.subject.model) for each in own)) if kind != "trick" else ("",),
        trials=(min(each.subject.trials for each in own), min(each.other.trials for each in own)),
        precision=precision if kind != "trick" else "",
        place=plain(place, source),
        facts=_facts(c, batch),
        caveats=tuple(_caveats(own)),
        parts=tuple(
            Part(
                str(each.subject.model),
                result.metric.shown(each.subject.median),
                result.metric.shown(each.other.median),
                ratio.value,
                (ratio.low, ratio.high) if ratio.low and ratio.high else None,
                float(each.subject.batch_size),
                float(each.other.batch_size),
            )
            for each, ratio in zip(own, ratios, strict=True)
        ),
        cells=tuple(cell for each in own for cell in (each.subject, each.other)),
        source=source,
        of_seconds=result.metric is SECONDS,
        unit="" if result.metric.name in {"seconds", "rate"} else result.metric.title,
        best=result.metric.words[0],
    )


def _kind(c: Comparison, result: Result) -> str:
    if c.axis == "model" and "model" not in result.axes:
        return "trick"
    return c.axis if c.axis in {"card", "precision"} else "other"


def _verdict(verdicts: Sequence[str]) -> str:
    """What all models agree in; else nobody is sure."""
    found = {"one run" if each == "one trial" else each for each in verdicts}
    return found.pop() if len(found) == 1 else "unsure"


def _facts(c: Comparison, batch: str) -> Mapping[str, str]:
    row = c.subject.row
    facts = {name: words.format(text_of(row[name])) for name, words in COMMON.items() if text_of(row[name])}
    if author := _author(str(row["source"])):
        facts["source"] = f"by {author}"
    if batch not in {"", "0"}:
        facts["batch"] = f"batch {batch}"
    return facts | {word.partition("=")[0]: word for word in str(row["params"]).split() if "=" in word}


def _caveats(own: Sequence[Comparison]) -> Iterator[str]:
    cells = [cell for each in own for cell in (each.subject, each.other)]
    if any(cell.mode == "quick" for cell in cells):
        yield "a first look"
    if any(cell.data == "synthetic" for cell in cells):
        yield "synthetic data"
    marks = sum((Counter(cell.marks) for cell in cells), Counter[str]())
    runs = sum(cell.trials for cell in cells)
    yield from (f"{count} of {runs} runs {mark}" for mark, count in sorted(marks.items()))
    sizes = [(float(each.subject.batch_size), float(each.other.batch_size)) for each in own]
    if any(one != other for one, other in sizes if one == one and other == other):
        yield "batches differ"
    yield from dict.fromkeys(note for each in own for note in each.notes if note.startswith("differs in"))


def _author(source: str) -> str:
    return source.removeprefix("github.com/").partition("/")[0]


def plain(label: str, source: str) -> str:
    """A card's label without the name of who measured it."""
    return label.removesuffix(f" ({_author(source)})") if source else label
