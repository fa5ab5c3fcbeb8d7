"""Stores the batch of each case of a run, and decides when to search for it and which trial confirms it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from gpubench.hardware.environment import Device
from gpubench.rows.table import BROKEN, number
from gpubench.runner.batch.search import Measure, Say, cap_of, confirm, fit_batch, try_fp16
from gpubench.runner.cases import failed_by
from gpubench.runner.options import Options
from gpubench.suite.files import LoadedSuite
from gpubench.suite.trial import Case, Measurement, Trial

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
        measure: Measure,
        say: Say,
    ) -> None:
        self._suites, self._devices, self._options = suites, devices, options
        self._earlier_row, self._measure, self._say = earlier_row, measure, say
        self._found: dict[Key, Case] = {}
        self._confirmed: set[Key] = set()
        """Cases whose batch is confirmed."""
        self._compiled: set[Key] = set()
        """Cases whose kernels MIOpen has found and compiled."""

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
        current = try_fp16(current, self._suites[case.suite].suite, self._options, self._measure)
        if not (current.refusal or current.batch_size):
            try:
                cap = cap_of(case, self._suites[case.suite])
            except Exception as error:
                current = failed_by(error, case)
            else:
                device = self._devices[case.device]
                current = fit_batch(current, device, self._options, cap, self._measure, self._say)
        elif current.batch_size:
            self._confirmed.add(_key(case))
        self._found[_key(case)] = current
        return current

    def to_confirm(self, case: Case) -> bool:
        """Return whether the case's next trial has to confirm its batch."""
        return _key(case) in self._found and _key(case) not in self._confirmed

    def measured(self, trial: Trial) -> tuple[Trial, Measurement]:
        """Run the trial; returns it as it ran, with a smaller batch if its batch did not fit, and its measurement."""
        measurement: Measurement | None = None
        self._compile(trial)
        if not trial.case.refusal and self.to_confirm(trial.case):
            trial, measurement = self._confirm(trial)
        if trial.case.refusal:
            return trial, Measurement(status=trial.case.refusal_status, reason=trial.case.refusal)
        if measurement is None or trial.case.mode == "full":  # then only a quick trial has run so far
            measurement = self._measure(trial)
        return trial, measurement

    def _compile(self, trial: Trial) -> None:
        """Run a short trial of each new case on ROCm: MIOpen finds and compiles its kernels, and stores them on disk.

        This takes up to a minute for each new shape, and would be in the first trial's time alone.
        """
        case, key = trial.case, _key(trial.case)
        if case.refusal or not self._devices[case.device].rocm or key in self._compiled:
            return
        self._compiled.add(key)
        self._say(f"compiling the kernels of {case.label}, untimed")
        self._measure(replace(trial, case=replace(case, mode="probe"), prove=False))

    def _confirm(self, trial: Trial) -> tuple[Trial, Measurement | None]:
        """Run the first trial at a batch that a search found; returns it with a batch that works, and its measurement.

        Before a full run this is a quick trial, so that a batch that is too large does not cost hours.
        """
        mode = trial.case.mode
        first = replace(trial, case=replace(trial.case, mode="quick" if mode == "full" else mode))
        done, measurement = confirm(first, self._measure, self._say)
        done = replace(done, case=replace(done.case, mode=mode))
        self.settle(done.case)
        return done, measurement

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
