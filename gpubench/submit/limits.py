"""Whether a row can be: what its card can do and hold, when it ran, and what proves its precision."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache

from gpubench.rows.row import QUALITIES
from gpubench.studies.roofline import listed_peaks
from gpubench.studies.roofline.bound import IMPOSSIBLE, peaks_used
from gpubench.submit.entry import Doubt, Entry, shown
from gpubench.submit.figures import rates
from gpubench.suite import files
from gpubench.suite.precisions import FLOAT32, PRECISIONS
from gpubench.suite.suite import Suite

FIRST_RUN = datetime(2026, 11, 20, tzinfo=UTC)
"""Nothing was measured before gpubench was there."""
ASTRAY = timedelta(days=1)
"""By how much the clocks of two computers may differ."""
SAME_PEAK = 1.1
"""A training may pass the measured peak of its device by so much: the peak was measured under another load."""
GIVEN = (
    "seconds", "measured", "train_seconds", "valid_seconds", "epochs", "samples", "steady", "setup_seconds",
    "startup_seconds", "laps", "precision_error", "precision_proof", "peak_memory_bytes", "processes", "mode", "trial",
    "seed", "card_memory_bytes", "suite_digest", "suite_version", "threads", "cpu_count", "batch_size", "batch_policy",
)  # fmt: skip
"""What every row says that is ok, and of a suite with torch."""
COUNTED = ("step_samples", "bytes_per_sample", "ops_per_step")
"""The same, by the step that is counted."""
HOST = ("container", "load_average", "host_reference_seconds")
"""The same, of the host; older rows have no such columns."""
MODES = ("sampled", "full", "quick")


def doubts(entry: Entry) -> Iterator[Doubt]:
    """What no such card, time or precision allows."""
    if not entry.known("torch") and not entry.known("precision_proof"):
        yield entry.doubt("torch", "rows of a suite without torch are not taken: nothing proves their precision")
        return
    for name in GIVEN:
        if not entry.known(name):
            yield entry.doubt(name, "and every row that is taken says it")
    for name in HOST:
        if entry.has(name) and not entry.known(name):
            yield entry.doubt(name, "and gpubench finds it on every host")
    if entry.text("mode") not in MODES:
        yield entry.doubt("mode", f"and has to be {', '.join(MODES)}")
    if "compile=true" not in entry.text("params"):  # which nobody can count
        for name in COUNTED:
            if entry.has(name) and not entry.known(name):
                yield entry.doubt(name, "and every row says it where nothing was compiled")
    if entry.known("odd_flops_share") and not entry.known("flops_per_sample"):
        yield entry.doubt("flops_per_sample", "and it has a share of them")
    if entry.has("run_samples") and entry.number("samples") > 0 and not entry.known("run_samples"):
        yield entry.doubt("run_samples", "and a training has some")
    if entry.known("measured_peak_flops") and not entry.known("op_overhead_seconds"):
        yield entry.doubt("op_overhead_seconds", "and who measures the one peak measures the other")
    if not entry.known("data") and any(entry.known(name) for name in QUALITIES):
        yield entry.doubt("data", "and nothing is learnt from nothing")
    yield from _of_suite(entry)
    yield from _of_marks(entry)
    yield from _of_date(entry)
    yield from _of_card(entry)
    yield from _of_work(entry)
    yield from _of_precision(entry)


def _of_suite(entry: Entry) -> Iterator[Doubt]:
    """Where a suite of ours has no such model, or would have judged it; nobody knows here what another's has."""
    name, suite = entry.text("suite"), suite_of(entry)
    if suite is None:
        return
    if entry.text("model") not in suite.models:
        yield entry.doubt("model", f"and {name} has {', '.join(suite.models)}")
    teaches = entry.text("mode") == "full" and entry.text("data") != "synthetic" and entry.text("weights") != "random"
    if teaches and suite.quality in QUALITIES and not entry.known(suite.quality):
        yield entry.doubt(suite.quality, f"and {name} gives it after every full run on real data")


def suite_of(entry: Entry) -> Suite | None:
    """The suite that it ran; None where this gpubench has none of that name and code: an older one, or a user's own."""
    loaded = _built_in(entry.text("suite"))
    return loaded.suite if loaded and loaded.digest == entry.text("suite_digest") else None


@cache
def _built_in(name: str) -> files.LoadedSuite | None:
    return files.find(name) if name in files.built_in_names() else None


def _of_marks(entry: Entry) -> Iterator[Doubt]:
    """Where marks are not those that other columns give."""
    marks, load = entry.text("marks").split(), entry.text("foreign_load")
    follow = {
        "unsteady": entry.text("steady").startswith("unsteady"),
        "resumed": bool(entry.text("resumed")),
        "shared": "compute" in load or "of the CPUs" in load,
    }
    for mark, holds in follow.items():
        if holds != (mark in marks) and entry.has("marks"):
            yield entry.doubt("marks", f"{'' if holds else 'not '}{mark} is what other columns say")


