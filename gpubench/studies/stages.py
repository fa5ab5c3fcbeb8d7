"""Stages: hours of each image size of a training in phases, and of all, from the tables in rows."""

from collections.abc import Iterator, Sequence

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import Group
from gpubench.rows.table import hours_by_size, stages_in
from gpubench.studies import words
from gpubench.studies.cases import behind
from gpubench.studies.section import Column, Estimate, Result, Section, Table


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per group whose rows have hours by image size; only for the metric seconds."""
    for workload in compared.workloads if compared.metric.name == "seconds" else []:
        tables = [(group, stages_in(str(group.row["table"]))) for group in workload.groups]
        trainings = [(group, hours_by_size(table)) for group, table in tables if table is not None]
        if trainings:
            suite, title = workload.groups[0].suite, f"{words.title_of(workload.groups)}; hours by stage"
            recipe = words.recipe_of(workload.groups)
            cases = behind(group for group, _ in trainings)
            results = tuple(_result(group, stages) for group, stages in trainings)
            yield Section("stages", suite, title, results, (_table(trainings),), recipe=recipe, cases=cases)


def _table(trainings: Sequence[tuple[Group, Sequence[tuple[int, float]]]]) -> Table:
    sizes = sorted({size for _, stages in trainings for size, _ in stages})
    columns = [Column("model"), Column("card"), Column("precision"), Column("processes", "count")]
    columns += [Column(f"{size} px", "h", "lower") for size in sizes]
    columns += [Column("total", "h", "lower"), Column("notes", note=True)]
    lines = []
    for group, stages in trainings:
        hours = dict(stages)
        low, high = (group.interval[0] / 3600, group.interval[1] / 3600) if group.interval else (None, None)
        whole = Estimate(group.median / 3600, low, high)
        count = int(group.processes)
        lines.append(
            (
                group.model,
                group.label,
                group.precision,
                count,
                *(hours.get(s) for s in sizes),
                whole,
                words.notes_of(group),
            )
        )
    return Table("hours", tuple(columns), tuple(lines))


def _result(group: Group, stages: Sequence[tuple[int, float]]) -> Result:
    many = f"{group.processes:.0f} x " if group.processes > 1 else ""
    hours = group.median / 3600
    parts = [f"{spent:.3g} h at {size} px" for size, spent in stages]
    said = f"{group.model} in {group.precision} takes {hours:.3g} h on {many}{words.name(group.label)}"
    said = ": ".join(filter(None, [said, ", ".join(parts)]))
    return Result(
        kind="stages",
        suite=group.suite,
        subject=f"{group.model} on {many}{group.label}",
        value=hours,
        projected=group.measured == "projected",
        caveats=words.caveats_of([group]),
        models=(group.model,),
        trials=(group.trials, 0),
        said=said,
        origin=", ".join([group.precision, *([f"{len(stages)} image sizes"] if stages else [])]),
        figure=f"{hours:.3g} h",
        facts=words.facts_of(group),
        cases=group.cases,
    )
