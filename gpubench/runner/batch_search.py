"""Tries out what is not known of a case: its batch, and whether this CPU computes the model in fp16.

Each probe is a child process that runs a short lap.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pandas as pd

from gpubench.hardware.environment import Device
from gpubench.plan.plan import Options
from gpubench.runner.batch_sizes import Probe, fastest_batch, largest_batch, roomier
from gpubench.runner.process import Outcome
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

SAMPLE_BYTES = {"fp32": 1.0, "tf32": 1.0}
"""What a sample takes of the memory, about, beside fp32's; half in any other precision."""
SAFE = 0.8
"""Where the batch of one precision is reckoned from another's and not tried, it is so much smaller."""

CAP_SHARE = 20
"""A batch over a twentieth of the dataset leaves too few steps in an epoch to call it training."""
MOST_ELEMENTS = 2**31 - 1
MOST = 1 << 20
"""The cap where a suite does not say how many samples it has: without one a search would never end for a suite that
quietly takes fewer."""

Key = tuple[str, str, str, int, str, str]
"""What tells cases of one run apart."""
Measure = Callable[[Trial], Measurement]
Say = Callable[[str], None]
Answer = tuple[Measurement, Outcome]
"""What a trial gave, and how its process ended."""


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
        measure: Measure,
        say: Say,
    ) -> None:
        self._suites, self._devices, self._options = suites, devices, options
        self._known, self._measure, self._say = known, measure, say
        self._found: dict[Key, Case] = {}
        self._sure: set[Key] = set()
        """Those whose batch no trial has to confirm any more."""

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

    def of(self, case: Case) -> Case:
        """The case with its batch, which is looked for now if need be, or with why it cannot run."""
        known = self.so_far(case) or case
        if known.refusal or known.batch_policy == "max-fp32" or _key(case) in self._found:
            return known
        known = try_fp16(known, self._suites[case.suite].suite, self._options, self._measure)
        if not (known.refusal or known.batch_size):
            cap = cap_of(case, self._suites[case.suite])
            known = self._like_another(known, cap) or fit_batch(
                known, self._devices[case.device], self._options, cap, self._measure, self._say
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
        if not (rough and case.batch_size and capacity and _fits(answer)):
            return None
        small = case.batch_curve[0][0], case.batch_curve[0][2]
        last = case.batch_size, answer.peak_memory_bytes or 0
        cap = cap_of(case, self._suites[case.suite])
        if (batch := roomier(small, last, capacity_bytes=capacity, cap=cap)) is None:
            return None
        self._say(f"  batch {case.batch_size} left much of the memory free: {batch}")
        return replace(case, batch_size=batch, batch_capped=batch == cap // 8 * 8)

    def settle(self, case: Case) -> None:
        """A trial has shown what there is to know of this case's batch."""
        self._found[_key(case)] = case
        self._sure.add(_key(case))

    def _read(self, case: Case) -> Case | None:
        """The case with the batch of an earlier run."""
        if case.batch_size or (row := self._known(case)) is None:
            return None
        size, capped = int(row["batch_size"]), bool(row["batch_capped"])
        curve = tuple(tuple(point) for point in json.loads(str(row["batch_curve"]) or "[]"))
        return replace(case, batch_size=size, batch_capped=capped, batch_curve=curve)


def _key(case: Case) -> Key:
    return case.suite, case.model, case.device, case.processes, case.precision, case.batch_policy


def _largest(twin: Case) -> tuple[Case, Case]:
    """The fp32 case that lends its batch to `twin`, and the case of the twin's own precision."""
    own = replace(twin, batch_policy="max", batch_size=None)
    return replace(own, precision="fp32"), own


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
        resting = answer.resting_memory_bytes or 0
        return Probe(fits=fits, rate=rate, memory_bytes=answer.peak_memory_bytes or 0, resting_bytes=resting)

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


def confirm(trial: Trial, measure: Callable[[Trial], Answer], say: Say) -> tuple[Trial, Answer | None]:
    """The first trial at the batch that a search found, or at a smaller one where memory wants it, and what it gave.

    Where none goes well, the case is refused and there is no answer.
    """
    found = trial.case
    for _ in range(1 + BACK_OFFS):
        batch = trial.batch_size
        answer = measure(trial)
        seen = answer[0]
        if _fits(seen) or seen.status == "goal_missed" or seen.diverged:
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
