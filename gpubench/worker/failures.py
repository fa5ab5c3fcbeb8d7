"""Makes one answer of what the processes of a trial report: their figures together, or why it failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpubench.suite.trial import Measurement

CONSEQUENCES = ("peer", "socket", "broken pipe", "timed out", "timeout", "process exited", "aborted", "rendezvous")
"""What a process says when another is gone or hangs; the cause lies elsewhere."""


@dataclass(frozen=True)
class Failure:
    """What one process, or one machine, says went wrong."""

    at: float
    """Seconds of the clock on the wall."""
    who: str
    measurement: Measurement


def is_consequence(measurement: Measurement) -> bool:
    """Whether a failure only says that other processes are gone."""
    words = measurement.reason.lower()
    return measurement.status == "failed" and any(word in words for word in CONSEQUENCES)


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
    own = [each for each in ordered if not is_consequence(each.measurement)]
    if full or own:
        first = (full or own)[0]
        return replace(first.measurement, reason=f"{first.who}: {first.measurement.reason}")
    silent = f"; nothing was heard of {', '.join(missing)}" if missing else ""
    if not ordered:
        return Measurement(status="failed", reason=f"no process answered{silent}")
    first = ordered[0]
    words = first.measurement.reason
    late = "timed out" in words.lower() or "timeout" in words.lower()
    what = "waited in vain for the others" if late else "lost the others"
    return Measurement(status="timed_out" if late else "failed", reason=f"{first.who} {what}{silent} ({words})")
