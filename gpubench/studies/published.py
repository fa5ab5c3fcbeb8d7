"""The studies `epochs`, `stages` and `published`: accuracy by epoch, hours by image size, and published runs compared.

The first two also show trainings that gpubench ran. `answer` calls all three.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import Group, dicts_of, short
from gpubench.rows.params import params_of
from gpubench.rows.table import BROKEN, Epoch, epochs_in, hours_by_size, stages_in, table_of
from gpubench.studies import words
from gpubench.studies.cases import PLAUSIBLE_SECONDS, cases_of, known
from gpubench.studies.section import Column, Result, Section, Table, Value
from gpubench.suite.trial import TRAINED

Row = Mapping[str, Any]


def epoch_sections(compared: Compared) -> Iterator[Section]:
    """Yield the accuracy of each epoch, a section per suite; only if `compared.is_usual`."""
    by_suite: dict[str, list[tuple[Group, list[Epoch]]]] = defaultdict(list)
    for workload in compared.workloads if compared.is_usual else []:
        for group in workload.cases:
            epochs = epochs_in(group.row["table"])
            has_accuracy = any(epoch.top1 is not None or epoch.top5 is not None for epoch in epochs)
            if group.status in TRAINED and len(epochs) > 1 and has_accuracy:
                by_suite[group.suite].append((group, epochs))
    for suite, trainings in by_suite.items():
        results = tuple(_best_epoch(group, epochs) for group, epochs in trainings)
        names = Counter[str]()
        tables = []
        titles = [f"epochs of {group.model}, {group.precision}, {_where(group)}" for group, _ in trainings]
        columns = ("suite", "suite_version", "model", "precision", "card", "params")
        facts = [{name: group.row[name] for name in columns} for group, _ in trainings]
        for name, (_, epochs) in zip(words.with_differences(titles, facts), trainings, strict=True):
            names[name] += 1
            numbered = f"{name} ({names[name]})" if names[name] > 1 else name
            tables.append(Table.of(numbered, [_epoch_line(epoch) for epoch in epochs]))
        cases = words.behind(group for group, _ in trainings)
        yield Section("epochs", suite, f"{suite}: accuracy by epoch", results, tuple(tables), cases=cases)


def _best_epoch(group: Group, epochs: Sequence[Epoch]) -> Result:
    """Return the best top-5 accuracy and when it was reached; the best top-1 accuracy if no epoch has a top-5."""
    top5 = [(epoch.top5, epoch) for epoch in epochs if epoch.top5 is not None]
    top1 = [(epoch.top1, epoch) for epoch in epochs if epoch.top1 is not None]
    share, epoch = max(top5 or top1, key=lambda pair: pair[0])
    name, when = "top-5" if top5 else "top-1", f"epoch {epoch.number}, {words.time(3600 * epoch.hours)}"
    claim = f"{group.model} has {share:.1%} {name} after {when}, on {_where(group)}"
    subject, about = f"{name} of {group.model} on {_where(group)}", {"origin": f"{when}, {group.precision}"}
    return words.result_of([group], "epochs", subject, share, claim, figure=f"{share:.1%}", **about)


def _where(group: Group) -> str:
    many = f"{group.processes:.0f} x " if group.processes > 1 else ""
    return f"{many}{words.name(group.label)}"


def _epoch_line(epoch: Epoch) -> dict[Column, Value]:
    return {
        Column("epoch", "count"): epoch.number,
        Column("hours", "h", places=4): epoch.hours,
        Column("top-1", "share", "higher", places=2): epoch.top1,
        Column("top-5", "share", "higher", places=2): epoch.top5,
        Column("pixels", "count"): epoch.size,
    }


def stage_sections(compared: Compared) -> Iterator[Section]:
    """Yield the hours by image size, a section per workload with several image sizes; only if seconds are compared."""
    for workload in compared.workloads if compared.metric.name == "seconds" else []:
        stages_of = [(group, hours_by_size(stages_in(str(group.row["table"])))) for group in workload.groups]
        trainings = [(group, stages) for group, stages in stages_of if len(stages) > 1]
        results = tuple(_stages(group, stages) for group, stages in trainings)
        if results:
            cases = words.behind(group for group, _ in trainings)
            yield words.section_of(workload.groups, "stages", "; hours by stage", results, cases=cases)


def _stages(group: Group, stages: Sequence[tuple[int, float]]) -> Result:
    """Return the time of a training, and how much of it each image size took."""
    whole, where = group.median, _where(group)
    parts = ", ".join(f"{words.time(3600 * hours, whole)} at {size} px" for size, hours in stages)
    claim = f"{group.model} in {group.precision} takes {words.time(whole)} on {where}: {parts}"
    about = {"origin": f"{group.precision}, {len(stages)} image sizes", "figure": words.time(whole)}
    return words.result_of([group], "stages", f"{group.model} on {where}", whole / 3600, claim, **about)


def published_sections(compared: Compared) -> Iterator[Section]:
    """Yield a section for each publication: its authors' runs beside those of others; only if `compared.is_usual`.

    A publication is the rows of one suite and `session` that declare this study. Rows with the source of the first row
    are the authors'. Each row is one run, so no result has a verdict.
    """
    if not compared.is_usual:
        return
    rows = compared.frame[compared.frame["mode"].isin(["published"]) & compared.frame["status"].isin(["ok"])]
    rows = rows[rows["studies"].isin([text for text in rows["studies"].unique() if "published" in str(text).split()])]
    for (suite, _), publication in rows.groupby(["suite", "session"], sort=False):
        lines, cases = dicts_of(publication), cases_of(publication)
        title = f"{suite}: {words.author(lines[0]['source'])} beside other published runs"
        results = (*_against_others(lines, cases), *_stated_gains(lines, cases))
        with_figures = [_table_line(line) for line in lines if line["seconds"] > 0 or line["accuracy"] > 0]
        table = Table.of("published", with_figures)
        yield Section("published", str(suite), title, results, (table,), cases=cases)


def _against_others(lines: Sequence[Row], cases: frozenset[int]) -> Iterator[Result]:
    """Yield a result per run of others: against the authors' fastest run of the same model, or else of any model."""
    timed = [line for line in lines if PLAUSIBLE_SECONDS[0] <= line["seconds"] <= PLAUSIBLE_SECONDS[1]]
    authors = [line for line in timed if line["source"] == lines[0]["source"]]
    for other in timed:
        same_model = [line for line in authors if line["model"] == other["model"]] or authors
        if other in authors or not same_model:
            continue
        best = min(same_model, key=lambda line: float(line["seconds"]))
        gain = other["seconds"] / best["seconds"]
        model = f" ({words.name(other['model'])})" if best["model"] != other["model"] else ""
        baseline = f"{other['model']} on {_machines(other)}" if model else _machines(other)
        accuracies = [_accuracy(line) for line in (best, other)]
        claim = (
            f"{best['model']} takes {words.time(best['seconds'])} on {words.name(_machines(best))} against"
            f" {words.time(other['seconds'])} of {words.author(other['source'])} on {words.name(_machines(other))}"
            f"{model}: {words.times(gain)} as fast"
        )
        more = {"origin": " against ".join(accuracies) if all(accuracies) else "", "trials": (1, 1)}
        facts = {"other": words.author(other["source"])}
        yield _result(best, cases, _machines(best), baseline, gain, claim, verdict="one run", facts=facts, **more)


