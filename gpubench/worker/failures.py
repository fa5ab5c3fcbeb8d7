"""Makes one answer of what the processes of a trial report: their figures together, or why it failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpubench.suite.trial import Fault, Measurement

CONSEQUENCES: frozenset[Fault] = frozenset({"lost_others", "waited_for_others"})
"""Faults of a process that only met what became of another."""
LOST = ("peer", "socket", "broken pipe", "process exited", "aborted", "rendezvous")
LATE = ("timed out", "timeout")
"""Words of errors that say that another process is gone, or hangs: the libraries have no class for them."""


@dataclass(frozen=True)
class Failure:
    """What one process, or one machine, says went wrong."""

    at: float
    """Seconds of the clock on the wall."""
    who: str
    measurement: Measurement


def fault_of(words: str) -> Fault:
    """Whose fault an error is, by what torch, NCCL or Gloo say of it; nobody looks at the words again."""
    words = words.lower()
    if any(late in words for late in LATE):
        return "waited_for_others"
    return "lost_others" if any(lost in words for lost in LOST) else ""


def failed(reason: str, error: str = "") -> Measurement:
    """The answer of a process that failed with these words, in an exception of the class `error` if in any."""
    return Measurement(status="failed", reason=reason, fault=fault_of(reason), error=error)


def together(answers: Mapping[int, Measurement]) -> Measurement:
    """The answer of all, by rank, where each trained to its end: laps are agreed, memory is the most of any."""
    every = [answers[rank] for rank in sorted(answers)]
    memory = [each.peak_memory_bytes for each in every if each.peak_memory_bytes is not None]
    errors = [each.precision_error for each in every if each.precision_error is not None]
    return replace(
        every[0],
        peak_memory_bytes=max(memory, default=None),
        allocator_retries=sum(each.allocator_retries for each in every),
        precision_error=max(errors, default=None),
    )


def cause(failures: Sequence[Failure], missing: Sequence[str]) -> Measurement:
    """The one answer of a trial that failed: out of memory wherever it was, else the first that is no consequence.

    Where all are consequences, those who said nothing (`missing`) are to blame.
    """
    ordered = sorted(failures, key=lambda failure: failure.at)
    full = [each for each in ordered if each.measurement.status == "out_of_memory"]
    own = [each for each in ordered if not _is_consequence(each.measurement)]
    if full or own:
        first = (full or own)[0]
        return replace(first.measurement, reason=f"{first.who}: {first.measurement.reason}")
    silent = f"; nothing was heard of {', '.join(missing)}" if missing else ""
    if not ordered:
        return Measurement(status="failed", reason=f"no process answered{silent}")
    first = ordered[0]
    fault, words = first.measurement.fault, first.measurement.reason
    late = fault == "waited_for_others"
    what = "waited in vain for the others" if late else "lost the others"
    reason = f"{first.who} {what}{silent} ({words})"
    return Measurement(status="timed_out" if late else "failed", reason=reason, fault=fault)


def _is_consequence(measurement: Measurement) -> bool:
    return measurement.status == "failed" and measurement.fault in CONSEQUENCES
