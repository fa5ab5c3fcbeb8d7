"""Which trials come next: the planned rounds, and with --until more of them until there is a reason to stop."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count, islice

from gpubench.rows.row import Row
from gpubench.runner.batch.batches import Batches
from gpubench.runner.forecast import forecast
from gpubench.runner.progress import TrialProgress
from gpubench.runner.resume import Earlier
from gpubench.runner.session import Session
from gpubench.runner.stopping import standing, why_stop, widths_of
from gpubench.suite.trial import FINISHED, Case, Trial


def endless_rounds(cases: Sequence[Case], seed: int) -> Iterator[list[Trial]]:
    """Yield round after round without end: every case once, in a new random order, so that drift hits all alike.

    Trials of one round share a seed: they see the same data order and differ only in what is compared.
    """
    dice = random.Random(seed)
    for index in count():
        this_round = [Trial(case, index, seed + index) for case in cases if not case.refusal]
        dice.shuffle(this_round)
        yield this_round


def schedule(cases: Sequence[Case], number: int, seed: int) -> list[Trial]:
    """Return the trials of the first `number` rounds. Refused cases come once, first."""
    trials = [Trial(case, 0, seed) for case in cases if case.refusal]
    for this_round in islice(endless_rounds(cases, seed), number):
        trials += this_round
    return trials


class Rounds:
    """The trials of a run that an earlier one has not finished, one after the other, each with its batch.

    Args:
        session: what was asked for.
        earlier: the rows of an earlier run in the same file, or None.
        batches: gives each case its batch.
        progress: told how many trials there will be.
        check: called before each trial; raises KeyboardInterrupt where the run was stopped.
    """

    def __init__(
        self,
        session: Session,
        earlier: Earlier | None,
        batches: Batches,
        progress: TrialProgress,
        check: Callable[[], None],
    ) -> None:
        self._cases, self._options, self._path, self._earlier = session.cases, session.options, session.path, earlier
        self._batches, self._progress, self._check = batches, progress, check
        begun = earlier.rounds if self._options.until and earlier else 0
        self._number = max(self._options.rounds, begun)  # with --until a round begun is ended, for cases to be even
        self._planned = schedule(self._cases, self._number, self._options.seed)
        self._left = [trial for trial in self._planned if not (earlier and earlier.has(trial))]
        self._times: dict[str, list[float]] = {}
        """Seconds of the trials that went well, by the label of their case."""
        self._waiting: list[Trial] = []
        """The trial that runs and those that follow, as far as they are planned."""
        self.statuses: list[str] = []
        """How the trials of this run ended."""
        self.to_come: list[Case] = []
        """Cases of the trials that are planned, or were when the running round began."""

    def outlook(self) -> list[str]:
        """Lines said before anything runs: what is there already, what is to do, and how long that takes."""
        done, left = self.done_before, self.left
        if not left and not self._options.until:
            return [f"{self._path}: every trial is already there"]
        lines = [f"{done} of {done + len(left)} trials are in {self._path} already; {len(left)} to do"] if done else []
        waiting = {id(trial.case): trial.case for trial in left}.values()
        searches = [case for case in waiting if self._batches.to_search(case)]
        return lines + forecast(left, len(searches), self._options, datetime.now())

    @property
    def done_before(self) -> int:
        """How many of the planned trials an earlier run has finished."""
        return len(self._planned) - len(self._left)

    @property
    def left(self) -> list[Trial]:
        """The planned trials that are to do, as far as they are known to be."""
        return self._known(self._left)

    @property
    def statuses_before(self) -> list[str]:
        """How the finished trials of an earlier run ended."""
        return [status for case in self._cases if self._earlier for status in self._earlier.statuses_of(case)]

    def __iter__(self) -> Iterator[Trial]:
        """Each trial when it is its turn; `finished` has to be told of it before the next one."""
        self._read_times()
        for this_round in self._rounds():
            self._waiting = self._known(this_round)
            self._progress.expect(len(self._waiting))
            self.to_come = [trial.case for trial in self._waiting if not trial.case.refusal]
            while self._waiting:
                self._check()
                # Both at once: a signal in between would lose a trial.
                trial, self._waiting = self._batches.next_of(self._waiting)
                if trial:
                    yield trial
                else:
                    self._waiting = self._waiting[1:]
                    self._progress.expect(-1)

    def finished(self, trial: Trial, row: Row) -> None:
        """The trial whose turn it was has its row."""
        self._progress.finish(trial, row)
        self.statuses.append(row.status)
        own = self._times.setdefault(trial.case.label, [])
        if row.status == "ok" and row.seconds is not None:
            own.append(row.seconds)
        self._waiting = self._waiting[1:]
        # From here on, and not before, one can tell how long the rest takes.
        if self._waiting and len(self.statuses) == (1 if self._options.mode == "full" else len(self._cases)):
            self._progress.say(self._progress.pace(datetime.now()))

    def unfinished(self) -> list[Trial]:
        """The trials that are still to do, with the batches that are known: a later run need not look for them."""
        return self._known(self._waiting)

    def tally(self, unfinished: Sequence[Trial]) -> str:
        """How much of the run is done when so many trials are not."""
        finished = self.done_before + sum(status in FINISHED for status in self.statuses)
        return f"{finished} of {self.done_before + len(self.statuses) + len(unfinished)} trials"

    def _known(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials with the batches that are known, without twins that would be the same case again."""
        return [replace(trial, case=case) for trial in trials if (case := self._batches.so_far(trial.case))]

    def _read_times(self) -> None:
        for case in self._cases:
            known = self._batches.so_far(case)
            if self._earlier and known and (measured := self._earlier.seconds_of(known)):
                self._times[known.label] = measured

    def _rounds(self) -> Iterator[list[Trial]]:
        """The planned rounds as one; then, with --until, one more at a time until there is a reason to stop."""
        options, number = self._options, self._number
        began = time.monotonic()
        yield self._left
        if not options.until:
            return
        for this_round in islice(endless_rounds(self._cases, options.seed), number, None):
            # The others fail every time, or are the same case again.
            extra = [trial for trial in self._known(this_round) if self._times.get(trial.case.label)]
            spent = time.monotonic() - began
            needed = spent + spent / max(1, len(self.statuses)) * len(extra)
            if why := why_stop(self._times, options.until, options.budget_seconds, needed):
                self._progress.say(f"stopped after {number} rounds: {why}")
                return
            number += 1
            self._progress.say(f"round {number}: {standing(widths_of(self._times), options.until)}")
            yield extra
