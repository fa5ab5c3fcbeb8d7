"""What only trying shows of a case: its batch where it was left open, and whether this CPU computes it in fp16.

Each probe is a child process that runs a short lap.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from gpubench.measuring.batch import Found, Probe, fastest_batch, largest_batch
from gpubench.measuring.environment import Device
from gpubench.measuring.plan import Options
from gpubench.suite import LoadedSuite, Suite
from gpubench.trial import Case, Measurement, Trial

MARGIN = 0.03
"""Share of the memory that probes must leave free, so that the real trial, which runs longer, fits too."""
CPU_MARGIN = 0.08
"""The same on a CPU, where the resident memory of one trial differs by up to 7% from process to process."""

BACK_OFF = 0.95
"""When the confirming trial does not fit after all, the next try is this much smaller."""
BACK_OFFS = 5
"""Smaller ones that are tried at most: what does not fit then is no matter of the batch."""

CAP_SHARE = 20
"""A batch over a twentieth of the dataset leaves too few steps in an epoch to call it training."""
MOST = 1 << 20
"""The cap where a suite does not say how many samples it has: without one a search would never end for a suite that
quietly takes fewer."""

Measure = Callable[[Trial], Measurement]
Say = Callable[[str], None]


def try_fp16(case: Case, suite: Suite, options: Options, measure: Measure) -> Case:
    """On a CPU one forward and backward decides whether torch has fp16 kernels for this model.

    What torch lacks is one of these two errors; any other is the suite's, and the trial's to report.
    """
    if case.refusal or not (case.device == "cpu" and suite.torch and case.precision.startswith("fp16")):
        return case
    small = replace(case, batch_size=case.batch_size or 8, mode="probe")
    answer = measure(Trial(small, 0, options.seed, prove=False))
    if answer.status == "failed" and answer.reason.startswith(("RuntimeError:", "NotImplementedError:")):
        return replace(case, refusal=f"one step of this model fails here: {answer.reason}")
    return case


def fit_batches(
    cases: Sequence[Case],
    suites: Mapping[str, LoadedSuite],
    devices: Mapping[str, Device],
    options: Options,
    *,
    known: Callable[[Case], "pd.Series | None"],
    measure: Measure,
    say: Say,
    fitted: list[Case] | None = None,
) -> list[Case]:
    """All cases with a batch. `known` gives the row of an earlier run's search, which then is not repeated.

    `fitted` gets each case as soon as it has its batch, for whoever is interrupted.
    """
    fitted = [] if fitted is None else fitted
    for case in cases:
        if case.refusal or case.batch_size or case.batch_policy == "max-fp32":
            fitted.append(case)
        elif (row := known(case)) is not None:
            size, capped = int(row["batch_size"]), bool(row["batch_capped"])
            curve = tuple(tuple(point) for point in json.loads(str(row["batch_curve"]) or "[]"))
            fitted.append(replace(case, batch_size=size, batch_capped=capped, batch_curve=curve))
        else:
            cap = cap_of(case, suites[case.suite])
            fitted.append(fit_batch(case, devices[case.device], options, cap, measure, say))
    return with_fp32_batches(fitted)


def cap_of(case: Case, suite: LoadedSuite) -> int:
    """The largest batch of one process that is worth a probe."""
    samples = suite.samples(case.params)
    return max(1, samples // CAP_SHARE // suite.suite.samples_per_unit // case.processes) if samples else MOST


def fit_batch(case: Case, device: Device, options: Options, cap: int | None, measure: Measure, say: Say) -> Case:
    """The case with its batch and the curve of the search, or with a refusal where no batch works.

    The answer of the search is confirmed by one more trial at the full memory limit.
    """
    limit = case.memory_limit_bytes
    # A CPU without a limit has no capacity to aim at; a card's is its memory.
    capacity = limit or (device.memory_bytes if device.kind != "cpu" else None)
    # Probes run, and the prediction aims, at what the margin leaves.
    margin = CPU_MARGIN if device.kind == "cpu" else MARGIN
    within = int(capacity * (1 - margin)) if capacity else None

    fitted: list[int] = []
    last = Measurement(status="out_of_memory")

    def probe(batch: int) -> Probe:
        nonlocal last
        trial_case = replace(case, batch_size=batch, mode="probe", memory_limit_bytes=within)
        # Whatever contradicts the label does so at any batch: the first that fits is asked for its proof.
        answer = measure(Trial(trial_case, 0, options.seed, prove=not fitted))
        fits = _fits(answer)
        rate = answer.samples_per_second or 0.0
        say(f"  batch {batch}: {f'{rate:,.1f} samples/s' if fits else _why_not(answer)}")
        if batch == 1 and answer.status == "failed" and last.status == "out_of_memory" and not fitted:
            # BatchNorm wants two samples where an image has come down to one pixel, and two were too many.
            last = replace(last, reason=f"a batch of 2: {last.reason}; and a batch of 1: {answer.reason}")
            return Probe(fits=False)
        last = answer
        if fits:
            fitted.append(batch)
        elif answer.status not in {"ok", "out_of_memory"} and not any(smaller < batch for smaller in fitted):
            raise ProbeFailed(answer)
        # A larger batch that crashes, hangs or is killed is most often memory in disguise: it does not fit.
        return Probe(fits=fits, rate=rate, memory_bytes=answer.peak_memory_bytes or 0)

    say(f"looking for the {'largest' if case.batch_policy == 'max' else 'fastest'} batch of {case.label}")
    try:
        if case.batch_policy == "max":
            found = largest_batch(probe, capacity_bytes=within, cap=cap)
        else:
            found = fastest_batch(probe, cap=cap)
        if found.batch is None:
            return _refused(case, last, found.reason)
        return _confirmed(case, found, measure, options, say)
    except ProbeFailed as failure:
        return _refused(case, failure.answer, "failed in the batch search")


def _fits(answer: Measurement) -> bool:
    return answer.status == "ok" and answer.allocator_retries == 0


def _why_not(answer: Measurement) -> str:
    """Why a batch is not taken, in words."""
    if answer.status == "ok":
        return f"the allocator had to give memory back {answer.allocator_retries} times"
    return f"{answer.status}: {answer.reason}" if answer.reason else answer.status


def _refused(case: Case, answer: Measurement, why: str) -> Case:
    """Not `unsupported`, which would end well and never be tried again: it goes by what the last probe said."""
    status = "out_of_memory" if answer.status == "ok" else answer.status
    return replace(case, refusal=f"{why}: {answer.reason}" if answer.reason else why, refusal_status=status)


class ProbeFailed(Exception):
    """A probe ended in something that no smaller batch would cure."""

    def __init__(self, answer: Measurement) -> None:
        super().__init__(answer.reason)
        self.answer = answer


def _confirmed(case: Case, found: Found, measure: Measure, options: Options, say: Say) -> Case:
    """The case with a batch at which a trial goes well: the one found, or a smaller one where memory wants it."""
    batch = found.batch or 0
    case = replace(case, batch_curve=found.curve)
    answer = Measurement(status="out_of_memory")
    for _ in range(1 + BACK_OFFS):
        trial = Trial(replace(case, batch_size=batch, mode="quick"), 0, options.seed)
        answer = measure(trial)
        if _fits(answer) or answer.diverged:
            capped = found.capped and batch == found.batch
            say(f"  batch {batch} confirmed by a trial{', capped' if capped else ''}")
            return replace(case, batch_size=batch, batch_capped=capped)
        say(f"  batch {batch} not confirmed: {_why_not(answer)}")
        if not (answer.status in {"ok", "out_of_memory"} or answer.crashed):
            break  # a smaller batch would not cure it
        smaller = int(batch * BACK_OFF) // 8 * 8
        batch = smaller if smaller >= 8 else batch // 2
        if batch < 2:  # of which a network with BatchNorm cannot learn
            break
    return _refused(case, answer, f"batch {found.batch} was found, and no trial could confirm it or a smaller one")


def with_fp32_batches(cases: Sequence[Case]) -> list[Case]:
    """Give each `max-fp32` case the batch that was found for its fp32 twin; drop it where both batches agree."""
    largest = {
        (case.suite, case.model, case.device, case.processes, case.precision): case
        for case in cases
        if case.batch_policy == "max"
    }
    filled = []
    for case in cases:
        if case.batch_policy != "max-fp32":
            filled.append(case)
            continue
        fp32 = largest[case.suite, case.model, case.device, case.processes, "fp32"]
        own = largest[case.suite, case.model, case.device, case.processes, case.precision]
        if fp32.batch_size and own.batch_size and fp32.batch_size != own.batch_size:
            filled.append(replace(case, batch_size=fp32.batch_size))
    return filled
