"""Options that several commands share, and the panels of `--help`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

FLAG = ""
"""The metavar of an option without a value; typer would show a type."""
MEASURE, COMPARE, LOOK_AFTER = "Measure", "Compare and share", "Look after"
THEMES = ("light", "dark")
FORMATS = ("terminal", "markdown", "csv", "json")
METRICS = (
    "seconds", "rate", "energy", "value", "cost", "cost-per-million", "memory", "batch", "accuracy", "loss",
    "time-to-goal",
)  # fmt: skip


def panel(title: str) -> Callable[..., Any]:
    """Return `typer.Option` for the options of this panel of `--help`."""
    return partial(typer.Option, rich_help_panel=title)


what_option, time_option, where_option, file_option = map(panel, ("What", "How long", "Where", "Files"))
side_option, shown_option, chart_option = map(panel, ("What is compared", "What is shown", "Charts"))

Devices = Annotated[
    str, where_option("--device", metavar="NAMES", help="auto, all, cpu, mps, xpu, or cuda:0,cuda:1 (in turn).")
]
Precisions = Annotated[
    str,
    what_option(
        "--precision",
        metavar="NAMES",
        help="both (fp32 and the mixed precision of the device), mixed, all, or names joined by commas: fp32, tf32,"
        " fp16, bf16, fp16-master, fp16-pure, bf16-pure, float8, int8-mixed.",
    ),
]
DataFolder = Annotated[
    Path | None,
    file_option(
        "--data",
        metavar="DIR",
        help="Folder with the official dataset folders, or one of them; default $GPUBENCH_DATA, or the cache.",
    ),
]

Files = Annotated[
    list[Path],
    typer.Argument(help="CSV files, folders of them, or charts and reports of gpubench (they contain their rows)."),
]

By = Annotated[
    str | None,
    side_option(
        metavar="COLUMNS", help="Column to compare along, or two: card, precision, torch,card, batch_size, ..."
    ),
]
Baseline = Annotated[
    str | None,
    side_option(
        metavar="VALUE", help="Value of that column that speedups are relative to; default fp32, or the slowest."
    ),
]
MetricName = Annotated[str, side_option(metavar="NAME", help=f"{', '.join(METRICS)}.")]
Price = Annotated[
    Path | None, side_option(metavar="FILE", help="TOML with dollars per hour, or price and years, of each card.")
]
Where = Annotated[
    list[str] | None,
    side_option(metavar="COLUMN=VALUE", help="Only these rows; COLUMN!=VALUE: all others. Repeatable."),
]
Format = Annotated[str, shown_option("--format", metavar="NAME", help="terminal, markdown, csv or json.")]
Theme = Annotated[str, chart_option(metavar="|".join(THEMES), help="Colours of charts.")]
