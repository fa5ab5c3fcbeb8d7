"""Accuracy by epoch, hours by image size, and published runs beside the runs that their authors compare them with.

A work is the rows of one `session` that name the study `published`. Its authors' rows have the source of the first
row. The other rows are from other machines, so no result here has a verdict.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import Group, dicts_of, short
from gpubench.analysis.scaling import cases_of
from gpubench.analysis.time_to_goal import PLAUSIBLE_SECONDS
from gpubench.printed import duration
from gpubench.rows.params import params_of
from gpubench.rows.table import Epoch, epochs_in, hours_by_size, stages_in, table_of
from gpubench.studies import words
from gpubench.studies.cases import behind, known
from gpubench.studies.section import Column, Result, Section, Table, Value
from gpubench.suite.trial import TRAINED

NAMES = {"top5": "top-5", "top1": "top-1"}
"""Accuracies of an epoch, the preferred one first."""
STUDY = "published"
SECONDS, MINUTES = 180, 7200
"""Times below which seconds are shown, and minutes, in seconds."""
Row = Mapping[str, Any]
Best = tuple[str, Epoch, float]
"""The name of an accuracy, its best epoch and value."""


def epoch_sections(compared: Compared) -> Iterator[Section]:
    """Yield the accuracy of each epoch, a section per suite; only for the metric seconds."""
    if not compared.is_usual:
        return
    runs: dict[str, list[tuple[Group, list[Epoch], Best]]] = defaultdict(list)
    for workload in compared.workloads:
        for group in workload.cases:
            epochs = epochs_in(group.row["table"])
            if group.status in TRAINED and len(epochs) > 1 and (best := _best(epochs)):
                runs[group.suite].append((group, epochs, best))
    for suite, trained in runs.items():
        names = Counter[str]()
        tables, results = [], []
        for group, epochs, best in trained:
            name = f"epochs of {group.model}, {group.precision}, {_where(group)}"
            names[name] += 1
            tables.append(_epoch_table(f"{name} ({names[name]})" if names[name] > 1 else name, epochs))
            results.append(_epoch_result(group, best))
        cases = behind(group for group, *_ in trained)
        yield Section("epochs", suite, f"{suite}: accuracy by epoch", tuple(results), tuple(tables), cases=cases)


def _best(epochs: Sequence[Epoch]) -> Best | None:
    """Return the name of the accuracy (top-5 if known), its best epoch and value; None if there is no accuracy."""
    for quality, name in NAMES.items():
        shares = [(epoch, share) for epoch in epochs if (share := getattr(epoch, quality)) is not None]
        if shares:
            return name, *max(shares, key=lambda pair: pair[1])
    return None


def _where(group: Group) -> str:
    many = f"{group.processes:.0f} x " if group.processes > 1 else ""
    return f"{many}{words.name(group.label)}"


def _epoch_table(name: str, epochs: Sequence[Epoch]) -> Table:
    columns = (
        Column("epoch", "count"),
        Column("hours", "h", places=4),
        *(Column(NAMES[quality], "share", "higher", places=2) for quality in reversed(NAMES)),
        Column("pixels", "count"),
    )
    return Table(
        name, columns, tuple((epoch.number, epoch.hours, epoch.top1, epoch.top5, epoch.size) for epoch in epochs)
    )


def _epoch_result(group: Group, best: Best) -> Result:
    """Return the best accuracy, and after how many hours it was reached."""
    quality, epoch, share = best
    when = f"after epoch {epoch.number}, {_time_text(epoch.hours, epoch.hours)},"
    subject = f"{quality} {when} {group.model} on {_where(group)}"
    said = f"{group.model} has {share:.1%} {quality} {when} on {_where(group)}"
    return words.result_of([group], "epochs", subject, share, said, origin=group.precision, figure=f"{share:.1%}")


def stage_sections(compared: Compared) -> Iterator[Section]:
    """Yield the hours of each image size, a section per workload with trainings on several; only for seconds."""
    for workload in compared.workloads if compared.metric.name == "seconds" else []:
        tables = [(group, stages_in(str(group.row["table"]))) for group in workload.groups]
        trainings = [(group, hours_by_size(table)) for group, table in tables if table is not None]
        results = tuple(_stage_result(group, stages) for group, stages in trainings if len(stages) > 1)
        if results:
            suite, title = workload.groups[0].suite, f"{words.title_of(workload.groups)}; hours by stage"
            cases = behind(group for group, _ in trainings)
            yield Section("stages", suite, title, results, recipe=words.recipe_of(workload.groups), cases=cases)


def _stage_result(group: Group, stages: Sequence[tuple[int, float]]) -> Result:
    hours = group.median / 3600
    parts = ", ".join(f"{_time_text(spent, hours)} at {size} px" for size, spent in stages)
    whole = _time_text(hours, hours)
    said = f"{group.model} in {group.precision} takes {whole} on {_where(group)}: {parts}"
    origin = f"{group.precision}, {len(stages)} image sizes"
    subject = f"{group.model} on {_where(group)}"
    return words.result_of([group], "stages", subject, hours, said, origin=origin, figure=whole)


def published_sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per work; only for the metric seconds."""
    if not compared.is_usual:
        return
    rows = compared.frame[(compared.frame["mode"] == "published") & (compared.frame["status"] == "ok")]
    rows = rows[rows["studies"].isin([text for text in rows["studies"].unique() if STUDY in str(text).split()])]
    for (suite, _), work in rows.groupby(["suite", "session"], sort=False):
        lines, cases = dicts_of(work), cases_of(work)
        title = f"{suite}: {words.author(lines[0]['source'])} beside other published runs"
        results = (*_sooner(lines, cases), *_gains(lines, cases))
        yield Section(STUDY, str(suite), title, results, (_table(lines),), cases=cases)


