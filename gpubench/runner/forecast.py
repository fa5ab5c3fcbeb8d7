"""Forecasts how long a run takes, before its first trial and after each one. rounds.py calls it."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from statistics import fmean

from gpubench.data import datasets
from gpubench.printed import duration
from gpubench.runner.early import models_that_may_stop
from gpubench.runner.options import Options
from gpubench.suite.trial import Case, Trial
from gpubench.welch import LOOKS

TRIAL_SECONDS = {"sampled": (30.0, 45.0), "quick": (15.0, 15.0)}
"""Typical seconds of a trial on a CPU and on an accelerator, with start and warm-up (benchmarks/card_time.py)."""
START_SECONDS = 8.0
"""Typical seconds before the first trial: listing torch's devices and importing the suites."""
SEARCH_SECONDS = {"sampled": 100.0, "quick": 40.0}
"""Typical seconds of a batch search, with the extra time of cuDNN's search for algorithms at a large batch."""
WARMING_SECONDS = 60.0
"""Typical seconds for warming an accelerator and measuring its peaks."""
TOLERANCE = 1.3
"""Factor by which a forecast may be wrong before a new one is printed."""
LEAST_SECONDS = 10.0
"""No new forecast is printed if less time is left."""


class Forecast:
    """Forecasts the time of a run's trials: typical times at first, then the times of similar trials of this run.

    Args:
        options: the options of the run.
        slowdown: factor by which other programs slow down trials on the CPU.
    """

    def __init__(self, options: Options, slowdown: float = 1.0) -> None:
        self._options, self._slowdown = options, slowdown
        self._search_seconds = SEARCH_SECONDS["quick" if options.mode == "quick" else "sampled"]
        self._seconds: dict[str, list[float]] = {}
        """Seconds of finished trials: of a case, of a model, and of all trials (empty key)."""
        self.end: float | None = None
        """Printed end of the planned trials, on time.monotonic's clock; None at first in full runs and with --until."""

    def lines(self, left: Sequence[Trial], searches: int, now: datetime) -> list[str]:
        """Return the lines before a run: number of trials `left`, their data and time, and cases that cannot run.

        No step is timed yet, so the time is a typical one. Full runs get no time: it depends too much on the suite.
        """
        options, numbered = self._options, [(trial.case, trial.index) for trial in left if not trial.case.refusal]
        running = [case for case, _ in numbered]
        limit = options.limit_seconds(options.mode)
        stop = f" Trials stop at {duration(round(limit))} (--time-limit)." if limit else ""
        what = "whole run" if options.mode == "full" else "trial"
        count = f"{len(running)} {what}{'s' * (len(running) != 1)}"
        may_stop = {case.label for alike in models_that_may_stop(running) for case in alike}
        sure = [case for case, index in numbered if case.label not in may_stop or index < LOOKS[0]]
        stops_early = options.stops_early and len(sure) < len(running)
        count += " or more" * bool(options.until) + " at most" * stops_early
        count += f" and {searches} batch search{'es' * (searches > 1)}" if searches else ""
        data = f"data: {data_of(running)}" if data_of(running) else ""
        end, note = "", "The time of a whole run is known after the first one."
        if options.mode != "full":
            most = self._typical_seconds(running, searches)
            least = self._typical_seconds(sure, searches) if stops_early and sure else most
            most = max(most, options.budget_seconds or 0.0)
            last = now + timedelta(seconds=most)
            # A step of ResNet-152 on a CPU takes 100 times as long as one of ResNet-18 on small images, and fp16 took
            # 0.7 to 20 times as long as fp32.
            on_cpu = [case for case in running if case.device == "cpu"]
            slow = any(options.mode == "sampled" or case.precision.startswith("fp16") for case in on_cpu)
            hours = "Large models, and all models in fp16, may take hours on a CPU. A forecast follows the first trial."
            note = hours if slow else "Slow models may take longer."
            count += f", about {duration(round(least))}{f' to {duration(round(most))}' * (most > least)}"
            end = f"ends about {moment(last, now)}"
            self.end = None if options.until else time.monotonic() + most
        lines = ["; ".join(filter(None, [count, data, end])), note + stop] if running else []
        for reason, number in Counter(trial.case.refusal for trial in left if trial.case.refusal).items():
            lines.append(f"{number} case{'s' * (number > 1)} cannot run: {reason}")
        return lines

    def add(self, case: Case, seconds: float) -> None:
        """Note how many seconds a trial of the case took."""
        for key in _keys(case):
            self._seconds.setdefault(key, []).append(seconds)

    def news(self, waiting: Sequence[Case], searches: int, now: datetime) -> str:
        """Return a forecast of `waiting` trials and searches in words; empty if the printed one is right within 30%.

        Also empty if less than LEAST_SECONDS are left. Call `add` first.
        """
        seconds = [next(self._seconds[key] for key in _keys(case) if key in self._seconds) for case in waiting]
        left = searches * self._search_seconds + sum(map(fmean, seconds))
        printed = None if self.end is None else self.end - time.monotonic()
        if left < LEAST_SECONDS or (printed is not None and printed / TOLERANCE <= left <= printed * TOLERANCE):
            return ""
        self.end = time.monotonic() + left
        if self._options.until:  # more rounds may follow
            return f"at least {duration(round(left))} left"
        return f"about {duration(round(left))} left; ends about {moment(now + timedelta(seconds=left), now)}"

    def _typical_seconds(self, cases: Sequence[Case], searches: int) -> float:
        """Return the typical seconds of these trials, with start-up, searches and warming; none is over the limit."""
        on_cpu, on_card = TRIAL_SECONDS[self._options.mode]
        cards = sum(case.device != "cpu" for case in cases)
        seconds = cards * on_card + (len(cases) - cards) * on_cpu * self._slowdown
        warming = WARMING_SECONDS if cards and self._options.mode != "quick" else 0.0  # a quick run warms no card
        longest = len(cases) * (self._options.limit_seconds(self._options.mode) or math.inf)
        return min(START_SECONDS + seconds + warming, longest) + searches * self._search_seconds


def _keys(case: Case) -> tuple[str, str, str]:
    """Return the keys of the case's times: the case, its model, all trials."""
    return case.label, f"{case.suite} {case.model}", ""


def data_of(cases: Iterable[Case]) -> str:
    """Return the names of the cases' data, each marked as real, generated or your own; empty if they read none."""
    official = {*datasets.DATASETS, *datasets.TREES}
    parts = []
    for name in dict.fromkeys(case.data for case in cases if case.data):
        kind = "generated" if name == "synthetic" else "real" if official.issuperset(name.split("+")) else "your own"
        parts.append(f"{name} ({kind})")
    return ", ".join(parts)


def moment(when: datetime, now: datetime) -> str:
    """Return a time of day, with the date if it is not today."""
    return f"{when:%H:%M}" + f" on {when.day} {when:%B}" * (when.date() != now.date())
