"""Prints the progress of a run: a bar with rate and time left, and a line per finished trial."""

import time
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from gpubench.console import Screen
from gpubench.printed import MARKED, duration, shortened, shown
from gpubench.rows.row import SHOWN_QUALITIES, Row
from gpubench.runner.process import Message
from gpubench.suite.trial import Case, Trial, counts_by_rate

LOG_SECONDS = 300.0
"""Without a terminal: time between two lines on the progress of a long trial."""
REST_OF_LINE = 52
"""Characters that the bar, the rate and the time left need, besides the name of a trial."""


class TrialProgress:
    """Shows a run on stderr, as a context manager: a bar and lines. Without a terminal there are only lines."""

    def __init__(self) -> None:
        self.total = 0
        self.end: float | None = None
        """When the run ends, on time.monotonic's clock; None if that is unknown."""
        self._console = Screen(stderr=True)
        self._done = 0
        self._started = self._logged = time.monotonic()
        self._label = ""
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[rate]}", markup=False),
            TextColumn("{task.fields[left]}", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
            refresh_per_second=4,
        )
        self._task = self._bar.add_task("", total=1, rate="", left="")
        self._unit = "samples"

    def __enter__(self) -> "TrialProgress":
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    def expect(self, trials: int) -> None:
        """Add `trials`, which may be negative, to the total number of trials."""
        self.total += trials
        self._bar.update(self._task, total=max(1, self.total))

    def start(self, label: str, unit: str) -> None:
        """Show that the next trial begins."""
        self._unit, self._label = unit, label
        self._started = self._logged = time.monotonic()
        name = shortened(f"{self._done + 1}/{self.total} {label}", max(20, self._console.width - REST_OF_LINE))
        self._bar.update(self._task, description=name, completed=self._done, rate="starting", left=self._left)

    def lap(self, event: Message) -> None:
        """Show the progress of the running trial."""
        fraction = float(event.get("fraction") or 0.0)
        rate = event.get("rate")
        rate_text = f"{event.get('phase', '')} {rate:,.1f} {self._unit}/s" if rate else ""
        self._bar.update(self._task, completed=self._done + min(0.99, fraction), rate=shown(rate_text), left=self._left)
        now = time.monotonic()
        if self._bar.disable and fraction and now - self._logged > LOG_SECONDS:
            self._logged = now
            spent = now - self._started
            left = f"about {duration(round(spent / fraction - spent))} left"
            text = f"{self._label}: {fraction:.0%} after {duration(round(spent))}, {left}"
            self.say(f"[{self._done + 1}/{self.total}] {text}{rate_text and f' ({rate_text})'}")

    def finish(self, trial: Trial, row: Row, *, counted: bool) -> float:
        """Print the line of a finished trial; return its seconds since `start`.

        A trial that is not `counted` could not run; the lines before the run have given the reason.
        """
        seconds = time.monotonic() - self._started
        self._done += counted
        self._bar.update(self._task, completed=self._done)
        number, result = (f"[{self._done}/{self.total}] ", describe(row, self._unit)) if counted else ("", row.status)
        self.say(f"{number}{trial.case.label}: {result}")
        return seconds

    @property
    def _left(self) -> str:
        left = round(self.end - time.monotonic()) if self.end is not None else 0
        return f"{duration(left)} left" if left > 0 else ""


class FirstRatios:
    """Compares each precision with fp32 as soon as both have a trial of a model."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str, int], dict[str, Row]] = {}
        """Row of the first trial by precision, for each suite, model, device and number of processes."""

    def after(self, case: Case, row: Row) -> list[str]:
        """Return a line for each ratio that this row makes known."""
        rows = self._rows.setdefault((case.suite, case.model, case.device, case.processes), {})
        is_twin = case.batch_policy == "max-fp32"  # it repeats a precision at another batch
        if row.status != "ok" or not row.samples_per_second or case.precision in rows or is_twin:
            return []
        rows[case.precision] = row
        fp32 = rows.get("fp32")
        others = [other for other in rows.values() if other is not fp32 and row in (other, fp32)]
        return [f"{case.suite} {case.model} on {case.device}: {_first_ratio(other, fp32)}" for other in others if fp32]


def _first_ratio(row: Row, fp32: Row) -> str:
    """Return how many times as fast a precision is as fp32, with the batches if they differ."""
    only_rates = counts_by_rate(row.studies, row.mode) or not (row.seconds and fp32.seconds)
    rate, fp32_rate = ((side.samples_per_second if only_rates else 1 / (side.seconds or 1)) for side in (row, fp32))
    ratio = (rate or 0.0) / (fp32_rate or 1.0)
    batches = "" if row.batch_size == fp32.batch_size else f"batch {row.batch_size} / {fp32.batch_size}; "
    return f"{row.precision} is {ratio:.2f} times as fast as fp32 ({batches}1 run each: rough)"


def describe(row: Row, unit: str) -> str:
    """Return the result of a finished trial in one line: rate, time of the whole run, quality, marks."""
    if row.status != "ok" or row.seconds is None:
        return f"{row.status}: {row.reason}"
    parts = [f"{row.samples_per_second:,.1f} {unit}/s"] if row.samples_per_second else []
    epochs = f"{row.epochs} epoch{'s' * (row.epochs != 1)}" if row.epochs else "the whole run"
    if not (parts and counts_by_rate(row.studies, row.mode)):
        parts.append(f"{epochs} {'took' if row.measured == 'measured' else 'would take'} {duration(row.seconds)}")
    for name, about in SHOWN_QUALITIES.items():
        value = getattr(row, name)
        if value is not None:
            places = ".2%" if about.unit == "share" else ".2f"
            parts.append(f"{about.title} {value:{places}}")
    parts += [MARKED.get(mark, mark) for mark in row.marks.split()]
    if row.reason:
        parts.append(row.reason)
    return "; ".join(parts)
