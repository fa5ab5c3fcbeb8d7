"""The rules of the roofline: from a row's FLOPs, bytes and calls to compute, memory, launch, input or unknown.

Arithmetic on a row; docs/method.md has the thresholds and why they are what they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpubench.studies.roofline import listed_peaks

Word = Literal["compute", "memory", "input", "launch", "communication", "throttled", "unknown"]

HINDERED = 0.25
"""A stall or an exchange of this share of the step names the bound, whatever the device does the rest of the time.

A loader or an all-reduce works beside the device, so that where it is late at all, it sets the pace: nothing else
can make the step faster by more than what is left. Below a quarter it is within what one trial on a busy host
shows by chance (fp32 twice in one process differed by 18%).
"""
BUSY = {"measured": 0.5, "listed": 0.4}
"""The share of a peak from which on it bounds the step: over half of the step's time passes at that limit. Of a
listed peak four fifths of that, since the best matrix products reach about 80% of it (mamf-finder: 73 to 87% on
NVIDIA's cards from A100 to GB200)."""
CLEAR_LEAD = 1.25
"""How far the largest share has to be ahead of the next one: two that are close are no answer."""
OVER = 1.05
"""A measured limit that is passed by more than this was measured under another load: measure it again."""
IMPOSSIBLE = 1.5
"""And by more than this it is no limit at all: nothing is concluded from it."""
AGAIN = " (over 100%: a measured peak is a floor, what this device did when it was measured; run `gpubench peak` again)"
ODD_SHAPES = 0.5
"""Share of the FLOPs in products that tensor cores cannot tile whole, from which on shapes explain a mixed precision
that is not faster."""
FASTER_PRODUCTS = 1.2
"""A device whose mixed matrix products are not even so much faster gains nothing by mixed precision."""


@dataclass(frozen=True)
class Bound:
    """What bounds one case."""

    word: Word
    evidence: str
    mfu: float | None = None
    """FLOPs done per second / the dense peak of the precision, pipeline included."""
    peak: Literal["listed", "measured", "unknown"] = "unknown"
    """Which peak that is: the specification's where the card is known, else the device's own measured one."""
    limit_seconds: float | None = None
    """What the training of the whole run would take at 100% of that peak."""
    share: float | None = None
    """The share of a step that passes at the limit that comes nearest to filling it, where `word` goes by that."""


def limit_seconds(flops_per_sample: float, samples: float, flops_per_second: float) -> float:
    """Seconds of a training of `samples` at 100% of a peak.

    The way D. Page reasons about DAWNBench (davidcpage/cifar10-fast, "How to Train Your ResNet"): 2.8 GFLOP x 50,000
    images x 35 epochs / 125 TFLOP/s is about 40 s.
    """
    return flops_per_sample * samples / flops_per_second


def bound_of(row: Mapping[str, Any], *, throttled: bool = False) -> Bound:
    """What bounds the case whose columns are `row` (medians over its trials; NaN where a column is empty)."""
    flops, rate = _number(row, "flops_per_sample"), _number(row, "samples_per_second")
    devices = peaks_used(row)
    peak, which = _peak_of(row)
    mfu = flops * rate / devices / peak if flops and rate and peak else None
    samples = _number(row, "run_samples")
    limit = limit_seconds(flops, samples, peak * devices) if flops and samples and peak else None
    if mfu is not None and mfu > IMPOSSIBLE:
        mfu = limit = None
    word, evidence = _word(row, throttled)
    if mfu is not None and which == "measured" and mfu > OVER and AGAIN not in evidence:
        evidence += AGAIN
    share = max((share.value for share in busy_shares(row).values()), default=None)
    return Bound(word, evidence, mfu, which, limit, share)


def peaks_used(row: Mapping[str, Any]) -> float:
    """How many times its device's peak a case has: a process has a card, but a machine's processes share its CPU.

    Where somebody chose the threads of a process, the peak of a CPU is that of so many threads, and each process's own.
    """
    shared = str(row.get("device", "")) == "cpu" and not row.get("threads_asked")
    return _number(row, "nodes" if shared else "processes") or 1.0


def _peak_of(row: Mapping[str, Any]) -> tuple[float | None, Literal["listed", "measured", "unknown"]]:
    card = listed_peaks.find(str(row["card"]), _number(row, "card_memory_bytes"))
    listed = card.peak(str(row["precision"])) if card else None
    if listed:
        return listed, "listed"
    measured = _number(row, "measured_peak_flops")
    return measured, "measured" if measured else "unknown"


def _word(row: Mapping[str, Any], throttled: bool) -> tuple[Word, str]:
    shares = busy_shares(row)
    described = ", ".join(f"{name} {share.text}" for name, share in shares.items())
    if any(share.value > OVER and not share.at_most for share in shares.values()):
        described += AGAIN
    if throttled:
        return "throttled", "heat or hardware held the clock down" + (f"; {described}" if described else "")
    known = _stall(row)
    stall, exchange = known or 0.0, _number(row, "communication_share") or 0.0
    hindrances: dict[Word, float] = {"input": stall, "communication": exchange * (1 - stall)}
    waits = [f"waits for data {stall:.0%} of the step"] if known is not None else []
    if _number(row, "communication_share") is not None:
        waits.append(f"waits for other processes {hindrances['communication']:.0%}")
    evidence = "; ".join([*waits, described] if described else waits)
    worst, next_worst = sorted(hindrances, key=lambda word: -hindrances[word])
    if hindrances[worst] >= HINDERED:
        clear = hindrances[worst] >= CLEAR_LEAD * hindrances[next_worst]
        return (worst if clear else "unknown"), evidence
    if _impossible(shares):
        return "unknown", evidence
    ordered = sorted(shares, key=lambda name: -shares[name].value)
    if not ordered:
        waits = waits or ["no data stall in the row"]
        return "unknown", "; ".join([*waits, _missing(row)])
    top = shares[ordered[0]]
    rest = max((shares[name].value for name in ordered[1:]), default=0.0)
    if top.value >= BUSY[top.of] and top.value >= CLEAR_LEAD * rest:
        return ordered[0], evidence
    why = "no limit stands out" if top.value >= BUSY[top.of] else "none of them fills half of the step"
    return "unknown", f"{evidence}: {why}"


def _stall(row: Mapping[str, Any]) -> float | None:
    """Share of a step that waits for data; None where the row does not tell.

    On a CPU nothing is queued, so the loop's own wait for its loader is all of it. It comes from the same laps as the
    step, while the resident laps come later, when a machine that others use may have another pace.
    """
    column = "loader_wait" if row.get("device") == "cpu" else "data_stall"
    share = _number(row, column)
    return None if share is None else max(0.0, share)


def _missing(row: Mapping[str, Any]) -> str:
    """What to do where no limit of the device can be held against the step."""
    if _number(row, "bytes_per_sample") is None and _number(row, "flops_per_sample") is None:
        return "its work was not counted"
    if _number(row, "resident_samples_per_second") is None:
        return "no step was timed on a batch that lies on the device"
    return "no peak of this device is known: `gpubench peak`, then measure again"


@dataclass(frozen=True)
class Share:
    """The share of a resident step's time that one limit accounts for."""

    value: float
    of: Literal["measured", "listed"]
    at_most: bool = False
    """Whether the model behind it is an upper bound."""

    @property
    def text(self) -> str:
        """As evidence."""
        value = f"at most {min(self.value, 1.0):.0%}" if self.at_most else f"{self.value:.0%}"
        return f"{value} of the listed peak" if self.of == "listed" else value


def busy_shares(row: Mapping[str, Any]) -> dict[Word, Share]:
    """For each limit of the device that the row has figures for: seconds a step takes at it / seconds it takes.

    Compute and memory are the two lines of a roofline (Williams, Waterman and Patterson 2009). The bytes are those
    of a model without fusion and caches, so theirs is an upper bound.
    """
    rate = _number(row, "resident_samples_per_second")
    if not rate:
        return {}
    # Without its loader a step takes no longer. Where it did, others had the machine meanwhile.
    rate = max(rate, _number(row, "samples_per_second") or 0.0)
    own_rate = rate / (_number(row, "processes") or 1.0)
    rate /= peaks_used(row)
    card = listed_peaks.find(str(row["card"]), _number(row, "card_memory_bytes"))
    shares: dict[Word, Share] = {}
    flops, moved = _number(row, "flops_per_sample"), _number(row, "bytes_per_sample")
    peak, bandwidth = _number(row, "measured_peak_flops"), _number(row, "measured_bandwidth_bytes_per_second")
    listed = card.peak(str(row["precision"])) if card else None
    if flops and (peak or listed):
        shares["compute"] = Share(flops * rate / (peak or listed or 1.0), "measured" if peak else "listed")
    if moved and (bandwidth or card):
        limit = bandwidth or (card.bytes_per_second if card else 1.0)
        shares["memory"] = Share(moved * rate / limit, "measured" if bandwidth else "listed", at_most=True)
    calls, each = _number(row, "ops_per_step"), _number(row, "op_overhead_seconds")
    samples = _number(row, "step_samples")
    if calls and each and samples:
        shares["launch"] = Share(calls * each * own_rate / samples, "measured")
    return shares


def _impossible(shares: Mapping[Word, Share]) -> bool:
    # What a call takes was measured on calls of one kind; a step of cheaper ones makes more of them, and is no wonder.
    limits = [share for name, share in shares.items() if name != "launch"]
    return any(share.value > IMPOSSIBLE and not share.at_most for share in limits)


def why_not_faster(mixed: Mapping[str, Any], fp32: Mapping[str, Any], bound: Bound) -> str:
    """Which of the known reasons keeps a mixed precision from being faster than fp32, in words; empty for none.

    `mixed` and `fp32` are the two cases' columns, `bound` what bounds the mixed one.
    """
    reasons = []
    card = listed_peaks.find(str(mixed["card"]), _number(mixed, "card_memory_bytes"))
    if card and not card.tensor_cores:
        reasons.append(f"the {card.name} has no tensor cores")
    else:
        reached = [_number(row, "measured_peak_flops") for row in (mixed, fp32)]
        believed = not any(_impossible(busy_shares(row)) for row in (mixed, fp32))
        if believed and reached[0] and reached[1] and reached[0] / reached[1] < FASTER_PRODUCTS:
            reasons.append(f"matrix products reach only {reached[0] / reached[1]:.2f} times fp32's rate here")
    if (_number(mixed, "odd_flops_share") or 0.0) >= ODD_SHAPES:
        share = _number(mixed, "odd_flops_share")
        reasons.append(f"{share:.0%} of the FLOPs are in products whose sizes are no multiples of 8")
    in_words = {
        "input": "input-bound",
        "launch": "launch-bound",
        "memory": "memory-bound",
        "communication": "communication-bound",
        "throttled": "throttled",
    }
    if bound.word in in_words:
        reasons.append(f"{in_words[bound.word]} ({bound.evidence})")
    return "; ".join(reasons)


def _number(row: Mapping[str, Any], column: str) -> float | None:
    value = row.get(column)
    return None if value is None or value != value else float(value)
