"""Comparisons as tables in a terminal: adapts to its width, plain in a pipe, honours NO_COLOR."""

import sys

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubench.comparing.compare import Cell, Comparison, Group, Result
from gpubench.comparing.stats import Ratio, median_interval

PIPE_WIDTH = 160
COLOURS = {"faster": "green", "slower": "red", "same": "cyan"}


def print_result(result: Result) -> None:
    """Everything, to stdout; what could not be read, to stderr."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    errors = Console(stderr=True, highlight=False)
    for problem in result.problems:
        errors.print(Text(problem, style="yellow"), soft_wrap=True)
    for group in result.groups:
        console.print(Text(group.title, style="bold"), soft_wrap=True)
        console.print(_cells_table(group))
        if group.comparisons:
            console.print(_comparisons_table(group))
        for mean in group.means:
            value = "withheld (under half)" if mean.value is None else f"{mean.value:.2f}"
            console.print(
                f"  geometric mean {mean.subject_name} / {mean.other_name}: {value},"
                f" {mean.common} of {mean.all_cases} cases",
                soft_wrap=True,
            )
        console.print()
    if result.left_out:
        console.print(Text("Left out", style="bold"))
        for line in result.left_out:
            console.print(Text(f"  {line}"), soft_wrap=True)
    if not result.comparisons:
        console.print("Nothing here can be compared: no two rows differ in card or precision alone.")


def _cells_table(group: Group) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("model", "card", "precision"):
        table.add_column(name, overflow="fold")
    for name in ("batch", "seconds", "95%", "relative", "samples/s", "trials"):
        table.add_column(name, justify="right", no_wrap=True)
    if any(cell.accuracy == cell.accuracy for cell in group.cells):
        table.add_column("accuracy", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    before = ""
    for cell in group.cells:
        best = min(other.median for other in group.cells if other.model == cell.model)
        if before and before != cell.model:
            table.add_section()
        cells = [
            cell.model if cell.model != before else "",
            cell.label,
            cell.precision,
            batch_text(cell),
            seconds_text(cell.median),
            _interval_text(cell),
            f"{cell.median / best:.2f}",
            f"{cell.samples_per_second:,.0f}" if cell.samples_per_second == cell.samples_per_second else "",
            str(cell.trials),
        ]
        if any(other.accuracy == other.accuracy for other in group.cells):
            cells.append(f"{cell.accuracy:.2%}" if cell.accuracy == cell.accuracy else "")
        cells.append(_notes(cell))
        # Text, not markup: what a CSV holds is data.
        table.add_row(*(Text(text) for text in cells))
        before = cell.model
    return table


def batch_text(cell: Cell) -> str:
    """The batch, and the policy that chose it."""
    size = "" if pd.isna(cell.batch_size) else f"{cell.batch_size:.0f}"
    capped = ", capped" if cell.batch_capped else ""
    return f"{size} ({cell.batch_policy}{capped})"


def seconds_text(seconds: float) -> str:
    """Seconds with as many digits as a reader can use."""
    if seconds >= 1000:
        return f"{seconds:,.0f}"
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def _interval_text(cell: Cell) -> str:
    interval = median_interval(cell.seconds)
    return f"{seconds_text(interval[0])} to {seconds_text(interval[1])}" if interval else ""


def _notes(cell: Cell) -> str:
    notes = []
    if cell.measured == "projected":
        notes.append("projected")
    if cell.steady.startswith("unsteady"):
        notes.append("unsteady")
    if cell.data == "synthetic":
        notes.append("synthetic data")
    if cell.reason:
        notes.append(cell.reason)
    return "; ".join(notes)


def _comparisons_table(group: Group) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for name in ("model", "what"):
        table.add_column(name, overflow="fold")
    for name in ("ratio", "95%"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("trials", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for comparison in group.comparisons:
        ratio, what, verdict = shown(comparison)
        interval = f"{ratio.low:.2f} to {ratio.high:.2f}" if ratio.low and ratio.high else ""
        trials = f"{comparison.subject.trials}, {comparison.other.trials}"
        table.add_row(
            Text(str(comparison.subject.model)),
            Text(what),
            Text(f"{ratio.value:.2f}", style="bold"),
            interval,
            Text(verdict, style=COLOURS.get(comparison.verdict, "")),
            trials,
            Text("; ".join(comparison.notes)),
        )
    return table


def shown(comparison: Comparison) -> tuple[Ratio, str, str]:
    """(ratio, what it is a ratio of, verdict in words).

    Precisions are shown as fp32 seconds over the other's, a speedup; everything else as seconds over the
    baseline's.
    """
    subject, other = comparison.subject_name, comparison.other_name
    word = comparison.verdict
    if word in {"faster", "slower"}:
        word = f"{subject} is {word}"
    if comparison.axis == "precision":
        return comparison.ratio.inverse, f"{other} / {subject} on {comparison.subject.label}", word
    return comparison.ratio, f"{subject} / {other}, {comparison.subject.precision}", word
