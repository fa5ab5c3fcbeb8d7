"""Stores the batch of each case of a run, and decides when to search for it and which trial confirms it."""

import json
from collections.abc import Mapping
from dataclasses import replace

from gpubench.hardware.environment import Device
from gpubench.rows.table import BROKEN, number
from gpubench.runner.batch.search import Measure, Say, cap_of, confirm, fit_batch, try_fp16
from gpubench.runner.cases import failed_by
from gpubench.runner.resume import EarlierRun
from gpubench.suite.files import LoadedSuite
from gpubench.suite.trial import FINISHED, Case, Measurement, Trial

Key = tuple[str, str, str, int, str, str]
"""Identifies a case of a run."""


class CaseBatches:
    """Sets the batch of each case when its first trial comes, so that a run writes rows before all searches are done.

    Args:
        suites, devices: those of the run.
        earlier: the rows of an earlier run, whose searches are not repeated.
        measure: runs a trial.
        say: prints a line per probe.
    """

    def __init__(
        self,
        suites: Mapping[str, LoadedSuite],
        devices: Mapping[str, Device],
        earlier: EarlierRun,
        measure: Measure,
        say: Say,
    ) -> None:
        self._suites, self._devices, self._earlier = suites, devices, earlier
        self._measure, self._say = measure, say
        self._found: dict[Key, Case] = {}
        self._to_confirm: set[Key] = set()
        """Cases whose batch was searched for, and whose next trial has to confirm it."""
        self.has_searched = False
        """Whether a search of this run has used a device."""
        self._compiled: set[Key] = set()
        """Cases whose kernels MIOpen has found and compiled."""

    def so_far(self, case: Case) -> Case | None:
        """Return the case with its batch as far as known; None for a twin that equals another case or cannot run."""
        if case.batch_policy != "max-fp32" or case.refusal:
            return self._found.get(_key(case)) or self._read(case) or case
        mixed = replace(case, batch_policy="max", batch_size=None)
        fp32, mixed = (self.so_far(max_case) or max_case for max_case in (replace(mixed, precision="fp32"), mixed))
        if fp32.refusal or mixed.refusal:
            return None
        if not (fp32.batch_size and mixed.batch_size):
            return case
        if fp32.batch_size == mixed.batch_size:
            return None
        return replace(case, batch_size=fp32.batch_size, batch_capped=fp32.batch_capped)

    def to_search(self, case: Case) -> bool:
        """Return whether the case needs a batch search."""
        return case.batch_policy != "max-fp32" and not case.refusal and not (self.so_far(case) or case).batch_size

    def ready(self, trial: Trial) -> Trial | None:
        """Return the trial with its batch, after a search if needed, or with the reason why its case cannot run.

        None if its case equals another one, has no batch because one of those has none, or was refused before.
        """
        current = self.so_far(trial.case)
        if current is None or (current.refusal and not trial.case.refusal):
            return None
        if current.batch_policy == "max-fp32":
            return replace(trial, case=current) if current.batch_size or current.refusal else None
        return replace(trial, case=self._with_batch(current))

    def _with_batch(self, case: Case) -> Case:
        """Return the case with its batch, after a search if needed, or with the reason why it cannot run."""
        if case.refusal or _key(case) in self._found:
            return case
        suite = self._suites[case.suite]
        case = try_fp16(case, suite.suite, self._measure)
        if not (case.refusal or case.batch_size):
            try:
                cap = cap_of(case, suite)
            except Exception as error:
                case = failed_by(error, case)
            else:
                case = fit_batch(case, self._devices[case.device], cap, self._measure, self._say)
                self._to_confirm.add(_key(case))
                self.has_searched = True
        self._found[_key(case)] = case
        return case

    def to_confirm(self, case: Case) -> bool:
        """Return whether the case's next trial has to confirm its batch."""
        return _key(case) in self._to_confirm and not case.refusal

    def measured(self, trial: Trial) -> tuple[Trial, Measurement]:
        """Run the trial; returns it as it ran, with a smaller batch if its batch did not fit, and its measurement."""
        measurement: Measurement | None = None
        self._compile(trial)
        if self.to_confirm(trial.case):
            trial, measurement = confirm(trial, self._measure, self._say)
            self._found[_key(trial.case)] = trial.case
            self._to_confirm.discard(_key(trial.case))
        if trial.case.refusal:
            return trial, Measurement(status=trial.case.refusal_status, reason=trial.case.refusal)
        return trial, measurement or self._measure(trial)

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

    def _read(self, case: Case) -> Case | None:
        """Return the case with the batch of an earlier run, or None."""
        if case.batch_size or (row := self._earlier.batch_of(case)) is None:
            return None
        size, capped = int(row["batch_size"]), bool(row["batch_capped"])
        try:
            points = json.loads(str(row["batch_curve"]) or "[]")
            curve = tuple((int(number(batch)), number(rate), int(number(peak))) for batch, rate, peak in points)
        except BROKEN:
            return None  # edited: search again
        if row["status"] not in FINISHED:
            self._to_confirm.add(_key(case))
        return replace(case, batch_size=size, batch_capped=capped, batch_curve=curve)


def _key(case: Case) -> Key:
    return case.suite, case.model, case.device, case.processes, case.precision, case.batch_policy
