"""Published: what a work says of its runs beside those of others that it compares itself with, and its stated gains.

A work is the rows of one `session` that name the study `published`. Its own are those with the source of the first.
The others ran on other machines, so that nothing here has a verdict.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpubench.analysis.cells import dicts_of, short
from gpubench.analysis.compare import Result
from gpubench.analysis.scaling import cases_of
from gpubench.analysis.time_to_goal import PLAUSIBLE_SECONDS
from gpubench.rows.params import params_of
from gpubench.rows.table import table_of
from gpubench.studies import words
from gpubench.studies.cases import known
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Finding, Section, Table, Value

STUDY = "published"
SECONDS, MINUTES = 180, 7200
"""Times below which seconds are named, and minutes."""
Row = Mapping[str, Any]


def sections(result: Result) -> Iterator[Section]:
    """One for each work; of seconds alone."""
    if not result.is_usual:
        return
    rows = result.frame[(result.frame["mode"] == "published") & (result.frame["status"] == "ok")]
    rows = rows[rows["studies"].isin([text for text in rows["studies"].unique() if STUDY in str(text).split()])]
    for (suite, _), work in rows.groupby(["suite", "session"], sort=False):
        lines, cases = dicts_of(work), cases_of(work)
        title = f"{suite}: what {words.author(lines[0]['source'])} compares itself with"
        gains = list(_gains(lines, cases))
        findings = (*_sooner(lines, cases), *gains)
        tables = (_table(lines), *([_gains_table(gains)] if gains else []))
        yield Section(STUDY, str(suite), title, findings, tables, (_chart(title, lines, cases),), cases=cases)


def _sooner(lines: Sequence[Row], cases: frozenset[int]) -> Iterator[Finding]:
    """The work's own run against each other's: that of the same model, else its fastest."""
    timed = _timed(lines)
    own = [line for line in timed if line["source"] == lines[0]["source"]]
    for other in timed:
        same = [line for line in own if line["model"] == other["model"]] or own
        if other in own or not same:
            continue
        best = min(same, key=lambda line: float(line["seconds"]))
        gain = other["seconds"] / best["seconds"]
        said = f"{best['model']} takes {_time(best)} on {words.name(_machines(best))}, {words.times(gain)} as soon as"
        named = "" if best["model"] == other["model"] else f"{other['model']} on "
        theirs = f"{named}{_machines(other)}"
        accuracies = [_accuracy(line) for line in (best, other)]
        yield Finding(
            kind=STUDY,
            suite=str(best["suite"]),
            subject=_machines(best),
            baseline=theirs,
            value=gain,
            verdict="one run",
            models=(str(best["model"]),),
            trials=(1, 1),
            said=f"{said} {_time(other)} of {words.author(other['source'])} on {words.name(theirs)}",
            origin=" against ".join(accuracies) if all(accuracies) else "",
            facts={"other": words.author(other["source"])},
            cases=cases,
            source=words.author(best["source"]),
        )


def _gains(lines: Sequence[Row], cases: frozenset[int]) -> Iterator[Finding]:
    """Gains that are stated without the times behind them: tables with `what`, `times` and `baseline`."""
    for line in lines:
        for each in table_of(line["table"]):
            try:
                what, baseline = (words.name(str(each[name])) for name in ("what", "baseline"))
                gain = float(each["times"])
            except (KeyError, TypeError, ValueError):
                continue
            if 0 < gain < PLAUSIBLE_SECONDS[1]:
                model, place = str(line["model"]), _machines(line)
                said = f"{model} on {place} is up to {words.times(gain)} as fast with {what} as with {baseline}"
                yield Finding(
                    kind=STUDY,
                    suite=str(line["suite"]),
                    subject=f"{model} with {what}",
                    baseline=baseline,
                    value=gain,
                    models=(model,),
                    said=said,
                    place=place,
                    doubts=("stated without the times behind it",),
                    cases=cases,
                    source=words.author(line["source"]),
                )


def _gains_table(gains: Sequence[Finding]) -> Table:
    columns = (Column("what"), Column("baseline"), Column("on"), Column("times as fast", "ratio", "higher"))
    return Table("gains", columns, tuple((each.subject, each.baseline, each.place, each.value) for each in gains))


def _table(lines: Sequence[Row]) -> Table:
    columns = (
        Column("model"),
        Column("machines"),
        Column("by"),
        Column("minutes", "min", "lower"),
        Column("accuracy", "share", "higher"),
        Column("top-5", "share", "higher"),
        Column("images a step", "count"),
        Column("epochs", "count"),
        Column("dollars", "dollars", "lower"),
        Column("notes", note=True),
    )
    told = [line for line in lines if line["seconds"] > 0 or line["accuracy"] > 0]
    return Table("published", columns, tuple(map(_table_line, told)))


def _table_line(line: Row) -> tuple[Value, ...]:
    shares, figures = (
        [known(float(line[name])) for name in names] for names in (("accuracy", "top5"), ("epochs", "dollars"))
    )
    return (
        *(str(line["model"]), _machines(line), words.author(line["source"]), known(line["seconds"] / 60)),
        *(*shares, known(_images_a_step(line)), *figures, str(line["reason"])),
    )


def _chart(title: str, lines: Sequence[Row], cases: frozenset[int]) -> Bars:
    """Seconds of each run, by model."""
    groups = []
    for model in dict.fromkeys(str(line["model"]) for line in lines):
        own = [line for line in _timed(lines) if line["model"] == model]
        bars = tuple(Bar(_machines(line), float(line["seconds"]), note=_bar_note(line)) for line in own)
        groups += [BarGroup(model, bars)] if bars else []
    sources = "; ".join(dict.fromkeys(str(line["source"]) for line in lines))
    subtitle = "Seconds of a whole run, as published; lower is better"
    return Bars(words.slug(f"{title} seconds"), title, subtitle, tuple(groups), "s", foot=sources, cases=cases)


def _bar_note(line: Row) -> str:
    """Its accuracy, and of its author as much as a bar has room for."""
    return ", ".join(filter(None, [_accuracy(line), words.author(line["source"]).partition(" ")[0]]))


def _timed(lines: Sequence[Row]) -> list[Row]:
    return [line for line in lines if PLAUSIBLE_SECONDS[0] <= line["seconds"] <= PLAUSIBLE_SECONDS[1]]


def _machines(line: Row) -> str:
    """`2,048 x Tesla P40`."""
    many = f"{line['processes']:,.0f} x " if line["processes"] > 1 else ""
    return f"{many}{short(str(line['card']))}"


def _time(line: Row) -> str:
    seconds = float(line["seconds"])
    if seconds < SECONDS:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < MINUTES else f"{seconds / 3600:.3g} h"


def _accuracy(line: Row) -> str:
    share, name = (line["accuracy"], "") if line["accuracy"] > 0 else (line["top5"], " top-5")
    return f"{share:.1%}{name}" if share > 0 else ""


def _images_a_step(line: Row) -> float:
    stated = params_of(line["params"]).get("global_batch", "")
    return float(stated) if stated.isdecimal() else float(line["batch_size"] * line["processes"])
