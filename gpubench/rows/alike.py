"""The columns in which rows must agree to be alike: to be pooled, compared, resumed, submitted or used as references.

Most names come from the roles in rows/row.py. Frames of `analysis.groups.completed` have the columns of AS_COMPARED.
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
"""Columns that are compared in another form, and the column of `completed` with that form."""


def columns_of(*roles: Role) -> list[str]:
    """Return the row's columns with one of these roles, ordered by role, then as in the row."""
    return [name for role in roles for name, about in ABOUT.items() if about.role is role]


def compared(*roles: Role) -> list[str]:
    """Return the columns with one of these roles by their names in the frames of `completed`."""
    return [AS_COMPARED.get(name, name) for name in columns_of(*roles)]


WORKLOAD = compared(Role.RECIPE, Role.ORIGIN, Role.SCALE)
"""The part of KEY in which all rows of a table or chart agree.

`basis` is `measured`, but empty in sampled mode. There, if a run is hardly longer than a sample, some trials of a case
measure the whole run and others project the rest of it; such trials are comparable.
"""
KEY = [*WORKLOAD, *compared(Role.CASE, Role.BATCH)]
"""Columns in which two groups must agree to be compared, except for the compared column."""
SPECIMEN = compared(Role.SPECIMEN)
"""Columns in which trials must agree to be pooled: the card, its specimen, and the session.

`unknown_device` is the device (`cuda:1`) if it has no hash that identifies it, else empty.
"""
STACK_PARAMS = ("threads", "cudnn_benchmark")
"""Parameters of every suite that are settings of the software, not of the recipe."""
SOFTWARE = columns_of(Role.SOFTWARE)
"""Versions; only their first two numbers are compared."""
LINK = compared(Role.LINK)
"""What connects several processes. Empty for one process; also in older and published rows, where it is unknown."""
STACK = list(dict.fromkeys([*SOFTWARE, *STACK_PARAMS, *compared(Role.SETTING), *LINK]))
"""Columns of software and settings. A difference in one can change a time by 20%, so the ratio gets no verdict."""
TURNS = ["torch", "memory_limit_bytes", *columns_of(Role.CODE)]
"""Columns in which runs that alternate in one session (`--session NAME`) may differ."""
CASE = [*(name for name in [*KEY, *SPECIMEN] if name != "basis"), *columns_of(Role.CODE)]
"""Columns in which all trials of one case agree, also failed ones, whose version of torch may be unknown."""
TRIAL = list(dict.fromkeys([*CASE, *TURNS, "threads_asked", "cudnn_benchmark", "device"]))
"""Columns in which rows of one trial agree, besides its number. `completed` reads STACK_PARAMS from `params`."""
GROUP = list(dict.fromkeys([*KEY, *SPECIMEN, "batch_size", *STACK, *TURNS]))
"""Columns in which the trials of one group agree."""
IDENTITY = [*GROUP, "device"]
"""Columns that distinguish cases, specimens, software and settings."""
READ_IDENTITY = [
    *(name for name, about in ABOUT.items() if about.role not in {Role.HOST, Role.FIGURE, Role.RECORD}),
    "default_power_limit_watts",
]
"""The columns of files from which all columns of IDENTITY are computed."""
OUTCOMES = columns_of(Role.FIGURE)
"""Measured columns: a group has their medians over its trials."""
SERIES = compared(Role.RECIPE, Role.CASE, Role.SPECIMEN)
"""Columns in which the rows of one published series agree; its rows differ in the number of processes."""
REFERENCE = list(dict.fromkeys([*KEY, "batch_size", "card", "torch", "cuda", "memory_limit_bytes", *LINK]))
"""Columns in which rows of two hosts agree if the rate of one is a reference for the other."""
RESUMED = [
    name
    for name in columns_of(Role.RECIPE, Role.SPECIMEN, Role.HOST, Role.SOFTWARE, Role.SETTING, Role.CODE)
    if name not in {"suite", "device"}
]
"""Columns in which a resumed run must agree with its earlier rows of the same suite and device."""
SUBMITTED = [*columns_of(Role.RECIPE, Role.SCALE, Role.CASE, Role.BATCH, Role.SPECIMEN), *TURNS]
"""Columns in which the trials of one case in one run agree in submitted files. `measured` may differ: see WORKLOAD."""
