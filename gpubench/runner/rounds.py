"""Orders the trials of a run: the planned rounds, and with --until more rounds until the intervals are narrow."""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from statistics import median

from gpubench.interval import drifts, median_interval
from gpubench.rows.row import Row
from gpubench.runner.batches import CaseBatches
from gpubench.runner.early import decided_early, models_that_may_stop
from gpubench.runner.forecast import Forecast
from gpubench.runner.progress import FirstRatios, TrialProgress
from gpubench.runner.resume import EarlierRun
from gpubench.runner.session import Session
from gpubench.suite.trial import FINISHED, Case, Trial
from gpubench.welch import LOOKS


def round_of(cases: Sequence[Case], index: int, seed: int) -> list[Trial]:
    """Return the trials of a round: every case that can run, in a new random order, so that drift affects all alike.

    The first round is not shuffled: it trains one model after the other, so that the first ratio comes soon. Trials of
    one round share a seed: they see the data in the same order.
    """
    trials = [Trial(case, index, seed + index) for case in cases if not case.refusal]
    if index:
        random.Random(f"{seed} {index}").shuffle(trials)
    else:
        models = list(dict.fromkeys((case.suite, case.model) for case in cases))
        trials.sort(key=lambda trial: models.index((trial.case.suite, trial.case.model)))
    return trials


def schedule(cases: Sequence[Case], number: int, seed: int) -> list[Trial]:
    """Return the trials of the first `number` rounds. Refused cases come first, and only once."""
    refused = [Trial(case, 0, seed) for case in cases if case.refusal]
    return refused + [trial for index in range(number) for trial in round_of(cases, index, seed)]