def _sooner(lines: Sequence[Row], cases: frozenset[int]) -> Iterator[Result]:
    """Yield a result per run of others: the author's run of the same model against it, else the author's fastest."""
    timed = [line for line in lines if PLAUSIBLE_SECONDS[0] <= line["seconds"] <= PLAUSIBLE_SECONDS[1]]
    authors = [line for line in timed if line["source"] == lines[0]["source"]]
    for other in timed:
        same = [line for line in authors if line["model"] == other["model"]] or authors
        if other in authors or not same:
            continue
        best = min(same, key=lambda line: float(line["seconds"]))
        gain = other["seconds"] / best["seconds"]
        said = f"{best['model']} takes {_time(best)} on {words.name(_machines(best))}, {words.times(gain)} as soon as"
        named = "" if best["model"] == other["model"] else f"{other['model']} on "
        theirs = f"{named}{_machines(other)}"
        accuracies = [_accuracy(line) for line in (best, other)]
        yield Result(
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


def _gains(lines: Sequence[Row], cases: frozenset[int]) -> Iterator[Result]:
    """Yield speedups that were published without times, from tables with `what`, `times` and `baseline`."""
    for line in lines:
        for stated in table_of(line["table"]):
            try:
                what, baseline = (words.name(str(stated[name])) for name in ("what", "baseline"))
                gain = float(stated["times"])
            except (KeyError, TypeError, ValueError):
                continue
            if 0 < gain < PLAUSIBLE_SECONDS[1]:
                model, place = str(line["model"]), _machines(line)
                said = f"{model} on {place} is up to {words.times(gain)} as fast with {what} as with {baseline}"
                yield Result(
                    kind=STUDY,
                    suite=str(line["suite"]),
                    subject=f"{model} with {what}",
                    baseline=baseline,
                    value=gain,
                    models=(model,),
                    said=said,
                    place=place,
                    caveats=("published without times",),
                    cases=cases,
                    source=words.author(line["source"]),
                )


def _table(lines: Sequence[Row]) -> Table:
    columns = (
        Column("model"),
        Column("machines"),
        Column("by"),
        Column("minutes", "min", "lower"),
        Column("accuracy", "share", "higher"),
        Column("top-5", "share", "higher"),
        Column("images per step", "count"),
        Column("epochs", "count"),
        Column("dollars", "dollars", "lower"),
        Column("notes", note=True),
    )
    table: list[tuple[Value, ...]] = []
    for line in lines:
        if not (line["seconds"] > 0 or line["accuracy"] > 0):
            continue
        stated = params_of(line["params"]).get("global_batch", "")
        images = float(stated) if stated.isdecimal() else float(line["batch_size"] * line["processes"])
        figures = (line["seconds"] / 60, line["accuracy"], line["top5"], images, line["epochs"], line["dollars"])
        names = (str(line["model"]), _machines(line), words.author(line["source"]))
        table.append((*names, *(known(float(figure)) for figure in figures), str(line["reason"])))
    return Table("published", columns, tuple(table))


def _machines(line: Row) -> str:
    """Return the count and card, as `2,048 x Tesla P40`."""
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


def _time_text(hours: float, whole_hours: float) -> str:
    """Return a part of a run as `0.47 h`, and of a run below an hour as `1 min 57 s`."""
    return f"{hours:.3g} h" if whole_hours >= 1 else duration(hours * 3600)
