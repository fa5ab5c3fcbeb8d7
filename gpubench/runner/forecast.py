"""The lines before a run: how many trials, how long they take, on which data, and what cannot run."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from statistics import fmean

from gpubench.data import datasets
from gpubench.printed import duration
from gpubench.runner.options import Options
from gpubench.suite.trial import Case, Trial

TRIAL_SECONDS = {"sampled": (30.0, 45.0), "quick": (15.0, 30.0)}
"""Typical seconds of a trial on a CPU and on an accelerator, with start and warm-up (benchmarks/card_time.py)."""
START_SECONDS = 8.0
"""For starting up: asking torch for its devices, and importing the suites."""
MISTOLD = 1.3
"""Factor by which a forecast may be wrong before a new one is printed."""
SEARCH_SECONDS = {"sampled": 100.0, "quick": 25.0}
"""Typical seconds of a batch search."""
LEAST_SECONDS = 10.0
"""A rest that is shorter is not announced."""
WARMING_SECONDS = 60.0
"""For warming an accelerator and measuring its peaks."""


def forecast(left: Sequence[Trial], searches: int, options: Options, now: datetime) -> list[str]:
    """Return the lines on the trials that are left and on the `searches` for a batch before them.

    How long a step takes is unknown before the first trial. So the lines have the typical time of a sampled trial, and
    no time for a full one.
    """
    running = [trial.case for trial in left if not trial.case.refusal]
    limit = options.limit_seconds(options.mode)
    stop = f" Trials stop at {duration(round(limit))} (--time-limit)." if limit else ""
    what = "whole run" if options.mode == "full" else "trial"
    parts = [f"{len(running)} {what}{'s' * (len(running) != 1)}{' or more' * bool(options.until)}"]
    parts[0] += f" and {searches} batch search{'es' * (searches > 1)}" if searches else ""
    lines = []
    if options.mode == "full":
        note = "The time of a whole run is known after the first one."
    else:
        least = typical_seconds(running, searches, options)
        most = max(least, (options.budget_seconds or 0.0) if options.until else 0.0)
        last = now + timedelta(seconds=most)
        # A step of ResNet-152 on a CPU takes 100 times as long as one of ResNet-18 on small images.
        slow = options.mode == "sampled" and any(case.device == "cpu" for case in running)
        note = "Slow models may take longer."
        if slow:
            note = "Large models take hours on a CPU. A forecast follows the first trial."
        parts[0] += f", {'at least' if slow else 'about'} {duration(round(least))}"
        parts[0] += f" to {duration(round(most))}" * (most > least)
        parts.append(f"ends {'after' if slow else 'about'} {moment(last, now)}")
    parts[1:1] = [f"data: {data}" for data in [data_of(running)] if data]
    if running:
        lines = ["; ".join(parts), note + stop]
    for reason, count in Counter(trial.case.refusal for trial in left if trial.case.refusal).items():
        lines.append(f"{count} case{'s' * (count > 1)} cannot run: {reason}")
    return lines


def search_seconds(options: Options) -> float:
    """Return the typical seconds of a batch search."""
    return SEARCH_SECONDS["quick" if options.mode == "quick" else "sampled"]


def typical_seconds(cases: Sequence[Case], searches: int, options: Options) -> float:
    """Return the typical seconds of these trials, with searches and warming."""
    on_card = [case.device != "cpu" for case in cases]
    seconds = sum(TRIAL_SECONDS[options.mode][card] for card in on_card)
    warming = WARMING_SECONDS if any(on_card) and options.mode != "quick" else 0.0  # a quick run warms no card
    return START_SECONDS + seconds + searches * search_seconds(options) + warming


class TimeLeft:
    """The time that the rest of a run takes, from the trials so far.

    Args:
        told_seconds: what was printed before the run; None if nothing was.
    """

    def __init__(self, told_seconds: float | None) -> None:
        self._told_end = None if told_seconds is None else time.monotonic() + told_seconds
        self._seconds: dict[str, list[float]] = {}

    def add(self, case: Case, seconds: float) -> None:
        """Note how long a trial of the case took."""
        for key in (case.label, f"{case.suite} {case.model}", ""):
            self._seconds.setdefault(key, []).append(seconds)

    def news(self, waiting: Sequence[Case], now: datetime, search_seconds: float = 0.0) -> str:
        """Return how long the `waiting` trials and searches take; empty if that was printed already, within 30%."""
        left = search_seconds + sum(fmean(self._of(case)) for case in waiting)
        moment_now = time.monotonic()
        told = None if self._told_end is None else self._told_end - moment_now
        if left < LEAST_SECONDS or (told is not None and told / MISTOLD <= left <= told * MISTOLD):
            return ""
        self._told_end = moment_now + left
        return f"about {duration(round(left))} left; ends about {moment(now + timedelta(seconds=left), now)}"

    def _of(self, case: Case) -> list[float]:
        """Return the seconds of the trials that are most like the case."""
        keys = (case.label, f"{case.suite} {case.model}", "")
        return next(self._seconds[key] for key in keys if key in self._seconds)


def data_of(cases: Iterable[Case]) -> str:
    """Return the names of the cases' data, each as real, synthetic or your own; empty if they read none."""
    official = {*datasets.DATASETS, *datasets.TREES}
    parts = []
    for name in dict.fromkeys(case.data for case in cases if case.data):
        kind = "generated" if name == "synthetic" else "real" if official.issuperset(name.split("+")) else "your own"
        parts.append(f"{name} ({kind})")
    return ", ".join(parts)


def moment(when: datetime, now: datetime) -> str:
    """Return a time of day, with the date if it is not today."""
    return f"{when:%H:%M}" + f" on {when.day} {when:%B}" * (when.date() != now.date())
