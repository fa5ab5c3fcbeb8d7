"""A judgement as an answer: the verdict, each figure beside its limit, and the machine that was measured."""

from collections.abc import Sequence

import pandas as pd

from gpubench.studies.acceptance.checks import Judgement
from gpubench.studies.acceptance.limits import FALSE_ALARMS, LEAST, LEAST_HOSTS, SLOW
from gpubench.studies.section import Answer, Column, Section, Table, Value

MACHINE = (
    "card", "card_memory_bytes", "driver", "power_limit_watts", "default_power_limit_watts", "card_max_sm_clock_mhz",
    "clocks_policy", "ecc", "mig", "max_pcie_generation", "max_pcie_width", "cpu", "cpu_count", "os", "container",
    "torch", "cuda", "cudnn", "gpubench",
)  # fmt: skip
"""Columns that say what was measured, the same in all rows of a session."""
TRIALS = (
    "model", "precision", "trial", "samples_per_second", "steady", "marks", "throttle", "mean_power_watts",
    "mean_sm_clock_mhz", "max_temperature_celsius", "pcie_generation", "pcie_width", "foreign_load", "started",
)  # fmt: skip
"""And what happened in each trial."""
RULE = (
    f"A figure is too low where it is {LEAST:.0%} or more below the median of {LEAST_HOSTS} references or more, and so"
    f" low that about {FALSE_ALARMS:.0%} of good cards would have any such figure, if hosts are like 39 published ones."
    " The limit widens with how much the references scatter and with how few they are. A reference is a host, as far as"
    " rows tell: cards that were measured together count once. Trials beside other programs, and those slowed by heat,"
    " are no references. Case, batch, precision, parameters, card, torch and CUDA are the same (docs/accept.md)."
)
READ = (
    "share: of what is typical of them. least: below it a figure is too low. found: of cards that are"
    f" {SLOW:.0%} slow in this figure alone, how many would be."
)


def answer_of(
    judgement: Judgement, mine: pd.DataFrame, references: pd.DataFrame, notes: Sequence[str], table: bytes
) -> Answer:
    """What faces show; `table` is the CSV of the rows `mine`, which a page carries."""
    shown = (_figures(judgement), _machine(mine), _trials(mine), _references(references))
    measured = f"Measured {mine['started'].min()} to {mine['started'].max()} by gpubench {mine['gpubench'].iloc[0]}."
    section = Section("accept", judgement.card, "what was measured", tables=shown, notes=(READ, *notes))
    return Answer(
        judgement.sentence,
        findings=(),
        sections=(section,),
        metric="rate",
        rule=f"{measured} {RULE}",
        files=1,
        rows=len(mine),
        about=len(mine),
        table=lambda cases: table,
    )


def _figures(judgement: Judgement) -> Table:
    columns = (
        Column("figure"),
        Column("unit"),
        Column("here", "x"),
        Column("typical", "x"),
        Column("share", "ratio", places=2),
        Column("least", "ratio", places=2),
        Column("found", "share", places=0),
        Column("references", "count"),
        Column("verdict"),
    )
    lines: list[tuple[Value, ...]] = []
    for each in judgement.figures:
        limit = each.limit
        against = (limit.typical, each.share, limit.least / limit.typical, limit.found) if limit else (None,) * 4
        lines.append((each.name, each.unit, each.value, *against, len(each.references), each.said))
    return Table("figures beside those of others of its kind", columns, tuple(lines))


def _machine(mine: pd.DataFrame) -> Table:
    first = mine.iloc[0]
    lines = [(name.replace("_", " "), _text(first[name])) for name in MACHINE]
    return Table("machine", (Column("what"), Column("value")), tuple(line for line in lines if line[1]))


def _trials(mine: pd.DataFrame) -> Table:
    lines = [tuple(_text(row[name]) for name in TRIALS) for _, row in mine.iterrows()]
    return Table("trials", tuple(Column(name.replace("_", " ")) for name in TRIALS), tuple(lines))


def _references(rows: pd.DataFrame) -> Table:
    """A line for each host: what it is known by, and when it was measured."""
    columns = ("host", "devices", "sessions", "trials", "first", "last", "power limit watts", "driver")
    lines = [
        (
            str(number),
            *(" ".join(dict.fromkeys(own[name])) for name in ("device_hash", "session")),
            str(len(own)),
            *map(str, (own["started"].min(), own["started"].max())),
            *(", ".join(dict.fromkeys(map(_text, own[name]))) for name in ("power_limit_watts", "driver")),
        )
        for number, (_, own) in enumerate(rows.groupby("host", sort=False), 1)
    ]
    return Table("references", tuple(map(Column, columns)), tuple(lines))


def _text(value: object) -> str:
    """As the row has it; empty where it is unknown."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    return str(value)
