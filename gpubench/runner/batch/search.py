"""Runs the probes of a batch search, and of fp16 on a CPU, as child processes; sizes.py decides which batch comes next.

Each probe runs a short lap. A batch that was found is confirmed by a trial.
"""

from collections.abc import Callable
from dataclasses import replace

from gpubench.hardware.environment import Device
from gpubench.runner.batch.sizes import Probe, fastest_batch, largest_batch
from gpubench.runner.measure import Answer
from gpubench.runner.options import Options
from gpubench.suite.files import LoadedSuite
from gpubench.suite.suite import Suite
from gpubench.suite.trial import Case, Measurement, Trial

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
MOST_ELEMENTS = 2**31 - 1
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
    if answer.status == "failed" and answer.error in {"RuntimeError", "NotImplementedError"}:
        return replace(case, refusal=f"one step of this model fails here: {answer.reason}")
    return case


def cap_of(case: Case, suite: LoadedSuite) -> int:
    """The largest batch of one process that is worth a probe."""
    samples, of = suite.samples(case.params), suite.suite
    cap = samples // CAP_SHARE // of.samples_per_unit // case.processes if samples else MOST
    if of.most_elements:
        cap = min(cap, MOST_ELEMENTS // of.most_elements(case.model, case.params))
    return max(1, cap)


def is_rough(case: Case, options: Options) -> bool:
    """Whether a prediction has to do for the largest batch: in a first look on an accelerator."""
    return options.mode == "quick" and case.batch_policy == "max" and case.device != "cpu"


def capacity_of(case: Case, device: Device) -> int | None:
    """Bytes within which probes run, and at which a prediction aims: what the margin leaves."""
    # The host's memory, which others need as well, is no capacity to aim at; a card's is its own.
    capacity = case.memory_limit_bytes or (None if device.shares_memory else device.memory_bytes)
    margin = CPU_MARGIN if device.shares_memory else MARGIN
    return int(capacity * (1 - margin)) if capacity else None


def fit_batch(case: Case, device: Device, options: Options, cap: int | None, measure: Measure, say: Say) -> Case:
    """The case with its batch and the curve of the search, or with a refusal where no batch works.

    The case's first trial, at the full memory limit, is to confirm the answer (see `confirm`).
    """
    within = capacity_of(case, device)
    fitted: list[int] = []
    last = Measurement(status="out_of_memory")

    def probe(batch: int) -> Probe:
        nonlocal last
        trial_case = replace(case, batch_size=batch, mode="probe", memory_limit_bytes=within)
        # Whatever contradicts the label does so at any batch: the first that fits is asked for its proof.
        answer = measure(Trial(trial_case, 0, options.seed, prove=not fitted))
        fitting = fits(answer)
        rate = answer.samples_per_second or 0.0
        say(f"  batch {batch}: {f'{rate:,.1f} samples/s' if fitting else _why_not(answer)}")
        if batch == 1 and answer.status == "failed" and last.status == "out_of_memory" and not fitted:
            # BatchNorm wants two samples where an image has come down to one pixel, and two were too many.
            last = replace(last, reason=f"a batch of 2: {last.reason}; and a batch of 1: {answer.reason}")
            return Probe(fits=False)
        last = answer
        if fitting:
            fitted.append(batch)
        elif answer.status not in {"ok", "out_of_memory"} and not any(smaller < batch for smaller in fitted):
            raise ProbeFailed(answer)
        # A larger batch that crashes, hangs or is killed is most often memory in disguise: it does not fit.
        resting = answer.resting_memory_bytes or 0
        return Probe(fits=fitting, rate=rate, memory_bytes=answer.peak_memory_bytes or 0, resting_bytes=resting)

    say(f"looking for the {'largest' if case.batch_policy == 'max' else 'fastest'} batch of {case.label}")
    try:
        if case.batch_policy == "max":
            found = largest_batch(probe, capacity_bytes=within, cap=cap, rough=is_rough(case, options))
        else:
            found = fastest_batch(probe, cap=cap)
        if found.batch is None:
            return _refused(case, last, found.reason)
        say(f"  batch {found.batch}{', capped' if found.capped else ''}; its first trial is to confirm it")
        return replace(case, batch_size=found.batch, batch_capped=found.capped, batch_curve=found.curve)
    except ProbeFailed as failure:
        return _refused(case, failure.answer, "failed in the batch search")


def fits(answer: Measurement) -> bool:
    """Whether the trial's batch fits in memory."""
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


def confirm(trial: Trial, measure: Callable[[Trial], Answer], say: Say) -> tuple[Trial, Answer | None]:
    """The first trial at the batch that a search found, or at a smaller one where memory wants it, and what it gave.

    Where none goes well, the case is refused and there is no answer.
    """
    found = trial.case
    for _ in range(1 + BACK_OFFS):
        batch = trial.batch_size
        answer = measure(trial)
        seen = answer.measurement
        if fits(seen) or seen.status == "goal_missed" or seen.diverged:
            return trial, answer
        say(f"  batch {batch} not confirmed: {_why_not(seen)}")
        smaller = int(batch * BACK_OFF) // 8 * 8
        smaller = smaller if smaller >= 8 else batch // 2
        # Nothing but memory is cured by a smaller batch; and a network with BatchNorm cannot learn of one sample.
        if not (seen.status in {"ok", "out_of_memory"} or seen.fault == "crashed") or smaller < 2:
            break
        trial = replace(trial, case=replace(trial.case, batch_size=smaller, batch_capped=False))
    why = f"batch {found.batch_size} was found, and no trial could confirm it or a smaller one"
    return replace(trial, case=_refused(found, seen, why)), None
