"""Finds the batch of each case of a run (--batch max, fastest): runs probes within a share of the memory, then a trial.

A probe is a child process with a short lap; batch_search.py decides which batch comes next.
"""

import json
from collections.abc import Callable
from dataclasses import replace

from gpubench.hardware import host
from gpubench.hardware.environment import Device
from gpubench.printed import Say
from gpubench.rows.table import BROKEN, number
from gpubench.runner.batch_search import ProbeResult, fastest_batch, largest_batch
from gpubench.runner.cases import failed_by
from gpubench.runner.resume import EarlierRun
from gpubench.runner.session import Session
from gpubench.suite.files import LoadedSuite
from gpubench.suite.suite import Suite
from gpubench.suite.trial import FINISHED, Case, Measurement, Mode, Trial

MARGIN = 0.03
"""Share of memory that probes leave free, so that the longer trial fits too."""
CPU_MARGIN = 0.08
"""Like MARGIN, for devices that use the host's memory: on a CPU, equal trials differ by up to 7% in resident memory."""
SPILLED = 0.7
"""A batch is assumed to use memory outside the card if its rate is below this share of the best rate of smaller
batches. Both are rates of steps on one resident batch, without a loader. Chosen, not measured."""
BACK_OFFS = (0.95, 0.9, 0.85, 0.85, 0.85, 0.8, 0.8, 0.7)
"""Each time a confirming trial does not fit, the batch shrinks to about the next of these shares of itself."""
CAP_SHARE = 20
"""Fewest steps in an epoch: a batch is at most a twentieth of the dataset."""
MOST_ELEMENTS = 2**31 - 1
MOST = 1 << 20
"""Largest batch if a suite does not give its number of samples; without it a search could run without end."""
Measure = Callable[[Trial], Measurement]
Key = tuple[str, str, str, int, str, str]
"""Identifies a case of a run."""


class CaseBatches:
    """Sets the batch of each case when its first trial comes, so that a run writes rows before all searches are done.

    Searches of an `earlier` run are not repeated if they found a batch. `say` prints a line per probe.
    """

    def __init__(self, session: Session, earlier: EarlierRun, measure: Measure, say: Say) -> None:
        self._suites, self._devices, self._earlier = session.suites, session.devices, earlier
        self._measure, self._say = measure, say
        self._found: dict[Key, Case] = {}
        self._to_confirm: set[Key] = set()
        """Cases whose batch was searched for, and whose next trial has to confirm it."""
        self.has_searched = False
        """Whether a search of this run has used a device."""
        self._compiled: set[Key] = set()
        """Cases whose kernels MIOpen has found and compiled."""

    def so_far(self, case: Case) -> Case | None:
        """Return the case, with its batch if known; None for a `max-fp32` case that equals another or cannot run."""
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

        None for a `max-fp32` case that is not needed or has no batch, for a case that this run refused before, and for
        one that its search finds unsupported again.
        """
        current = self.so_far(trial.case)
        if current is None or (current.refusal and not trial.case.refusal):
            return None
        if current.batch_policy == "max-fp32":
            return replace(trial, case=current) if current.batch_size or current.refusal else None
        case = self._with_batch(current)
        is_found = case.refusal and not trial.case.refusal and case.refusal_status == "unsupported"
        return None if is_found and "unsupported" in self._earlier.statuses_of(case) else replace(trial, case=case)

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

    def measured(self, trial: Trial) -> tuple[Trial, Measurement]:
        """Run the trial; return it as it ran (at a smaller batch if its own did not fit) and its measurement."""
        measurement: Measurement | None = None
        self._compile(trial)
        if _key(trial.case) in self._to_confirm and not trial.case.refusal:
            trial, measurement = confirm(trial, self._measure, self._say)
            self._found[_key(trial.case)] = trial.case
            self._to_confirm.discard(_key(trial.case))
        if trial.case.refusal:
            return trial, Measurement(status=trial.case.refusal_status, reason=trial.case.refusal)
        return trial, measurement or self._measure(trial)

    def _compile(self, trial: Trial) -> None:
        """Run a short trial of each new case on ROCm: MIOpen finds and compiles its kernels, and stores them on disk.

        This takes up to a minute for each new shape, and would otherwise make only the first trial longer.
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