class Rounds:
    """The trials of a run that an earlier run has not finished, in order, each with its batch.

    `check` is called before each trial; it raises KeyboardInterrupt if the run was stopped.
    """

    def __init__(
        self,
        session: Session,
        earlier: EarlierRun,
        batches: CaseBatches,
        progress: TrialProgress,
        check: Callable[[], None],
    ) -> None:
        self._cases, self._options, self._path, self._earlier = session.cases, session.options, session.path, earlier
        self._batches, self._progress, self._check = batches, progress, check
        # With --until a started round is finished: all cases get equally many trials.
        self._number = max(self._options.rounds, earlier.rounds if self._options.until else 0)
        planned = schedule(self._cases, self._number, self._options.seed)
        self._left = [trial for trial in planned if not earlier.has(trial)]
        self._done_before = _count_runnable(planned) - _count_runnable(self._left)
        self._seconds = {case.label: earlier.seconds_of(case) for case in self._cases_so_far()}
        """Seconds of the ok trials, by the label of their case."""
        unsupported = {case.label for case in self._cases if "unsupported" in earlier.statuses_of(case)}
        self._again = [trial for trial in self._left if trial.case.label in unsupported]
        """Trials of cases that a search or trial found unsupported before; they come last, and may run now."""
        self._left = self._undecided([trial for trial in self._left if trial.case.label not in unsupported])
        self._waiting: list[Trial] = []
        """The running trial and the planned ones after it."""
        self._forecast = Forecast(session.options, session.slowdown)
        self._first_ratios = FirstRatios()
        self.statuses: list[str] = []
        """Statuses of the finished trials of this run."""
        self._counted: list[str] = []
        """`statuses` without those of cases that were refused before the first trial."""
        self.planned_cases: list[Case] = []
        """Cases that can run: at first those of all planned rounds, then those of each round that --until adds."""

    def outlook(self) -> list[str]:
        """Return the lines before a run: which trials are done, how many are left, and how long they take."""
        done, left = self._done_before, self._with_batches(self._left)
        if not left and not self._options.until:
            return [f"{self._path}: all trials are done{'; trying unsupported cases again' * bool(self._again)}"]
        to_do = _count_runnable(left)
        lines = [f"{done} of {done + to_do} trials are already in {self._path}; {to_do} to do"] if done else []
        return lines + self._forecast.lines(left, self._searches(left), datetime.now())

    def __iter__(self) -> Iterator[Trial]:
        """Yield each trial in turn; call `finished` with it before the next one."""
        for trials in self._rounds():
            self._waiting = self._with_batches(trials)
            self._progress.expect(_count_runnable(self._waiting))
            self._show_end()
            self.planned_cases = [trial.case for trial in self._waiting if not trial.case.refusal]
            while self._waiting:
                self._check()
                if trial := self._batches.ready(self._waiting[0]):
                    yield trial
                else:
                    self._progress.expect(-_count_runnable(self._waiting[:1]))
                    self._pass_first()

    def finished(self, trial: Trial, row: Row) -> None:
        """Count the trial as done; print its line, first ratios, and a new forecast if the last one was wrong."""
        counted = not self._waiting[0].case.refusal
        seconds = self._progress.finish(trial, row, counted=counted)
        self.statuses.append(row.status)
        self._counted += [row.status] * counted
        if row.status == "ok" and row.seconds is not None:
            self._seconds.setdefault(trial.case.label, []).append(row.seconds)
        self._pass_first()
        is_first = self._waiting and not self._done_before
        for ratio in self._first_ratios.after(trial.case, row) if is_first else ():
            self._progress.say(ratio)
        if not trial.case.refusal:
            self._forecast.add(trial.case, seconds)
            waiting = [waiting_trial.case for waiting_trial in self._waiting if not waiting_trial.case.refusal]
            if news := self._forecast.news(waiting, self._searches(self._waiting), datetime.now()):
                self._progress.say(news)
            self._show_end()

    def _show_end(self) -> None:
        """Set the end of the run in the bar; with --until it is unknown."""
        self._progress.end = None if self._options.until else self._forecast.end

    def unfinished(self) -> list[Trial]:
        """Return the unfinished trials of cases that can run, with the batches that were found, for a later run.

        Leaves out trials that a resumed run may drop, at the next of LOOKS or as unsupported: their rows would stay.
        """
        waiting = [trial for trial in self._waiting if trial not in self._again]
        trials = [trial for trial in self._with_batches(waiting) if not trial.case.refusal]
        untried = [trial.case for trial in trials if trial.index == 0]
        trials = [trial for trial in trials if trial.index == 0 or trial.case not in untried]
        look = next((look for look in LOOKS if trials and look > trials[0].index), None)
        if not self._options.stops_early or look is None:
            return trials
        may_stop = {case.label for alike in models_that_may_stop(self._cases_so_far()) for case in alike}
        return [trial for trial in trials if trial.index < look or trial.case.label not in may_stop]

    def tally(self) -> str:
        """Return how many trials of the run are finished, in words."""
        finished = self._done_before + sum(status in FINISHED for status in self._counted)
        left = _count_runnable(self._with_batches(self._waiting))
        return f"{finished} of {self._done_before + len(self._counted) + left} trials"

    def _cases_so_far(self) -> list[Case]:
        """Return the cases with the batches found so far, without `max-fp32` cases that equal another one."""
        return list(filter(None, map(self._batches.so_far, self._cases)))

    def _searches(self, trials: Sequence[Trial]) -> int:
        """Return the number of batch searches before these trials."""
        return len({trial.case.label for trial in trials if self._batches.to_search(trial.case)})

    def _pass_first(self) -> None:
        """Remove the first waiting trial and, after a round, the trials that are not needed any more."""
        first, rest = self._waiting[0], self._waiting[1:]
        ends_round = bool(rest) and rest[0].index > first.index
        self._waiting = self._undecided(rest) if ends_round else rest  # one assignment: a signal may come here
        if left_out := [trial for trial in rest if trial not in self._waiting]:
            self._progress.expect(-len(left_out))
            models = ", ".join(dict.fromkeys(trial.case.model for trial in left_out))
            self._progress.say(f"decided after {rest[0].index} rounds: {models}; {len(left_out)} trials fewer")

    def _undecided(self, trials: list[Trial]) -> list[Trial]:
        """Return the trials; if a number of rounds in LOOKS is done, without the cases whose ratios are decided."""
        if not self._options.stops_early or not trials or trials[0].index not in LOOKS:
            return trials
        decided = decided_early(self._cases_so_far(), self._seconds)
        return [trial for trial in trials if (self._batches.so_far(trial.case) or trial.case).label not in decided]

    def _with_batches(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials with the batches found so far, without `max-fp32` cases that equal another one."""
        return [replace(trial, case=case) for trial in trials if (case := self._batches.so_far(trial.case))]

    def _rounds(self) -> Iterator[list[Trial]]:
        """Yield the planned rounds as one list; then, with --until, further rounds until there is a reason to stop."""
        options, started = self._options, time.monotonic()
        yield [*self._left, *self._again]
        for index in count(self._number) if options.until else ():
            # Cases without a time have failed in every round, or equal another case.
            trials = self._with_batches(round_of(self._cases, index, options.seed))
            trials = [trial for trial in trials if self._seconds.get(trial.case.label)]
            spent = time.monotonic() - started
            needed = spent + spent / max(1, len(self.statuses)) * len(trials)
            target, widths = options.until or 0.0, widths_of(self._seconds)
            if why := why_stop(widths, target, options.budget_seconds, needed):
                self._progress.say(f"stopped after {index} rounds: {why}")
                return
            self._progress.say(f"round {index + 1}: {count_narrow(widths, target)}")
            yield trials


def _count_runnable(trials: Sequence[Trial]) -> int:
    return sum(not trial.case.refusal for trial in trials)


def half_width(seconds: Sequence[float]) -> float:
    """Return half of the median's interval, as a share of the median; infinite if trials are too few or drift.

    The interval is corrected for optional stopping.
    """
    interval = None if drifts(seconds) else median_interval(seconds, until=True)
    return (interval[1] - interval[0]) / 2 / median(seconds) if interval else math.inf


def why_stop(
    widths: Mapping[str, float], target: float, budget_seconds: float | None = None, needed_seconds: float = 0.0
) -> str | None:
    """Return why to stop, with the number of narrow intervals, or None if one more round is needed.

    `target` is the half width of `--until`, `needed_seconds` the run's time with one more round.
    """
    if not widths:
        return "no case has a time"
    if max(widths.values()) <= target:
        return count_narrow(widths, target)
    if budget_seconds is not None and needed_seconds > budget_seconds:
        return f"another round would exceed the budget of {budget_seconds:.0f} s; {count_narrow(widths, target)}"
    return None


def widths_of(seconds_by_case: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the half widths of the cases that have a time."""
    return {case: half_width(seconds) for case, seconds in seconds_by_case.items() if seconds}


def count_narrow(widths: Mapping[str, float], target: float) -> str:
    """Return in words how many intervals are narrow enough, and which are not."""
    wide = sorted(((width, case) for case, width in widths.items() if width > target), reverse=True)
    text = f"{len(widths) - len(wide)} of {len(widths)} intervals are within {100 * target:.3g}%"
    if not wide:
        return text
    shares = [f"{100 * width:.2g}%" if width < math.inf else "too few trials, or they drift" for width, _ in wide]
    return f"{text}, not yet " + ", ".join(f"{case} ({share})" for share, (_, case) in zip(shares, wide, strict=True))
