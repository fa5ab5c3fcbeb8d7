"""Stages: hours of each image size of a training in phases, and of all, from the tables in rows."""

from collections.abc import Iterator, Sequence

from gpubench.analysis.cells import Cell
from gpubench.analysis.compare import Result
from gpubench.rows.table import hours_by_size, stages_in
from gpubench.studies import words
from gpubench.studies.cases import behind
from gpubench.studies.section import Column, Estimate, Finding, Section, Table


def sections(result: Result) -> Iterator[Section]:
    """Yield a section per group whose rows have hours by image size; only for the metric seconds."""
    for group in result.groups if result.metric.name == "seconds" else []:
        tables = [(cell, stages_in(str(cell.row["table"]))) for cell in group.cells]
        trainings = [(cell, hours_by_size(table)) for cell, table in tables if table is not None]
        if trainings:
            suite, title = group.cells[0].suite, f"{words.title_of(group.cells)}; hours by stage"
            recipe = words.recipe_of(group.cells)
            cases = behind(cell for cell, _ in trainings)
            findings = tuple(_finding(cell, stages) for cell, stages in trainings)
            yield Section("stages", suite, title, findings, (_table(trainings),), recipe=recipe, cases=cases)


def _table(trainings: Sequence[tuple[Cell, Sequence[tuple[int, float]]]]) -> Table:
    sizes = sorted({size for _, stages in trainings for size, _ in stages})
    columns = [Column("model"), Column("card"), Column("precision"), Column("processes", "count")]
    columns += [Column(f"{size} px", "h", "lower") for size in sizes]
    columns += [Column("total", "h", "lower"), Column("notes", note=True)]
    lines = []
    for cell, stages in trainings:
        hours = dict(stages)
        low, high = (cell.interval[0] / 3600, cell.interval[1] / 3600) if cell.interval else (None, None)
        whole = Estimate(cell.median / 3600, low, high)
        count = int(cell.processes)
        lines.append(
            (cell.model, cell.label, cell.precision, count, *(hours.get(s) for s in sizes), whole, words.notes_of(cell))
        )
    return Table("hours", tuple(columns), tuple(lines))


def _finding(cell: Cell, stages: Sequence[tuple[int, float]]) -> Finding:
    many = f"{cell.processes:.0f} x " if cell.processes > 1 else ""
    hours = cell.median / 3600
    parts = [f"{spent:.3g} h at {size} px" for size, spent in stages]
    said = f"{cell.model} in {cell.precision} takes {hours:.3g} h on {many}{words.name(cell.label)}"
    said = ": ".join(filter(None, [said, ", ".join(parts)]))
    return Finding(
        kind="stages",
        suite=cell.suite,
        subject=f"{cell.model} on {many}{cell.label}",
        value=hours,
        projected=cell.measured == "projected",
        doubts=words.doubts_of([cell]),
        models=(cell.model,),
        trials=(cell.trials, 0),
        said=said,
        origin=", ".join([cell.precision, *([f"{len(stages)} image sizes"] if stages else [])]),
        figure=f"{hours:.3g} h",
        facts=words.facts_of(cell),
        cases=cell.cases,
    )
