"""Keeps the batch of each case of a run: when it is looked for, by which trial it is confirmed, who waits for it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from gpubench.hardware.environment import Device
from gpubench.rows.table import BROKEN, number
from gpubench.runner.batch.search import Say, cap_of, capacity_of, confirm, fit_batch, fits, is_rough, try_fp16
from gpubench.runner.batch.sizes import roomier
from gpubench.runner.measure import Answer
from gpubench.runner.options import Options
from gpubench.suite.files import LoadedSuite
from gpubench.suite.trial import Case, Measurement, Trial

LEAPS = 3
"""How often a first look tries a larger batch, where the one that it predicted left much of the memory free."""
SAMPLE_BYTES = {"fp32": 1.0, "tf32": 1.0}
"""What a sample takes of the memory, about, beside fp32's; half in any other precision."""
SAFE = 0.8
"""Where the batch of one precision is reckoned from another's and not tried, it is so much smaller."""

Key = tuple[str, str, str, int, str, str, str]
"""What tells cases of one run apart."""


class Batches:
    """Gives each case its batch when its first trial comes, so that rows come before every case was searched for.

    Args:
        suites, devices, options: those of the run.
        known: gives the row of an earlier run's search, which then is not repeated.
        measure: runs a trial.
        say: told of every probe.
    """

    def __init__(
        self,
        suites: Mapping[str, LoadedSuite],
        devices: Mapping[str, Device],
        options: Options,
        *,
        known: Callable[[Case], "pd.Series | None"],
        measure: Callable[[Trial], Answer],
        say: Say,
    ) -> None:
        self._suites, self._devices, self._options = suites, devices, options
        self._known, self._measure, self._say = known, measure, say
        self._found: dict[Key, Case] = {}
        self._sure: set[Key] = set()
        """Those whose batch no trial has to confirm any more."""

    def _probe(self, trial: Trial) -> Measurement:
        return self._measure(trial).measurement

    def so_far(self, case: Case) -> Case | None:
        """The case as it is known without another probe; None for a twin that would be the same case again."""
        if case.batch_policy != "max-fp32" or case.refusal:
            return self._found.get(_key(case)) or self._read(case) or case
        fp32, own = (self.so_far(twin) or twin for twin in _largest(case))
        if not (fp32.batch_size and own.batch_size):
            return None if fp32.refusal or own.refusal else case
        return replace(case, batch_size=fp32.batch_size) if fp32.batch_size != own.batch_size else None

    def to_search(self, case: Case) -> bool:
        """Whether its batch has to be looked for, and is no other's."""
        return case.batch_policy != "max-fp32" and not case.refusal and not (self.so_far(case) or case).batch_size

    def waits(self, case: Case) -> bool:
        """Whether it is the twin of cases whose batches are not sure yet."""
        if case.batch_policy != "max-fp32" or case.refusal:
            return False
        known = [self.so_far(twin) or twin for twin in _largest(case)]
        return any(not each.refusal and (not each.batch_size or self.to_confirm(each)) for each in known)

    def next_of(self, waiting: Sequence[Trial]) -> tuple[Trial | None, list[Trial]]:
        """The trial whose turn it is, with its batch, and all that wait with that one first.

        A twin comes after the cases whose batches it takes, where those are still to come. There is no trial where its
        case has nothing to run, nor to tell for the first time.
        """
        turn = next((at for at, each in enumerate(waiting) if not self.waits(each.case)), 0)
        first = waiting[turn]
        told = self.so_far(first.case)
        case = self.of(first.case) if told else None
        again = told is not None and bool(told.refusal) and not first.case.refusal
        ready = None if case is None or again else replace(first, case=case)
        return ready, [first, *waiting[:turn], *waiting[turn + 1 :]]

    def of(self, case: Case) -> Case:
        """The case with its batch, which is looked for now if need be, or with why it cannot run."""
        known = self.so_far(case) or case
        if known.refusal or known.batch_policy == "max-fp32" or _key(case) in self._found:
            return known
        known = try_fp16(known, self._suites[case.suite].suite, self._options, self._probe)
        if not (known.refusal or known.batch_size):
            cap = cap_of(case, self._suites[case.suite])
            known = self._like_another(known, cap) or fit_batch(
                known, self._devices[case.device], self._options, cap, self._probe, self._say
            )
        elif known.batch_size:
            self._sure.add(_key(case))
        self._found[_key(case)] = known
        return known

    def _like_another(self, case: Case, cap: int | None) -> Case | None:
        """In a first look on an accelerator: the batch that follows from the one found for another precision."""
        others = [each for key, each in self._found.items() if key[:4] == _key(case)[:4] and each.batch_size]
        if not others or not is_rough(case, self._options):
            return None
        other = others[0]
        share = SAMPLE_BYTES.get(other.precision, 0.5) / SAMPLE_BYTES.get(case.precision, 0.5)
        # Between fp32 and the others weights do not scale, so that the smaller share is the safe one.
        batch = int((other.batch_size or 0) * (share * SAFE if share > 1 else share)) // 8 * 8
        batch = min(batch, (cap or batch) // 8 * 8)
        if batch < 8 or (other.batch_capped and share < 1):  # of a batch that the cap ended the memory says nothing
            return None
        self._say(
            f"  {case.label}: batch {batch}, from {other.precision}'s {other.batch_size}; its first trial confirms"
        )
        return replace(case, batch_size=batch, batch_capped=batch == (cap or 0) // 8 * 8)

    def to_confirm(self, case: Case) -> bool:
        """Whether its next trial is the first at a batch that was searched for."""
        return _key(case) in self._found and _key(case) not in self._sure

    def roomier(self, case: Case, answer: Measurement) -> Case | None:
        """In a first look: the case at a larger batch, where its trial left much of the memory free."""
        capacity = capacity_of(case, self._devices[case.device])
        rough = is_rough(case, self._options) and case.batch_curve
        if not (rough and case.batch_size and capacity and fits(answer)):
            return None
        small = case.batch_curve[0][0], case.batch_curve[0][2]
        last = case.batch_size, answer.peak_memory_bytes or 0
        cap = cap_of(case, self._suites[case.suite])
        if (batch := roomier(small, last, capacity_bytes=capacity, cap=cap)) is None:
            return None
        self._say(f"  batch {case.batch_size} left much of the memory free: {batch}")
        return replace(case, batch_size=batch, batch_capped=batch == cap // 8 * 8)

    def answer_to(self, trial: Trial) -> tuple[Trial, Answer]:
        """The trial as it ran, with a smaller batch than the one found where that did not fit, and its answer."""
        answer: Answer | None = None
        if not trial.case.refusal and self.to_confirm(trial.case):
            trial, answer = self._confirmed(trial)
        if trial.case.refusal:
            return trial, Answer(Measurement(status=trial.case.refusal_status, reason=trial.case.refusal))
        if answer is None or trial.case.mode == "full":  # of a whole run a quick trial has confirmed the batch
            answer = self._measure(trial)
        return trial, answer

    def _confirmed(self, trial: Trial) -> tuple[Trial, Answer | None]:
        """The first trial at a batch that was searched for: at the one that works, with its answer.

        Of a whole run that is a quick trial beforehand: hours are not spent to find a batch too large.
        """
        mode = trial.case.mode
        first = replace(trial, case=replace(trial.case, mode="quick" if mode == "full" else mode))
        done, answer = confirm(first, self._measure, self._say)
        for _ in range(LEAPS):
            larger = self.roomier(done.case, answer.measurement) if answer else None
            if larger is None:
                break
            more, better = confirm(replace(done, case=larger), self._measure, self._say)
            if better is None:
                break
            done, answer = more, better
        done = replace(done, case=replace(done.case, mode=mode))
        self.settle(done.case)
        return done, answer

    def settle(self, case: Case) -> None:
        """A trial has shown what there is to know of this case's batch."""
        self._found[_key(case)] = case
        self._sure.add(_key(case))

    def _read(self, case: Case) -> Case | None:
        """The case with the batch of an earlier run."""
        if case.batch_size or (row := self._known(case)) is None:
            return None
        size, capped = int(row["batch_size"]), bool(row["batch_capped"])
        try:
            tried = json.loads(str(row["batch_curve"]) or "[]")
            curve = tuple((int(number(batch)), number(rate), int(number(peak))) for batch, rate, peak in tried)
        except BROKEN:
            return None  # edited, so it is searched again
        return replace(case, batch_size=size, batch_capped=capped, batch_curve=curve)


def _key(case: Case) -> Key:
    return case.suite, case.model, case.device, case.processes, case.precision, case.batch_policy, case.tried


def _largest(twin: Case) -> tuple[Case, Case]:
    """The fp32 case that lends its batch to `twin`, and the case of the twin's own precision."""
    own = replace(twin, batch_policy="max", batch_size=None)
    return replace(own, precision="fp32"), own
