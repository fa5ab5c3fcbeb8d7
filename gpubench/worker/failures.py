"""Combines the results of a trial's processes into one: a measurement, or the cause of the failure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpubench.suite.trial import Fault, Measurement

CONSEQUENCES: frozenset[Fault] = frozenset({"lost_others", "waited_for_others"})
"""Faults of a process that follow from another process's failure."""
LOST = ("peer", "socket", "broken pipe", "process exited", "aborted", "rendezvous")
LATE = ("timed out", "timeout")
"""Texts of errors that mean that another process ended (LOST) or hangs (LATE): libraries have no class for them."""


@dataclass(frozen=True)
class Failure:
    """A failure that one process, or one machine, reported."""

    at: float
    """Time of the failure, in seconds since 1970."""
    who: str
    """Name of the process (`rank 3`) or machine (`node 1`)."""
    measurement: Measurement


def fault_of(reason: str) -> Fault:
    """Return the fault that an error text of torch, NCCL or Gloo means, or an empty string."""
    reason = reason.lower()
    if any(late in reason for late in LATE):
        return "waited_for_others"
    return "lost_others" if any(lost in reason for lost in LOST) else ""


def failed(reason: str, error: str = "") -> Measurement:
    """Return the result of a process that failed for this reason; `error` is the class of its exception, if any."""
    return Measurement(status="failed", reason=reason, fault=fault_of(reason), error=error)


def together(results: Sequence[Measurement]) -> Measurement:
    """Return rank 0's result with the largest memory and precision error and the sum of retries of all ranks."""
    memory = [result.peak_memory_bytes for result in results if result.peak_memory_bytes is not None]
    errors = [result.precision_error for result in results if result.precision_error is not None]
    return replace(
        results[0],
        peak_memory_bytes=max(memory, default=None),
        allocator_retries=sum(result.allocator_retries for result in results),
        precision_error=max(errors, default=None),
    )


def cause(failures: Sequence[Failure], missing: Sequence[str]) -> Measurement:
    """Return the result of a failed trial: its first `out_of_memory`, else its first failure that is no consequence.

    If all failures are consequences, the reason names the processes without a result (`missing`).
    """
    ordered = sorted(failures, key=lambda failure: failure.at)
    full = [failure for failure in ordered if failure.measurement.status == "out_of_memory"]
    causes = [one for one in ordered if one.measurement.status != "failed" or one.measurement.fault not in CONSEQUENCES]
    if full or causes:
        first = (full or causes)[0]
        return replace(first.measurement, reason=f"{first.who}: {first.measurement.reason}")
    silent = f"; no answer from {', '.join(missing)}" if missing else ""
    if not ordered:
        return Measurement(status="failed", reason=f"no process answered{silent}")
    first = ordered[0]
    fault, error_text = first.measurement.fault, first.measurement.reason
    late = fault == "waited_for_others"
    problem = "waited in vain for the others" if late else "lost the others"
    reason = f"{first.who} {problem}{silent} ({error_text})"
    return Measurement(status="timed_out" if late else "failed", reason=reason, fault=fault)
