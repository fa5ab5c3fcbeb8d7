"""Comparisons as tables in a terminal: adapts to its width, plain in a pipe, honours NO_COLOR."""

import sys
from collections.abc import Mapping, Sequence

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubench.analysis.cells import Cell, relative_to_best
from gpubench.analysis.compare import Comparison, Group, Mean, Result
from gpubench.analysis.matching import axis_value
from gpubench.analysis.metrics import SECONDS, Metric
from gpubench.analysis.specimens import unit_of, units_of
from gpubench.analysis.stats import Ratio
from gpubench.comparing.hours import lines as hours_lines
from gpubench.comparing.ladder import lines as ladder_lines
from gpubench.comparing.ladder import side_by_side
from gpubench.comparing.tricks import lines as trick_lines
from gpubench.comparing.why import lines as why_lines
from gpubench.comparing.why import not_faster
from gpubench.show.numbers import rate_text, seconds_text
from gpubench.trial import TRAINED

PIPE_WIDTH = 1000
"""Wide enough that a pipe never wraps; a table takes only what it needs."""
COLOURS = {"faster": "green", "slower": "red", "same": "cyan"}
WORDS = ("model", "card", "precision", "what", "verdict", "notes", "trick", "bound by", "peak", "evidence")
"""Columns that may be folded in a narrow terminal, down to FOLDED; numbers never are."""
FOLDED = 12
GAP = 3


def console_of_output() -> Console:
    """Writes to stdout: as wide as the terminal, and in a pipe as wide as it takes."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def print_result(result: Result, console: Console | None = None, *, why: bool = False, sees_more: bool = False) -> None:
    """Everything, to stdout; what could not be read, to stderr.

    Args:
        result: the answer.
        console: where to print.
        why: also print what bounds each case.
        sees_more: whether something is printed after this that compares, too.
    """
    console = console or console_of_output()
    print_problems(result)
    for group in result.groups:
        stepwise = group.is_ladder and result.metric is SECONDS
        if stepwise and not why:
            continue
        console.print(Text(group.title, style="bold"), soft_wrap=True)
        if not stepwise:
            _print(console, cells_table(group, result.metric))
        if group.comparisons:
            _print(console, comparisons_table(group, result.metric))
        if result.metric is SECONDS and (tricks := trick_lines(group.comparisons, group.holes)):
            _print(console, _table(tricks))
        for sentence in not_faster(group) if result.metric is SECONDS else []:
            console.print(Text(f"  {sentence}"), soft_wrap=True)
        for sentence in hours_lines(group) if result.metric is SECONDS else []:
            console.print(Text(f"  {sentence}"), soft_wrap=True)
        if why and group.cells:
            _print(console, _table(why_lines(group)))
        for mean in group.means:
            console.print(Text(f"  {mean_text(mean, result.metric)}"), soft_wrap=True)
        console.print()
    for ladder in result.ladders:
        title = f"{ladder.recipe}, the ladder: {ladder.name}, {ladder.kind}"
        console.print(Text(title, style="bold"), soft_wrap=True)
        _print(console, _table(ladder_lines(ladder)))
    for suite in dict.fromkeys(ladder.suite for ladder in result.ladders):
        if beside := side_by_side([ladder for ladder in result.ladders if ladder.suite == suite]):
            console.print(Text(f"{suite}, its ladders side by side: seconds", style="bold"))
            _print(console, _table(beside))
    if result.left_out:
        console.print(Text("Left out", style="bold"))
        for line in result.left_out:
            console.print(Text(f"  {line}"), soft_wrap=True)
    if not (result.comparisons or result.ladders or sees_more):
        console.print(Text(f"Nothing here can be compared: {_why_nothing(result)}."), soft_wrap=True)


def _why_nothing(result: Result) -> str:
    """The values of a compared column that have rows but no result, where that is the cause."""
    lost: dict[str, str] = {}
    for group in result.groups:
        for axis in result.axes:
            there = {axis_value(cell, axis) for cell in group.cells}
            missing = [hole for hole in group.holes if axis_value(hole, axis) not in there]
            if len(there | {axis_value(hole, axis) for hole in missing}) > 1:
                lost |= {axis_value(hole, axis): str(hole.status).replace("_", " ") for hole in missing}
    if lost:
        return "; ".join(f"{value} has no result ({status})" for value, status in lost.items())
    return f"no two rows differ in {' or '.join(result.axes)} alone"


def mean_text(mean: Mean, metric: Metric = SECONDS) -> str:
    """A geometric mean in words, in the direction of `shown`."""
    speedup = mean.inverse  # of accuracies there are none
    value = "withheld (under half)" if speedup.value is None else f"{speedup.value:.2f}"
    value += f" ({speedup.interval[0]:.2f} to {speedup.interval[1]:.2f})" if speedup.interval else ""
    what = f"{mean.subject_name} over {mean.other_name}, {mean.precision}{policy_text(mean)}"
    return f"geometric mean {metric.gain}, {what}: {value}, {mean.common} of {mean.all_cases} cases"


def print_problems(result: Result) -> None:
    """What could not be read, to stderr."""
    errors = Console(stderr=True, highlight=False)
    for problem in result.problems:
        errors.print(Text(problem, style="yellow"), soft_wrap=True)


def print_gate(lines: Sequence[str]) -> None:
    """What --fail-on-slower found, to stderr."""
    console = Console(stderr=True, highlight=False)
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _print(console: Console, table: Table) -> None:
    # In a terminal narrower than the numbers its own wrapping does less harm than rich's cutting.
    width = console.width
    console.width = max(width, sum((column.min_width or 0) + GAP for column in table.columns))
    console.print(table, crop=False)
    console.width = width


def _table(lines: Sequence[Mapping[str, str | Text]], sections: Sequence[str] = ()) -> Table:
    """A table of the columns that have anything in them; a rule where `sections` changes."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    names = [name for name in lines[0] if any(str(line[name]) for line in lines)]
    for name in names:
        words = name in WORDS
        longest = max(len(name), *(len(str(line[name])) for line in lines))
        least = min(longest, FOLDED) if words else longest
        table.add_column(
            name, justify="left" if words else "right", no_wrap=not words, overflow="fold", min_width=least
        )
    for number, line in enumerate(lines):
        if sections and number and sections[number] != sections[number - 1]:
            table.add_section()
        # Text, not markup: what a CSV holds is data.
        cells = (line[name] for name in names)
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
    return table