def _stated_gains(lines: Sequence[Row], cases: frozenset[int]) -> Iterator[Result]:
    """Yield speedups published without durations, from tables with `what`, `baseline` and `times` (the factor)."""
    for line in lines:
        for stated in table_of(line["table"]):
            try:
                what, baseline = (words.name(str(stated[name])) for name in ("what", "baseline"))
                gain = float(stated["times"])
            except BROKEN:
                continue
            if 0 < gain < PLAUSIBLE_SECONDS[1]:
                model, place = str(line["model"]), _machines(line)
                claim = f"{model} on {place} is up to {words.times(gain)} as fast with {what} as with {baseline}"
                more = {"place": place, "caveats": ("published without durations",)}
                yield _result(line, cases, f"{model} with {what}", baseline, gain, claim, **more)


def _result(
    line: Row, cases: frozenset[int], subject: str, baseline: str, gain: float, claim: str, **more: Any
) -> Result:
    """Return a result of the published run in `line`; `more` are further fields of the result."""
    fields: dict[str, Any] = {"models": (str(line["model"]),), "cases": cases, "source": words.author(line["source"])}
    return Result("published", str(line["suite"]), subject, gain, claim, baseline, **fields, **more)


def _table_line(line: Row) -> dict[Column, Value]:
    stated = params_of(line["params"]).get("global_batch", "")
    images = float(stated) if stated.isdecimal() else float(line["batch_size"] * line["processes"])
    return {
        Column("model"): str(line["model"]),
        Column("machines"): _machines(line),
        Column("by"): words.author(line["source"]),
        Column("minutes", "min", "lower"): known(line["seconds"] / 60),
        Column("accuracy", "share", "higher"): known(line["accuracy"]),
        Column("top-5", "share", "higher"): known(line["top5"]),
        Column("images per step", "count"): known(images),
        Column("epochs", "count"): known(line["epochs"]),
        Column("dollars", "dollars", "lower"): known(line["dollars"]),
        Column("notes", note=True): str(line["reason"]),
    }


def _machines(line: Row) -> str:
    """Return the count and card, as `2,048 x Tesla P40`."""
    many = f"{line['processes']:,.0f} x " if line["processes"] > 1 else ""
    return f"{many}{short(str(line['card']))}"


def _accuracy(line: Row) -> str:
    share, name = (line["accuracy"], "") if line["accuracy"] > 0 else (line["top5"], " top-5")
    return f"{share:.1%}{name}" if share > 0 else ""