def try_fp16(case: Case, suite: Suite, measure: Measure) -> Case:
    """Return the case; in fp16 on a CPU, refuse it if one step shows that torch lacks kernels for this model.

    Missing kernels raise RuntimeError or NotImplementedError. Any other error is the suite's; the trial reports it.
    """
    if case.refusal or not (case.device == "cpu" and suite.torch and case.precision.startswith("fp16")):
        return case
    measured = measure(_probe_of(case, case.batch_size or 8, prove=False))
    if measured.status == "failed" and measured.error in {"RuntimeError", "NotImplementedError"}:
        return replace(case, refusal=f"one step of this model fails: {measured.reason}")
    return case


def _probe_of(case: Case, batch: int, *, prove: bool) -> Trial:
    return Trial(replace(case, batch_size=batch, mode="probe"), index=0, seed=0, prove=prove)


def cap_of(case: Case, suite: LoadedSuite) -> int:
    """Return the largest batch of one process that is worth a probe."""
    samples, about = suite.samples(case.params), suite.suite
    cap = samples // CAP_SHARE // about.samples_per_unit // case.processes if samples else MOST
    if about.most_elements:
        cap = min(cap, MOST_ELEMENTS // about.most_elements(case.model, case.params))
    return max(1, cap)


def capacity_of(case: Case, device: Device) -> int | None:
    """Return the memory that probes may use, in bytes, after the margin was subtracted; None if there is no limit."""
    # On a device that uses the host's memory, the case's limit decides: other programs need that memory too.
    of_card = None if device.shares_memory else device.available_bytes or device.memory_bytes
    capacity = min(filter(None, (case.memory_limit_bytes, of_card)), default=None)
    margin = CPU_MARGIN if device.shares_memory else host.WSL_MARGIN if host.in_wsl() else MARGIN
    return int(capacity * (1 - margin)) if capacity else None


def fit_batch(case: Case, device: Device, cap: int, measure: Measure, say: Say) -> Case:
    """Return the case with its batch and the curve of the search, or with a refusal if no batch works.

    The case's first trial, at the full memory limit, has to confirm the batch (see `confirm`).
    """
    within = capacity_of(case, device)
    fitted: dict[int, float] = {}
    """Rate of steps on a resident batch, in samples/s, by batch."""
    last = Measurement(status="out_of_memory")
    failed: list[Measurement] = []
    """The measurement of the probe that ended the search, if one did."""

    def probe(batch: int) -> ProbeResult | None:
        nonlocal last
        if failed:
            return None
        # The proof of the precision does not depend on the batch: it is left out once one batch has fitted.
        measured = measure(_probe_of(replace(case, memory_limit_bytes=within), batch, prove=not fitted))
        rate = measured.samples_per_second or 0.0
        smaller = [fitted[size] for size in fitted if size < batch]
        resident = measured.resident_samples_per_second
        is_slow = resident is not None and resident < SPILLED * max(smaller, default=0.0)
        # A CPU's rate also falls for other reasons.
        spilled = is_slow and case.batch_policy == "max" and device.kind != "cpu"
        fitting = fits(measured) and not spilled
        why_not = "far slower than a smaller batch" if spilled else why_not_fitting(measured)
        say(f"  batch {batch}: {f'{rate:,.1f} samples/s' if fitting else why_not}")
        if batch == 1 and cap > 1 and measured.status == "failed" and last.status == "out_of_memory" and not fitted:
            # BatchNorm needs two samples if an image has shrunk to one pixel, and two did not fit.
            last = replace(last, reason=f"a batch of 2: {last.reason}; and a batch of 1: {measured.reason}")
            return ProbeResult(fits=False)
        last = measured
        if fitting:
            fitted[batch] = resident or 0.0
        elif measured.status not in {"ok", "out_of_memory"} and not (smaller and measured.status != "timed_out"):
            # If no smaller batch fitted, memory is not the cause. After a time-out a smaller batch may take as long.
            failed.append(replace(measured, reason=f"batch {batch}: {measured.reason}"))
            return None
        # If a larger batch crashes or is killed, the cause is most often memory, so it counts as not fitting.
        resting = measured.resting_memory_bytes or 0
        return ProbeResult(fits=fitting, rate=rate, memory_bytes=measured.peak_memory_bytes or 0, resting_bytes=resting)

    say(f"searching for the {'largest' if case.batch_policy == 'max' else 'fastest'} batch of {case.label}")
    if case.batch_policy == "max":
        rough = case.mode == "quick" and case.device != "cpu"
        result = largest_batch(probe, capacity_bytes=within, cap=cap, rough=rough)
    else:
        result = fastest_batch(probe, cap=cap)
    if result.batch is None:
        return _refused(case, failed[0] if failed else last, "failed in the batch search" if failed else result.reason)
    note = ", where the search stopped" if failed else ", capped" if result.capped else ""
    say(f"  batch {result.batch}{note}; the first trial will test it")
    capped = result.capped or bool(failed)
    return replace(case, batch_size=result.batch, batch_capped=capped, batch_curve=result.curve)


def fits(measurement: Measurement) -> bool:
    """Return whether the trial's batch fits in memory."""
    return measurement.status == "ok" and measurement.allocator_retries == 0


def why_not_fitting(measurement: Measurement) -> str:
    """Return why the trial's batch does not fit in memory, or how the trial failed otherwise."""
    if measurement.status == "ok":
        return f"the allocator had to free memory {measurement.allocator_retries} times"
    return f"{measurement.status}: {measurement.reason}" if measurement.reason else measurement.status


def _refused(case: Case, measurement: Measurement, why: str) -> Case:
    """Return the case as refused, with the measurement's status. A resumed run tries it again."""
    status = "out_of_memory" if measurement.status == "ok" else measurement.status
    reason = f"{why}: {measurement.reason}" if measurement.reason else why
    return replace(case, refusal=reason, refusal_status=status)


def confirm(trial: Trial, measure: Measure, say: Say) -> tuple[Trial, Measurement | None]:
    """Run the first trial at the batch that a search found, or at a smaller one that fits.

    Return the trial as it ran, and its measurement. If no batch fits, the case is refused, and the measurement is None.
    Before a full run a quick trial tests the batch, so that a wrong batch costs no hours; its measurement is not kept.
    """
    searched = trial.case
    mode: Mode = "quick" if searched.mode == "full" else searched.mode
    for share in (*BACK_OFFS, 0.0):  # after 0.0 nothing is tried
        batch = trial.batch_size
        measurement = measure(replace(trial, case=replace(trial.case, mode=mode)))
        if fits(measurement) or measurement.status == "goal_missed" or measurement.fault == "diverged":
            return trial, None if searched.mode == "full" else measurement
        say(f"  batch {batch} not confirmed: {why_not_fitting(measurement)}")
        smaller = int(batch * share) // 8 * 8 or (batch // 2 if share else 0)
        # A smaller batch helps only with memory; BatchNorm cannot train on one sample.
        if not (measurement.status in {"ok", "out_of_memory"} or measurement.fault == "crashed") or smaller < 2:
            break
        trial = replace(trial, case=replace(trial.case, batch_size=smaller, batch_capped=False))
    why = f"batch {searched.batch_size} was found, but no trial confirmed it or a smaller one"
    return replace(trial, case=_refused(searched, measurement, why)), None