def cells_table(group: Group, metric: Metric = SECONDS) -> Table:
    """Every case's median seconds, relative to the fastest of its task; a case without any says why."""
    relative, cells = relative_texts(group.cells, metric), group.cases
    lines: list[dict[str, str | Text]] = []
    for number, cell in enumerate(cells):
        optional = {
            "samples/s": rate_text(cell.samples_per_second),
            "trials": str(cell.trials) if cell.seconds else "",
            "accuracy": "" if pd.isna(cell.accuracy) else f"{cell.accuracy:.2%}",
            "top-5": "" if pd.isna(cell.top5) else f"{cell.top5:.2%}",
            "perplexity": "" if pd.isna(cell.perplexity) else f"{cell.perplexity:.2f}",
        }
        optional.pop(metric.title, None)  # there already
        lines.append(
            {
                "model": cell.model if not number or cells[number - 1].model != cell.model else "",
                "card": cell.label,
                "precision": cell.precision,
                "batch": batch_text(cell),
                metric.title: _figure_of(cell, metric) if cell.seconds else _without_figure(cell),
                "95%": interval_text(cell, metric),
                "relative": relative.get(id(cell), ""),
                **optional,
                "notes": notes_of(cell),
            }
        )
    return _table(lines, [cell.model for cell in cells])


def _without_figure(cell: Cell) -> Text:
    """Its status; nothing where all went well and the row only lacks this figure."""
    return Text("" if cell.status in TRAINED else cell.status, style="yellow")


def relative_texts(cells: Sequence[Cell], metric: Metric = SECONDS) -> dict[int, str]:
    """By the cell's id, its multiple of its task's best as the reader sees it; none of a task with a single cell."""
    found = relative_to_best(cells)
    return {key: f"{1 / times if metric.inverse else times:.2f}" for key, times in found.items()}


def batch_text(cell: Cell) -> str:
    """The batch, and the policy that chose it."""
    size = "" if pd.isna(cell.batch_size) else f"{cell.batch_size:.0f} "
    capped = ", capped" if cell.batch_capped else ""
    return f"{size}({cell.batch_policy}{capped})"


def figure_text(metric: Metric, value: float, interval: tuple[float, float] | None = None) -> str:
    """The figure a reader expects, with the digits that its interval leaves a meaning."""
    half = abs(metric.shown(interval[1]) - metric.shown(interval[0])) / 2 if interval else None
    return seconds_text(metric.shown(value), half or None)


