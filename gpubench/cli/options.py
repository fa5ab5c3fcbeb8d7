"""Options that several commands have, and the panels of the help that commands and options stand in."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli import completion

FLAG = ""
"""Stands where an option's value would: typer names a type there, and a flag takes no value."""
MEASURE, COMPARE, LOOK_AFTER = "Measure", "Compare and share", "Look after"
WHAT, HOW_LONG, WHERE, FILES = "What", "How long", "Where", "Files"
SIDES, SHOWN, DRAWN, MODEL = "What is compared", "What is shown", "Charts", "Scaling model"

Files = Annotated[
    list[Path], typer.Argument(help="CSV files, folders of them, or charts and reports that carry their rows.")
]

By = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Column to compare along, or two: card, precision, torch,card, batch_size, ...",
        autocompletion=completion.columns,
        rich_help_panel=SIDES,
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE",
        help="Value of that column that speedups are relative to: by default fp32, or the slowest.",
        rich_help_panel=SIDES,
    ),
]
MetricName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="seconds, rate, energy, value, cost, cost-per-epoch, memory, batch, accuracy, time-to-goal.",
        autocompletion=completion.one_of(*completion.METRICS),
        rich_help_panel=SIDES,
    ),
]
Price = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TOML with dollars per hour, or price and years, of each card.",
        rich_help_panel=SIDES,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=VALUE",
        help="Only these rows; COLUMN!=VALUE leaves them out. Repeatable.",
        rich_help_panel=SIDES,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="terminal, markdown, csv or json.",
        autocompletion=completion.one_of(*completion.FORMATS),
        rich_help_panel=SHOWN,
    ),
]
Theme = Annotated[
    str,
    typer.Option(
        metavar="light|dark",
        help="Colours of what is drawn.",
        autocompletion=completion.one_of("light", "dark"),
        rich_help_panel=DRAWN,
    ),
]
AllowMismatch = Annotated[
    bool,
    typer.Option(
        "--allow-mismatch",
        metavar=FLAG,
        help="Compare what is not alike too, without verdict; says where.",
        rich_help_panel=SIDES,
    ),
]
