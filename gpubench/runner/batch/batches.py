"""Stores the batch of each case of a run, and decides when to search for it and which trial confirms it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from gpubench.hardware.environment import Device
from gpubench.rows.table import BROKEN, number
from gpubench.runner.batch.search import Say, cap_of, capacity_of, confirm, fit_batch, fits, is_rough, try_fp16
from gpubench.runner.batch.sizes import larger_batch
from gpubench.runner.measure import MeasuredTrial
from gpubench.runner.options import Options
from gpubench.suite.files import LoadedSuite
from gpubench.suite.trial import Case, Measurement, Trial

LEAPS = 3
"""How often a quick run tries a larger batch if the predicted one left much memory free."""
SAMPLE_BYTES = {"fp32": 1.0, "tf32": 1.0}
"""Approximate memory of a sample relative to fp32; half in any other precision."""
SAFE = 0.8
"""Safety factor of a batch that is derived from that of another precision."""

Key = tuple[str, str, str, int, str, str]
"""Identifies a case of a run."""


class CaseBatches:
    """Sets the batch of each case when its first trial comes, so that a run writes rows before all searches are done.

    Args:
        suites, devices, options: those of the run.
        earlier_row: returns the row of an earlier run's search, which is then not repeated.
        measure: runs a trial.
        say: prints a line per probe.
    """

    def __init__(
        self,
        suites: Mapping[str, LoadedSuite],
        devices: Mapping[str, Device],
        options: Options,
        *,
        earlier_row: Callable[[Case], "pd.Series | None"],
        measure: Callable[[Trial], MeasuredTrial],
        say: Say,
    ) -> None:
        self._suites, self._devices, self._options = suites, devices, options
        self._earlier_row, self._measure, self._say = earlier_row, measure, say
        self._found: dict[Key, Case] = {}
        self._confirmed: set[Key] = set()
        """Cases whose batch is confirmed."""

    def _probe(self, trial: Trial) -> Measurement:
        return self._measure(trial).measurement

    def so_far(self, case: Case) -> Case | None:
        """Return the case with the batch of its search so far; None for a twin that equals another case."""
        if case.batch_policy != "max-fp32" or case.refusal:
            return self._found.get(_key(case)) or self._read(case) or case
        fp32, mixed = (self.so_far(twin) or twin for twin in _largest(case))
        if not (fp32.batch_size and mixed.batch_size):
            return None if fp32.refusal or mixed.refusal else case
        return replace(case, batch_size=fp32.batch_size) if fp32.batch_size != mixed.batch_size else None

    def to_search(self, case: Case) -> bool:
        """Return whether the case needs a batch search."""
        return case.batch_policy != "max-fp32" and not case.refusal and not (self.so_far(case) or case).batch_size

    def waits(self, case: Case) -> bool:
        """Return whether the case is a twin of cases whose batches are not confirmed yet."""
        if case.batch_policy != "max-fp32" or case.refusal:
            return False
        twins = [self.so_far(twin) or twin for twin in _largest(case)]
        return any(not twin.refusal and (not twin.batch_size or self.to_confirm(twin)) for twin in twins)

    def next_of(self, waiting: Sequence[Trial]) -> tuple[Trial | None, list[Trial]]:
        """Return the next trial with its batch, and all waiting trials with that one first.

        A twin comes after the cases whose batches it needs. The trial is None if its case equals another one, or was
        refused before.
        """
        index = next((index for index, trial in enumerate(waiting) if not self.waits(trial.case)), 0)
        first = waiting[index]
        current = self.so_far(first.case)
        case = self.of(first.case) if current else None
        refused_before = current is not None and bool(current.refusal) and not first.case.refusal
        ready = None if case is None or refused_before else replace(first, case=case)
        return ready, [first, *waiting[:index], *waiting[index + 1 :]]

    def of(self, case: Case) -> Case:
        """Return the case with its batch, after a search if needed, or with the reason why it cannot run."""
        current = self.so_far(case) or case
        if current.refusal or current.batch_policy == "max-fp32" or _key(case) in self._found:
            return current
        current = try_fp16(current, self._suites[case.suite].suite, self._options, self._probe)
        if not (current.refusal or current.batch_size):
            cap = cap_of(case, self._suites[case.suite])
            current = self._like_another(current, cap) or fit_batch(
                current, self._devices[case.device], self._options, cap, self._probe, self._say
            )
        elif current.batch_size:
            self._confirmed.add(_key(case))
        self._found[_key(case)] = current
        return current

    def _like_another(self, case: Case, cap: int | None) -> Case | None:
        """Return the case with a batch derived from that of another precision; only in quick runs on an accelerator."""
        others = [other for key, other in self._found.items() if key[:4] == _key(case)[:4] and other.batch_size]
        if not others or not is_rough(case, self._options):
            return None
        other = others[0]
        share = SAMPLE_BYTES.get(other.precision, 0.5) / SAMPLE_BYTES.get(case.precision, 0.5)
        # The memory of weights does not depend on the precision, so the smaller share is the safe one.
        batch = int((other.batch_size or 0) * (share * SAFE if share > 1 else share)) // 8 * 8
        batch = min(batch, (cap or batch) // 8 * 8)
        if batch < 8 or (other.batch_capped and share < 1):  # a capped batch did not fill the memory
            return None
        self._say(
            f"  {case.label}: batch {batch}, from {other.precision}'s {other.batch_size}; its first trial confirms"
        )
        return replace(case, batch_size=batch, batch_capped=batch == (cap or 0) // 8 * 8)

    def to_confirm(self, case: Case) -> bool:
        """Return whether the case's next trial has to confirm its batch."""
        return _key(case) in self._found and _key(case) not in self._confirmed

    def enlarged(self, case: Case, measurement: Measurement) -> Case | None:
        """Return the case with a larger batch if its trial left much memory free, else None; only in quick runs."""
        capacity = capacity_of(case, self._devices[case.device])
        rough = is_rough(case, self._options) and case.batch_curve
        if not (rough and case.batch_size and capacity and fits(measurement)):
            return None
        small = case.batch_curve[0][0], case.batch_curve[0][2]
        last = case.batch_size, measurement.peak_memory_bytes or 0
        cap = cap_of(case, self._suites[case.suite])
        if (batch := larger_batch(small, last, capacity_bytes=capacity, cap=cap)) is None:
            return None
        self._say(f"  batch {case.batch_size} left much memory free: trying {batch}")
        return replace(case, batch_size=batch, batch_capped=batch == cap // 8 * 8)

    def measured(self, trial: Trial) -> tuple[Trial, MeasuredTrial]:
        """Run the trial; returns it as it ran, with a smaller batch if its batch did not fit, and its measurement."""
        measured: MeasuredTrial | None = None
        if not trial.case.refusal and self.to_confirm(trial.case):
            trial, measured = self._confirm(trial)
        if trial.case.refusal:
            return trial, MeasuredTrial(Measurement(status=trial.case.refusal_status, reason=trial.case.refusal))
        if measured is None or trial.case.mode == "full":  # then only a quick trial has run so far
            measured = self._measure(trial)
        return trial, measured

    def _confirm(self, trial: Trial) -> tuple[Trial, MeasuredTrial | None]:
        """Run the first trial at a batch that a search found; returns it with a batch that works, and its measurement.

        Before a full run this is a quick trial, so that a batch that is too large does not cost hours.
        """
        mode = trial.case.mode
        first = replace(trial, case=replace(trial.case, mode="quick" if mode == "full" else mode))
        done, measured = confirm(first, self._measure, self._say)
        for _ in range(LEAPS):
            larger = self.enlarged(done.case, measured.measurement) if measured else None
            if larger is None:
                break
            larger_trial, larger_measured = confirm(replace(done, case=larger), self._measure, self._say)
            if larger_measured is None:
                break
            done, measured = larger_trial, larger_measured
        done = replace(done, case=replace(done.case, mode=mode))
        self.settle(done.case)
        return done, measured

    def settle(self, case: Case) -> None:
        """Store the case with its confirmed batch."""
        self._found[_key(case)] = case
        self._confirmed.add(_key(case))

    def _read(self, case: Case) -> Case | None:
        """Return the case with the batch of an earlier run, or None."""
        if case.batch_size or (row := self._earlier_row(case)) is None:
            return None
        size, capped = int(row["batch_size"]), bool(row["batch_capped"])
        try:
            points = json.loads(str(row["batch_curve"]) or "[]")
            curve = tuple((int(number(batch)), number(rate), int(number(peak))) for batch, rate, peak in points)
        except BROKEN:
            return None  # edited: search again
        return replace(case, batch_size=size, batch_capped=capped, batch_curve=curve)


def _key(case: Case) -> Key:
    return case.suite, case.model, case.device, case.processes, case.precision, case.batch_policy


def _largest(twin: Case) -> tuple[Case, Case]:
    """Return the fp32 case whose batch `twin` uses, and the case of the twin's precision at its largest batch."""
    mixed = replace(twin, batch_policy="max", batch_size=None)
    return replace(mixed, precision="fp32"), mixed
