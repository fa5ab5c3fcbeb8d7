"""Finds what limits a training: compute, memory, input, launches, communication or heat.

It compares the FLOPs, bytes and calls of a step with the peaks of the device. docs/method.md explains the thresholds.
The studies `roofline` and `ladder` call it; `submit` uses some of its rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpubench.rows.params import params_of
from gpubench.studies import listed_peaks
from gpubench.suite.precisions import LINEAR_ONLY

Bottleneck = Literal["compute", "memory", "input", "launch", "communication", "throttling", "unknown"]
WAITING = 0.25
"""A wait for data or other processes is the bottleneck from this share of the step on.

A loader or an all-reduce works in parallel with the device, so a wait means that it is slower than the device. A
smaller share can be chance: on a busy host, two fp32 trainings in one process differed by 18%.
"""
BUSY = {"measured": 0.5, "listed": 0.4}
"""A limit of the device can be the bottleneck if it explains at least this share of a step. The share is lower for
listed peaks: the best matrix products reach about 80% of these (mamf-finder: 73 to 87% on A100 to GB200)."""
CLEAR_LEAD = 1.25
"""The largest share must be this many times the second largest, else the bottleneck is unknown."""
OVER = 1.05
"""Above this share of a measured peak, the peak is too low, for example measured on a busy device: measure it again."""
IMPOSSIBLE = 1.5
"""Above this share of a listed or measured peak, a figure is wrong: then the MFU or the bottleneck is unknown."""
AGAIN = " (the measured peak is too low; run `gpubench peak` again)"
ODD_SHAPES = 0.5
"""If at least this share of FLOPs is in products with sizes not divisible by 8, that explains slow mixed precision."""
MOST_PRODUCTS = 0.75
"""Below this share of FLOPs in 8 bits, the rest limits the gain: 75% at twice the rate is 1.6 times in all."""
FASTER_PRODUCTS = 1.2
"""Below this speedup of matrix products, a device gains nothing from mixed precision."""


@dataclass(frozen=True)
class Bound:
    """The bottleneck of one case."""

    bottleneck: Bottleneck
    evidence: str
    mfu: float | None = None
    """FLOP/s over the dense peak of the precision, for the whole pipeline."""
    peak: Literal["listed", "measured", "unknown"] = "unknown"
    """The kind of peak that `mfu` is relative to: listed if the card and precision are listed, else measured."""
    limit_seconds: float | None = None
    """Seconds of the whole run at 100% of the peak.

    D. Page computed it for DAWNBench (davidcpage/cifar10-fast, "How to Train Your ResNet"): 2.8 GFLOP x 50,000 images x
    35 epochs / 125 TFLOP/s is about 40 s.
    """
    share: float | None = None
    """The largest share of a step that one limit of the device explains, at most 1."""


def bound_of(row: Mapping[str, Any], *, throttled: bool = False) -> Bound:
    """Return the bottleneck of the case with the columns `row`: medians over trials, NaN for empty columns."""
    flops, rate = _number(row, "flops_per_sample"), _number(row, "samples_per_second")
    devices = peaks_used(row)
    listed, measured = _listed_peak(row), _number(row, "measured_peak_flops")
    peak = listed or measured
    which: Literal["listed", "measured", "unknown"] = "listed" if listed else "measured" if measured else "unknown"
    mfu = flops * rate / devices / peak if flops and rate and peak else None
    samples = _number(row, "run_samples")
    limit = flops * samples / (peak * devices) if flops and samples and peak else None
    if mfu is not None and mfu > IMPOSSIBLE:
        mfu = limit = None
    bottleneck, evidence = _bottleneck(row, throttled)
    if mfu is not None and which == "measured" and mfu > OVER and AGAIN not in evidence:
        evidence += AGAIN
    share = max((min(share.value, 1.0) for share in busy_shares(row).values()), default=None)
    return Bound(bottleneck, evidence, mfu, which, limit, share)


def peaks_used(row: Mapping[str, Any]) -> float:
    """Return how many device peaks a case uses: one per process on cards, one per node on CPUs.

    If the user chose the number of threads, a CPU counts one per process, too.
    """
    shared = str(row.get("device", "")) == "cpu" and not row.get("threads_asked")
    return _number(row, "nodes" if shared else "processes") or 1.0


def _listed_card(row: Mapping[str, Any]) -> listed_peaks.ListedCard | None:
    return listed_peaks.find(str(row["card"]), _number(row, "card_memory_bytes"))


def _listed_peak(row: Mapping[str, Any]) -> float | None:
    card = _listed_card(row)
    return card.peak(str(row["precision"])) if card else None


def _bottleneck(row: Mapping[str, Any], throttled: bool) -> tuple[Bottleneck, str]:
    shares = busy_shares(row)
    described = ", ".join(f"{name} {share.text}" for name, share in shares.items())
    compute = shares.get("compute")
    if compute and compute.of == "measured" and compute.value > OVER:
        described += AGAIN
    if throttled:
        return "throttling", "heat or hardware lowered the clock" + (f"; {described}" if described else "")
    # On a CPU nothing is queued, so the loop's wait for the loader is the whole stall, measured in the same laps as the
    # step. `data_stall` uses laps that come later, when a shared machine may be faster or slower.
    stall_column = "loader_wait" if row.get("device") == "cpu" else "data_stall"
    measured_stall = _number(row, stall_column)
    stall, exchange = max(0.0, measured_stall or 0.0), _number(row, "communication_share") or 0.0
    waits: dict[Bottleneck, float] = {"input": stall, "communication": exchange * (1 - stall)}
    texts = [f"waits for data {stall:.0%} of the step"] if measured_stall is not None else []
    if _number(row, "communication_share") is not None:
        texts.append(f"waits for other processes {waits['communication']:.0%}")
    evidence = "; ".join([*texts, described] if described else texts)
    worst, next_worst = sorted(waits, key=lambda name: -waits[name])
    if waits[worst] >= WAITING:
        clear = waits[worst] >= CLEAR_LEAD * waits[next_worst]
        return (worst if clear else "unknown"), evidence
    if _is_impossible(shares):
        return "unknown", f"{evidence}: the step is shorter than its limit, so a figure is wrong"
    ordered = sorted(shares, key=lambda name: -shares[name].value)
    if not ordered:
        texts = texts or [f"`{stall_column}` (wait for data) was not measured"]
        return "unknown", "; ".join([*texts, _missing(row)])
    top = shares[ordered[0]]
    rest = max((shares[name].value for name in ordered[1:]), default=0.0)
    if top.value >= BUSY[top.of] and top.value >= CLEAR_LEAD * rest:
        return ordered[0], evidence
    return "unknown", f"{evidence}: no clear bottleneck"


def _missing(row: Mapping[str, Any]) -> str:
    """Return why the row has no share of a device limit."""
    if _number(row, "bytes_per_sample") is None and _number(row, "flops_per_sample") is None:
        return "FLOPs and bytes were not counted"
    if _number(row, "resident_samples_per_second") is None:
        return "no step was timed on a batch in device memory"
    return "the peak of this device is unknown: run `gpubench peak`, then measure again"


@dataclass(frozen=True)
class Share:
    """The share of a step's time that one limit of the device explains; the step's batch is in device memory."""

    value: float
    of: Literal["measured", "listed"]
    at_most: bool = False
    """Whether the value is an upper bound."""

    @property
    def text(self) -> str:
        """Return the share as text, at most 100%."""
        value = f"{'at most ' * self.at_most}{min(self.value, 1.0):.0%}"
        return f"{value} of the listed peak" if self.of == "listed" else value


def busy_shares(row: Mapping[str, Any]) -> dict[Bottleneck, Share]:
    """Return for each limit of the device: seconds of a step at that limit / measured seconds.

    Compute and memory are the two lines of a roofline (Williams, Waterman and Patterson 2009). The bytes are counted
    without fusion and caches, so the share of memory is an upper bound.
    """
    rate = _number(row, "resident_samples_per_second")
    if not rate:
        return {}
    # A step on a resident batch is not slower than a step with its loader, unless the machine was shared meanwhile.
    rate = max(rate, _number(row, "samples_per_second") or 0.0)
    process_rate = rate / (_number(row, "processes") or 1.0)
    rate /= peaks_used(row)
    card, listed = _listed_card(row), _listed_peak(row)
    shares: dict[Bottleneck, Share] = {}
    flops, moved = _number(row, "flops_per_sample"), _number(row, "bytes_per_sample")
    peak, bandwidth = _number(row, "measured_peak_flops"), _number(row, "measured_bandwidth_bytes_per_second")
    if flops and (peak or listed):
        shares["compute"] = Share(flops * rate / (peak or listed or 1.0), "measured" if peak else "listed")
    if moved and (bandwidth or card):
        limit = bandwidth or (card.bytes_per_second if card else 1.0)
        shares["memory"] = Share(moved * rate / limit, "measured" if bandwidth else "listed", at_most=True)
    calls, call_seconds = _number(row, "ops_per_step"), _number(row, "op_overhead_seconds")
    samples = _number(row, "step_samples")
    if calls and call_seconds and samples:
        shares["launch"] = Share(calls * call_seconds * process_rate / samples, "measured")
    return shares


def _is_impossible(shares: Mapping[Bottleneck, Share]) -> bool:
    # `op_overhead_seconds` is the time of one kind of call: a step of cheaper calls may have a share above 1.
    limits = [share for name, share in shares.items() if name != "launch"]
    return any(share.value > IMPOSSIBLE and not share.at_most for share in limits)


def why_not_faster(mixed: Mapping[str, Any], wide: Mapping[str, Any], bound: Bound) -> str:
    """Return why a precision is not faster than a wider one, or "" if no reason is found.

    `mixed` and `wide` are the columns of the two cases, `bound` the bottleneck of the mixed one.
    """
    reasons = []
    card = _listed_card(mixed)
    if card and not card.tensor_cores:
        reasons.append(f"the {card.name} has no tensor cores")
    else:
        peaks = [_number(row, "measured_peak_flops") for row in (mixed, wide)]
        possible = not any(_is_impossible(busy_shares(row)) for row in (mixed, wide))
        if possible and peaks[0] and peaks[1] and peaks[0] / peaks[1] < FASTER_PRODUCTS:
            ratio = peaks[0] / peaks[1]
            reasons.append(f"matrix products reach only {ratio:.2f} times {wide['precision']}'s rate here")
    if mixed["precision"] in LINEAR_ONLY:
        share = _number(mixed, "low_flops_share")
        if share is not None and share < MOST_PRODUCTS:
            reasons.append(f"only {share:.0%} of the FLOPs are in 8 bits")
        if params_of(mixed.get("params")).get("compile") == "false":
            reasons.append("without compile=true, converting to 8 bits takes kernels of its own")
    if (_number(mixed, "odd_flops_share") or 0.0) >= ODD_SHAPES:
        share = _number(mixed, "odd_flops_share")
        reasons.append(f"{share:.0%} of the FLOPs are in products with sizes that are not multiples of 8")
    if bound.bottleneck not in {"compute", "unknown"}:
        suffix = "" if bound.bottleneck == "throttling" else "-bound"
        reasons.append(f"{bound.bottleneck}{suffix} ({bound.evidence})")
    return "; ".join(reasons)


def _number(row: Mapping[str, Any], column: str) -> float | None:
    value = row.get(column)
    return None if value is None or value != value else float(value)
