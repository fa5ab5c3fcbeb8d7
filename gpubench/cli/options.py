"""Options that commands share, panels of `--help`, and parsers of sizes, times and shares, which raise UserError."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gpubench.errors import UserError, names_there

FLAG = ""
"""The metavar of an option without a value; typer would show a type."""
MEASURE, COMPARE, LOOK_AFTER = "Measure", "Compare and share", "Look after"
THEMES = ("light", "dark")
FORMATS = ("terminal", "markdown", "csv", "json")
METRICS = (
    "seconds", "rate", "energy", "value", "cost", "cost-per-million", "memory", "batch", "accuracy", "loss",
    "time-to-goal",
)  # fmt: skip
what_option, time_option, where_option, file_option, side_option, shown_option, chart_option = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("What", "How long", "Where", "Files", "What is compared", "What is shown", "Charts")
)
Devices = Annotated[
    str, where_option("--device", metavar="NAMES", help="auto, all, cpu, mps, xpu, or cuda:0,cuda:1 (in turn).")
]
Precisions = Annotated[
    list[str] | None,
    what_option(
        "--precision",
        metavar="NAMES",
        help="both (fp32 and mixed; default of run), mixed (fp16 or bf16), all (default of `gpubench peak`), or names"
        " joined by commas: fp32, tf32, fp16, bf16, fp16-master, fp16-pure, bf16-pure, float8, int8-mixed.",
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the suite. Repeatable.")
]
DataFolder = Annotated[
    Path | None, file_option("--data", metavar="DIR", help="Folder of the data; default $GPUBENCH_DATA, or the cache.")
]
Files = Annotated[
    list[Path], typer.Argument(help="CSV files, folders of them, or charts and reports (they contain their rows).")
]
By = Annotated[
    str | None, side_option(metavar="COLUMNS", help="What to compare: a column or parameter, or two: torch,card.")
]
Baseline = Annotated[
    str | None, side_option(metavar="VALUE", help="What speedups are relative to; default fp32, or the slowest.")
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


def examples(*lines: str) -> str:
    """Return the end of a command's help: its examples, one per line."""
    return "\n\n".join(["Examples:", *lines])


def check_choice(option: str, text: str, choices: Sequence[str]) -> None:
    """Raise UserError if `text` is not one of the choices."""
    if text not in choices:
        raise UserError(f"{option} {text}: {names_there(text, choices)}")


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of `key=value` texts by name; of two values of one name, the last counts."""
    settings = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise UserError(f"--set {text}: write it as key=value")
        settings[name] = value
    return settings


def parse_processes(text: str) -> tuple[int, ...]:
    """Return the numbers of processes in `4` or `1,2,4`."""
    counts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in counts):
        raise UserError(f"--processes {text}: give a number above 0, or several joined by commas")
    return tuple(dict.fromkeys(map(int, counts)))


def parse_size(text: str) -> int:
    """Return the bytes of `11GiB`, `2GB` or `500MiB`. A number without a unit is an error."""
    units = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    number = text.strip().lower().rstrip("kmgib")
    unit = text.strip().lower()[len(number) :]
    try:
        size = float(number) * units[unit.strip()]
    except (KeyError, ValueError):
        raise UserError(f"--memory-limit {text}: write it as 11GiB, 2GB or 500MiB") from None
    if not 1 <= size < float("inf"):
        raise UserError(f"--memory-limit {text}: give a byte or more")
    return int(size)


def parse_share(option: str, text: str) -> float:
    """Return the fraction that `1%` or `0.5 %` means."""
    number, sign, rest = text.strip().partition("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = 0.0
    if not sign or rest or not 0 < share < 1:
        raise UserError(f"{option} {text}: write it as a percentage, 1% or 0.5%")
    return share


def parse_duration(text: str, option: str = "--time-limit") -> float:
    """Return the seconds of `90s`, `10m`, `1h30m` or `45`."""
    pattern = r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?"
    match = re.fullmatch(pattern, text.strip().lower(), re.ASCII)
    hours, minutes, seconds = match.groups(default="0") if match else ("0", "0", "0")
    total = float(hours) * 3600 + float(minutes) * 60 + float(seconds)
    if total <= 0:
        raise UserError(f"{option} {text}: write it as 90s, 10m or 1h30m")
    return total


def parse_session(text: str) -> str:
    """Return the name of a session: letters, digits, dots, dashes and underscores."""
    if not re.fullmatch(r"[\w.-]{1,64}", text, re.ASCII):
        raise UserError(f"--session {text}: up to 64 letters, digits, dots, dashes and underscores")
    return text
