"""Which rows are alike, by the roles of their columns: for comparing, resuming, exporting, submitting and references.

The frames of `analysis.cells.completed` have the columns of AS_COMPARED; rows and files have those of `rows.row`.
"""

from collections.abc import Sequence

from gpubench.rows.column import Role
from gpubench.rows.row import ABOUT

AS_COMPARED = {
    "measured": "basis",
    "batch_size": "fixed_batch",
    "device": "unknown_device",
    "power_limit_watts": "power_cap",
    "interconnect": "link",
}
"""Columns that are compared in another form, and the column of `completed` that has it."""


def columns_of(*roles: Role) -> list[str]:
    """The row's columns that have one of these roles, by role and then as the row has them."""
    return [name for role in roles for name, about in ABOUT.items() if about.role is role]


def compared(*roles: Role) -> list[str]:
    """The same as columns of the frames that `completed` returns."""
    return [AS_COMPARED.get(name, name) for name in columns_of(*roles)]


def _without(columns: Sequence[str], *names: str) -> list[str]:
    return [name for name in dict.fromkeys(columns) if name not in names]


GROUP = compared(Role.RECIPE)
"""The part of the key that a table or chart shares.

`basis` is `measured`, but empty where the mode is sampled: near the limit of a sample some trials of a case measure
everything and others project, and all of them answer the same question.
"""

KEY = [*GROUP, *compared(Role.CASE)]
"""What must agree for two groups of rows to be compared; the compared column is taken out of it."""

SPECIMEN = compared(Role.SPECIMEN)
"""Trials are pooled only inside one specimen and one session.

`unknown_device` is the device where it has no hash, and empty elsewhere: nothing else tells it from its neighbour.
"""

STACK_PARAMS = ("threads", "cudnn_benchmark")
"""Parameters that every suite has and that belong to the stack, not to the recipe."""

SOFTWARE = columns_of(Role.SOFTWARE)
"""Versions, of which the first two numbers count."""

STACK = [*SOFTWARE, *compared(Role.SETTING), "cudnn_benchmark"]
"""A difference here is worth up to 20% by itself, so it leaves a ratio but takes the verdict away."""

BETWEEN = ("backend", "link")
"""Columns of the stack that only several processes have, and older rows and published ones lack: empty is unknown."""

TURNS = ["torch", *columns_of(Role.CODE)]
"""What runs that take turns in one session (`--session NAME`) may differ in."""

CASE = _without([*KEY, *SPECIMEN], "basis")
"""What trials of one case agree in whatever became of them."""

CELL = _without([*KEY, *SPECIMEN, "batch_size", *STACK, *TURNS])
"""What the trials of one group agree in."""

IDENTITY = _without([*CELL, "device"])
"""What tells cases, specimens and stacks apart."""

READ_IDENTITY = [
    *columns_of(Role.RECIPE, Role.CASE, Role.SPECIMEN, Role.SOFTWARE, Role.SETTING, Role.CODE),
    "default_power_limit_watts",
]
"""The columns as they are read from which all of IDENTITY follows."""

OUTCOMES = columns_of(Role.FIGURE)
"""Columns of which a group shows the median over its trials."""

SERIES = _without([*KEY, *SPECIMEN], "params", "processes", "nodes", "source", "basis", "batch_policy", "fixed_batch")
"""What rows of one published series at several numbers of processes agree in: not the recipe, which goes with it."""

REFERENCE = _without(
    [*KEY, "batch_size", "card", *STACK], "mode", "source", "basis", "batch_policy", "fixed_batch", "threads"
)
"""What rows of two hosts agree in, in the frames of `completed`, where one's rate is a reference for the other's."""

CASE_OF_A_RUN = ("suite", "model", "precision", "batch_policy", "device", "processes", "nodes", "params")
"""What tells the cases of one run apart."""

RESUMED = _without(
    columns_of(Role.RECIPE, Role.SPECIMEN, Role.HOST, Role.SOFTWARE, Role.SETTING, Role.CODE), *CASE_OF_A_RUN
)
"""What the trials of one case and session agree in, beside what tells the cases of a run apart."""

SUBMITTED = _without(
    [*columns_of(Role.RECIPE, Role.CASE, Role.SPECIMEN, Role.CODE), "torch", "memory_limit_bytes"],
    "measured", "source", "suite_version", "weights",
)  # fmt: skip
"""What the trials of one case in one run agree in, in files; `submit` then checks the other columns of a case."""