def _of_date(entry: Entry) -> Iterator[Doubt]:
    started = started_at(entry)
    if started is None:
        yield entry.doubt("started", "and has to be a time in UTC, ISO 8601")
    elif started > datetime.now(UTC) + ASTRAY:
        yield entry.doubt("started", "which is in the future")
    elif started < FIRST_RUN:
        yield entry.doubt("started", f"which is before gpubench was there ({FIRST_RUN:%Y-%m})")


def started_at(entry: Entry) -> datetime | None:
    """When the trial began; None where the row does not say."""
    try:
        found = datetime.fromisoformat(entry.text("started"))
    except ValueError:
        return None
    return found if found.tzinfo else None


def _of_card(entry: Entry) -> Iterator[Doubt]:
    card, cpu = entry.text("card"), entry.text("cpu")
    if not entry.accelerator and card != cpu:
        yield entry.doubt("card", f"the device is a CPU, and it is {shown(cpu)}")
    elif entry.text("device").startswith("cuda") and card == cpu:
        yield entry.doubt("card", f"the device is {entry.text('device')}, which is no CPU")
    own, used = entry.number("card_memory_bytes"), entry.number("peak_memory_bytes")
    if used > own * 1.05:
        yield entry.doubt("peak_memory_bytes", f"the card has {shown(own)}")
    if entry.number("device_memory_bytes") > own * 1.05:
        yield entry.doubt("device_memory_bytes", f"the card has {shown(own)}")
    named = re.search(r"(\d+) ?GB\b", card)
    if named and entry.accelerator and own > int(named[1]) * 1.1e9:
        yield entry.doubt("card_memory_bytes", f"the card's name says {named[0]}")


def _of_work(entry: Entry) -> Iterator[Doubt]:
    """Where it would compute or move more than the card does."""
    rate = entry.number("samples_per_second")
    if entry.text("resumed"):  # the step that was counted may be of a later stage, which is heavier than the whole run
        rate = min(rate, rates([lap for lap in entry.laps or () if lap.phase == "train" and lap.kind == "timed"])[0])
    done = entry.number("flops_per_sample") * rate / peaks_used(entry.row)
    peak, moved = entry.number("measured_peak_flops"), entry.number("measured_bandwidth_bytes_per_second")
    if done > peak * SAME_PEAK:
        yield entry.doubt(
            "samples_per_second", f"that is {shown(done)} FLOP/s, and the peak measured on the card is {shown(peak)}"
        )
    card = listed_peaks.find(entry.text("card"), entry.number("card_memory_bytes"))
    if card is None:
        return
    listed = card.peak(entry.text("precision")) or math.inf
    if done > listed * IMPOSSIBLE:
        yield entry.doubt(
            "samples_per_second",
            f"that is {shown(done)} FLOP/s, and {card.name} is specified for {shown(listed)}",
        )
    if peak > listed * IMPOSSIBLE:
        yield entry.doubt("measured_peak_flops", f"the specified peak of {card.name} is {shown(listed)}")
    if moved > card.bytes_per_second * IMPOSSIBLE:
        yield entry.doubt(
            "measured_bandwidth_bytes_per_second", f"{card.name} is specified for {shown(card.bytes_per_second)}"
        )


def _of_precision(entry: Entry) -> Iterator[Doubt]:
    """Where the proof is not that of the label."""
    precision, proof = PRECISIONS.get(entry.text("precision")), entry.text("precision_proof")
    if precision is None or (precision.tf32 and not entry.accelerator):
        known = [name for name, each in PRECISIONS.items() if entry.accelerator or not each.tf32]
        yield entry.doubt("precision", f"and has to be {', '.join(known)}")
        return
    low, high = precision.band
    error, probe = entry.number("precision_error"), proof.partition(";")[0]
    errors = [float(each) for each in re.findall(r"\d(?:\.\d+)?e[+-]\d+", probe)]
    low = 0.0 if precision.tf32 and error < low else low
    if not errors or abs(error - max(errors)) > 0.06 * error:
        yield entry.doubt("precision_error", f"the proof says {shown(probe)}")
    elif not low <= min(error, *errors) <= error <= high:
        yield entry.doubt("precision", f"and the proof's errors of up to {shown(error)} are not those of it")
    wanted = precision.autocast or precision.weights
    seen: Counter[tuple[str, bool]] = Counter()
    for family, dtype, count in re.findall(r"(\w+) (b?float\d+) x(\d+)", _part(proof, "operands")):
        seen[family, dtype == wanted] += int(count)
    families = {family for family, _ in seen}
    enough = [seen[each, True] > (0 if wanted == FLOAT32 else seen[each, False]) for each in families]
    if not families or not all(enough) or (wanted == FLOAT32 and any(seen[each, False] for each in families)):
        yield entry.doubt("precision", f"the proof says `{shown(_part(proof, 'operands') or proof)}`")
    weights = re.findall(r"model (b?float\d+) x", _part(proof, "weights"))
    if set(weights or [FLOAT32]) != {precision.weights}:
        yield entry.doubt("precision", f"the proof says `{shown(_part(proof, 'weights') or proof)}`")


def _part(proof: str, name: str) -> str:
    """The part of a proof that begins with this word."""
    return next((part for part in proof.split("; ") if part.startswith(name)), "")