def _figure_of(cell: Cell, metric: Metric) -> str:
    return figure_text(metric, cell.median, cell.interval)


def interval_text(cell: Cell, metric: Metric) -> str:
    """The 95% interval of the median in words; empty below six trials."""
    if not cell.interval:
        return ""
    low, high = sorted(map(metric.shown, cell.interval))
    half = (high - low) / 2 or None
    return f"{seconds_text(low, half)} to {seconds_text(high, half)}"


def notes_of(cell: Cell) -> str:
    """What to know about a case, in words."""
    notes = ["projected"] if cell.measured == "projected" else []
    if cell.parts:
        notes.append(f"{len(units_of(cell))} {'sessions' if unit_of(cell) == 'session' else 'specimens'}")
    notes += [*marks_of(cell), *([cell.lost_note] if cell.lost else [])]
    if cell.data == "synthetic":
        notes.append("synthetic data")
    if cell.reason:
        notes.append(cell.reason)
    return "; ".join(notes)


def marks_of(cell: Cell) -> list[str]:
    """What speaks against some of its trials, as `2 of 6 throttled`."""
    return [f"{count} of {cell.trials} {mark}" for mark, count in sorted(cell.marks.items())]


def comparisons_table(group: Group, metric: Metric = SECONDS) -> Table:
    """Every speedup over the baseline (or gain, where it is not of time) with its interval and verdict."""
    lines: list[dict[str, str | Text]] = []
    for comparison in group.comparisons:
        ratio, what, verdict = shown(comparison, metric)
        digits = places(ratio)
        low, high = ratio.low, ratio.high
        lines.append(
            {
                "model": str(comparison.subject.model),
                "what": what,
                metric.gain: Text(f"{ratio.value:.{digits}f}", style="bold"),
                "95%": f"{low:.{digits}f} to {high:.{digits}f}" if low and high else "",
                "verdict": Text(verdict, style=COLOURS.get(comparison.verdict, "")),
                "trials": f"{comparison.subject.trials}, {comparison.other.trials}",
                "notes": "; ".join([*comparison.notes, *marks_of_sides(comparison)]),
            }
        )
    return _table(lines)


def marks_of_sides(comparison: Comparison) -> list[str]:
    """What speaks against trials of either side."""
    sides = ((comparison.subject_name, comparison.subject), (comparison.other_name, comparison.other))
    return [f"{name}: {', '.join(marks)}" for name, cell in sides if (marks := marks_of(cell))]


def places(ratio: Ratio) -> int:
    """Decimals that the interval leaves a meaning: 2, or 3 where it is narrower than 0.02 a side."""
    narrow = ratio.low and ratio.high and (ratio.high - ratio.low) / 2 < 0.02
    return 3 if narrow or ratio.value < 0.1 else 2


def shown(comparison: Comparison, metric: Metric = SECONDS) -> tuple[Ratio, str, str]:
    """(how many times better it is than the baseline, what over what, verdict in words).

    Every comparison that a person reads has this one direction: of seconds it is a speedup.
    """
    word = comparison.verdict
    if word in {"faster", "slower"}:
        word = f"{comparison.subject_name} is {metric.words[word == 'slower']}"
    # Ratios of seconds are below 1 where the subject is better, those of accuracies above it.
    ratio = comparison.ratio if metric.by_loss else comparison.ratio.inverse
    return ratio, _joined(comparison, "over"), word


def ratio_of(comparison: Comparison) -> str:
    """What `comparison.ratio` itself is a ratio of, as the JSON has it: the subject over the baseline."""
    return _joined(comparison, "/")


def _joined(comparison: Comparison, word: str) -> str:
    subject, other, cell = comparison.subject_name, comparison.other_name, comparison.subject
    if comparison.axis == "precision":
        return f"{subject}{policy_text(cell)} {word} {other} on {cell.label}"
    labels = dict.fromkeys((cell.label, comparison.other.label))  # two devices may be two cards
    place = "" if comparison.axis == "card" else f" on {' and '.join(labels)}"
    return f"{subject} {word} {other}, {cell.precision}{policy_text(cell)}{place}"


def policy_text(cell: Cell | Mean) -> str:
    """The batch policy where it sets a case apart from its twin of the same precision."""
    return f" ({cell.batch_policy})" if cell.batch_policy in {"max-fp32", "author-doubled"} else ""
