"""Which rows are alike, by the roles of their columns: for comparing, resuming, exporting, submitting and references.

The frames of `analysis.groups.completed` have the columns of AS_COMPARED; rows and files have those of `rows.row`.
"""

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


WORKLOAD = compared(Role.RECIPE, Role.ORIGIN, Role.SCALE)
"""The part of the key that a table or chart shares.

`basis` is `measured`, but empty where the mode is sampled: near the limit of a sample some trials of a case measure
everything and others project, and all of them answer the same question.
"""

KEY = [*WORKLOAD, *compared(Role.CASE, Role.BATCH)]
"""What must agree for two groups of rows to be compared; the compared column is taken out of it."""

SPECIMEN = compared(Role.SPECIMEN)
"""Trials are pooled only inside one specimen and one session.

`unknown_device` is the device where it has no hash, and empty elsewhere: nothing else tells it from its neighbour.
"""

STACK_PARAMS = ("threads", "cudnn_benchmark")
"""Parameters that every suite has and that belong to the stack, not to the recipe."""

SOFTWARE = columns_of(Role.SOFTWARE)
"""Versions, of which the first two numbers count."""

LINK = compared(Role.LINK)
"""Columns of the stack that only several processes have, and older rows and published ones lack: empty is unknown."""

STACK = list(dict.fromkeys([*SOFTWARE, *STACK_PARAMS, *compared(Role.SETTING), *LINK]))
"""Columns whose difference alone can change a time by 20%: such a ratio is shown without a verdict."""

CASE = [name for name in [*KEY, *SPECIMEN] if name != "basis"]
"""What trials of one case agree in whatever became of them."""

TURNS = ["torch", "memory_limit_bytes", *columns_of(Role.CODE)]
"""What runs that take turns in one session (`--session NAME`) may differ in."""

TRIAL = [*CASE, *TURNS, "device"]
"""What rows of one trial agree in, beside its number."""

GROUP = list(dict.fromkeys([*KEY, *SPECIMEN, "batch_size", *STACK, *TURNS]))
"""What the trials of one group agree in."""

IDENTITY = [*GROUP, "device"]
"""What tells cases, specimens and stacks apart."""

READ_IDENTITY = [
    *(name for name, about in ABOUT.items() if about.role not in {Role.HOST, Role.FIGURE, Role.RECORD}),
    "default_power_limit_watts",
]
"""The columns as they are read from which all of IDENTITY follows."""

OUTCOMES = columns_of(Role.FIGURE)
"""Columns of which a group shows the median over its trials."""

SERIES = compared(Role.RECIPE, Role.CASE, Role.SPECIMEN)
"""What rows of one published series at several numbers of processes agree in."""

REFERENCE = list(dict.fromkeys([*KEY, "batch_size", "card", "torch", "cuda", "memory_limit_bytes", *LINK]))
"""What rows of two hosts agree in where one's rate is a reference for the other's, which a setting may slow."""

RESUMED = [
    name
    for name in columns_of(Role.RECIPE, Role.SPECIMEN, Role.HOST, Role.SOFTWARE, Role.SETTING, Role.CODE)
    if name not in {"suite", "device"}
]
"""What the trials of one suite, device and session agree in; SCALE, CASE and BATCH tell the cases of a run apart."""

SUBMITTED = [
    name
    for name in [*columns_of(Role.RECIPE, Role.SCALE, Role.CASE, Role.BATCH, Role.SPECIMEN), *TURNS]
    if name != "measured"
]
"""What the trials of one case in one run agree in, in files. Near the limit of a sample some trials measure everything
and others project."""
