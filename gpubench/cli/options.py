"""Options that several commands share, and the panels of `--help`."""

from pathlib import Path
from typing import Annotated

import typer

FLAG = ""
"""The metavar of an option without a value; typer would show a type."""
MEASURE, COMPARE, LOOK_AFTER = "Measure", "Compare and share", "Look after"
WHAT, HOW_LONG, WHERE, FILES = "What", "How long", "Where", "Files"
SIDES, SHOWN, DRAWN = "What is compared", "What is shown", "Charts"
THEMES = ("light", "dark")
FORMATS = ("terminal", "markdown", "csv", "json")
METRICS = (
    "seconds", "rate", "energy", "value", "cost", "memory", "batch", "accuracy", "time-to-goal",
)  # fmt: skip

Devices = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAMES",
        help="auto, all, cpu, mps, xpu, or cuda:0,cuda:1 (in turn).",
        rich_help_panel=WHERE,
    ),
]
Precisions = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="NAMES",
        help="both (fp32 and the mixed precision of the device), mixed, all, or names joined by commas: fp32, tf32,"
        " fp16, bf16, fp16-master, fp16-pure, bf16-pure, float8, int8-mixed.",
        rich_help_panel=WHAT,
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder with the official dataset folders, or one of them; default $GPUBENCH_DATA, or the cache.",
        rich_help_panel=FILES,
    ),
]

Files = Annotated[
    list[Path],
    typer.Argument(help="CSV files, folders of them, or charts and reports of gpubench (they contain their rows)."),
]

By = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Column to compare along, or two: card, precision, torch,card, batch_size, ...",
        rich_help_panel=SIDES,
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE",
        help="Value of that column that speedups are relative to; default fp32, or the slowest.",
        rich_help_panel=SIDES,
    ),
]
MetricName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"{', '.join(METRICS)}.",
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
        help="Only these rows; COLUMN!=VALUE: all others. Repeatable.",
        rich_help_panel=SIDES,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="terminal, markdown, csv or json.",
        rich_help_panel=SHOWN,
    ),
]
Theme = Annotated[
    str,
    typer.Option(
        metavar="|".join(THEMES),
        help="Colours of charts.",
        rich_help_panel=DRAWN,
    ),
]
