"""Stages: hours of each image size of a training in phases, from the tables in rows."""

from collections.abc import Iterator, Sequence

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import Group
from gpubench.rows.table import hours_by_size, stages_in
from gpubench.studies import words
from gpubench.studies.cases import behind
from gpubench.studies.section import Result, Section


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per workload with trainings on several image sizes; only for the metric seconds."""
    for workload in compared.workloads if compared.metric.name == "seconds" else []:
        tables = [(group, stages_in(str(group.row["table"]))) for group in workload.groups]
        trainings = [(group, hours_by_size(table)) for group, table in tables if table is not None]
        results = [_result(group, stages) for group, stages in trainings if len(stages) > 1]
        if results:
            suite, title = workload.groups[0].suite, f"{words.title_of(workload.groups)}; hours by stage"
            cases = behind(group for group, _ in trainings)
            yield Section("stages", suite, title, tuple(results), recipe=words.recipe_of(workload.groups), cases=cases)


def _result(group: Group, stages: Sequence[tuple[int, float]]) -> Result:
    many = f"{group.processes:.0f} x " if group.processes > 1 else ""
    hours = group.median / 3600
    parts = ", ".join(f"{spent:.3g} h at {size} px" for size, spent in stages)
    said = f"{group.model} in {group.precision} takes {hours:.3g} h on {many}{words.name(group.label)}"
    return words.result_of(
        group,
        "stages",
        f"{group.model} on {many}{group.label}",
        hours,
        said=f"{said}: {parts}",
        origin=f"{group.precision}, {len(stages)} image sizes",
        figure=f"{hours:.3g} h",
    )
