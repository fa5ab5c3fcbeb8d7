"""Checks one row: required cells, cells that contradict each other, and the limits of its card, date and precision."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache

from gpubench.rows.column import DIGITS
from gpubench.rows.row import QUALITIES
from gpubench.studies import listed_peaks
from gpubench.studies.bound import IMPOSSIBLE, peaks_used
from gpubench.submit.submitted import Problem, SubmittedRow, shown_cell
from gpubench.suite import files
from gpubench.suite.precisions import FLOAT32, PRECISIONS
from gpubench.suite.suite import Suite

RELEASED = frozenset(
    {
        # 0.1.0, as published
        "b00f22841c3d55cc9eb11a9bd8b57a3f11fe0960511f820c2dcffcbfa67ceff7",
        "e02cb8564f9fc245bd0f27d8332feefdc5bc63d3055ee93627109cb48403f952",
        "555071f2d81fb221c27de1133e7136ddef9a2b52141a1ff422e204a932377746",
        "961ce892ff60d67e3065d06ef5cf7fb0a1bd5a0bc334a7e4f6608c3c280101db",
        "239f356a93caeb3165d0a2215f05239b5b309d6afe1edc290c5c1804a5dc054a",
        "45ea8100b5f999ab48a1029892f8d98b52551b6db31a1441f249f4305ad83cd6",
        "5e72919e15bfd2ee6237933c394a3f5f2a2ba2e138ccd9e3f1bbbd72e7a0cf4f",
        # 0.2.0
        "fa24603cd8c5c8ca261f939f56a6e0bf3271980fdbaf7956bb358144ff63481c",
        "2de22bdca6900fd3c0e72611d175b72b2d5eec58ce5492579458285e14c54f06",
        "df835c6a62edc7d2790887a83c84eff924c0f2216b316182fdc592dea6c94a7f",
        "ee7e6bba53e562851ff69ff76d6c9ed1c40cf17c80986fe311191848f3c295af",
        "1d7881ea6655e2f5ead4b45fd8a3e4fa547365f7e273cd2f473c00840d10a44e",
        "0c15eb0e15ca73649ee1726ac878c2f2d1e78a238b7e305ae1d7c412b2986895",
        "f7854364fb0046b11b6f9d793043564216fd308a3cc67d939a5e68bde4ac077f",
        # between 0.2.0 and 0.3.0, as published
        "25411dfa8cf6b520e95b4effaadcfcefe1fa8e340b56f9b4edd3320850e1a926",
        "8383fe26581944ec96ce42b1a276f56a7fbb573f68ca63bf51ec323274b4604f",
        "b5a72d5da69eb9144df4755985c2554cf62bee94ae71dba6bb7267d9bfe664ac",
        "c3b334c24b890f7d0f2880c1fe23853ace478c186530ef6d1eb59f6607371d43",
        "e2a7e1b0c6a1abf78908100dca00047030c78c29133b61076e25041fe97d9fea",
    }
)
"""Digests of the built-in suites of earlier releases. A release adds those of the release before."""
FIRST_RUN = datetime(2026, 11, 20, tzinfo=UTC)
"""Date of the first row that gpubench wrote."""
CLOCK_ERROR = timedelta(days=1)
"""Largest difference between the clocks of two computers."""
SAME_PEAK = 1.1
"""A training's rate over the measured peak of its device, at most: the peak was measured under another load."""
MEMORY_SLACK = 1.05
"""Memory used over memory of the card, at most: tools count the card's memory in different ways."""
ROUNDED = 10.0 ** (1 - DIGITS)
"""Relative rounding error of two figures of DIGITS digits."""
REQUIRED = (
    "seconds", "measured", "train_seconds", "valid_seconds", "epochs", "samples", "steady", "setup_seconds",
    "startup_seconds", "laps", "precision_error", "precision_proof", "peak_memory_bytes", "processes", "mode", "trial",
    "seed", "card_memory_bytes", "suite_digest", "suite_version", "threads", "cpu_count", "batch_size", "batch_policy",
)  # fmt: skip
"""Columns that every row of a finished training has."""
COUNTED = ("step_samples", "bytes_per_sample", "ops_per_step")
"""The same, of a training that was not compiled."""
HOST = ("container", "load_average", "host_reference_seconds")
"""The same, of the host; files of an older gpubench lack these columns."""
MODES = ("sampled", "full", "quick")


def problems(row: SubmittedRow) -> Iterator[Problem]:
    """The problems of one row of a training that gpubench ran."""
    if not row.known("torch") and not row.known("precision_proof"):
        yield row.problem("torch", "rows of a suite without torch are not accepted: nothing proves their precision")
        return
    yield from _of_required(row)
    yield from _of_suite(row)
    yield from _of_goal(row)
    yield from _of_times(row)
    yield from _of_marks(row)
    yield from _of_date(row)
    yield from _of_card(row)
    yield from _of_work(row)
    yield from _of_precision(row)


def _of_required(row: SubmittedRow) -> Iterator[Problem]:
    """Cells that may not be empty."""
    compiled = "compile=true" in row.text("params")
    for name in (*REQUIRED, *HOST, *(() if compiled else COUNTED)):
        if not row.known(name) and (name in REQUIRED or row.has(name)):
            yield row.problem(name, "a required column")
    if row.known("laps") and not row.laps:
        yield row.problem("laps", "not a list of laps")
    if row.text("mode") not in MODES:
        yield row.problem("mode", f"must be one of {', '.join(MODES)}")
    if row.known("odd_flops_share") and not row.known("flops_per_sample"):
        yield row.problem("flops_per_sample", "odd_flops_share needs it")
    if row.has("run_samples") and row.number("samples") > 0 and not row.known("run_samples"):
        yield row.problem("run_samples", "a training has samples")
    if row.known("measured_peak_flops") and not row.known("op_overhead_seconds"):
        yield row.problem("op_overhead_seconds", "it is measured together with measured_peak_flops")
    if not row.known("data") and any(row.known(name) for name in QUALITIES):
        yield row.problem("data", "a quality needs data")


def _of_suite(row: SubmittedRow) -> Iterator[Problem]:
    """A built-in suite that was never released, a model that it does not have, or a missing quality."""
    name, digest = row.text("suite"), row.text("suite_digest")
    built_in, suite = _built_in(name), suite_of(row)
    if built_in and digest not in {built_in.digest, *RELEASED}:
        yield row.problem("suite_digest", f"no release has such a suite {name}; rename a suite of your own")
    if suite is None:
        return
    if row.text("model") not in suite.models:
        yield row.problem("model", f"{name} has {', '.join(suite.models)}")
    if row.learns and suite.quality in QUALITIES and not row.known(suite.quality):
        yield row.problem(suite.quality, f"{name} has it after every full run on real data")


def suite_of(row: SubmittedRow) -> Suite | None:
    """The suite of the row; None where this gpubench has none of that name and code."""
    loaded = _built_in(row.text("suite"))
    return loaded.suite if loaded and loaded.digest == row.text("suite_digest") else None


@cache
def _built_in(name: str) -> files.LoadedSuite | None:
    return files.find(name) if name in files.built_in_names() else None


def _of_goal(row: SubmittedRow) -> Iterator[Problem]:
    """A status that the quality, the goal or the reason contradicts."""
    passed = row.text("status") == "ok"
    share = row.number("success_rate")
    if share == (0 if passed else 1):
        yield row.problem("status", f"success_rate is {share:g}")
    if passed and "and the goal is" in row.text("reason"):
        yield row.problem("status", f"reason is: {shown_cell(row.text('reason'))}")
    suite = suite_of(row)
    if suite is None or not row.learns or not row.known(suite.quality) or share == 1:
        return
    goal = suite.goal
    if isinstance(goal, str):
        params = dict(param.partition("=")[::2] for param in row.text("params").split())
        goal = float(params.get(goal) or 0)
    if goal and passed != (row.number(suite.quality) >= goal * (1 - ROUNDED)):
        yield row.problem("status", f"{suite.quality} is {row.number(suite.quality):g}, and the goal is {goal:g}")


def _of_times(row: SubmittedRow) -> Iterator[Problem]:
    """Seconds and rates that contradict each other, or that are not above 0."""
    seconds, train, valid = map(row.number, ("seconds", "train_seconds", "valid_seconds"))
    if train + valid > seconds + 2 * ROUNDED * max(train, valid):
        yield row.problem("seconds", f"training and validation alone take {shown_cell(train + valid)} s")
    low, high = row.number("seconds_low"), row.number("seconds_high")
    if row.text("measured") not in {"measured", "projected"}:
        yield row.problem("measured", "must be `measured` or `projected`")
    if math.isnan(low) != math.isnan(high):
        yield row.problem("seconds_low", "a band has two ends")
    elif row.text("measured") == "measured" and not math.isnan(low):
        yield row.problem("seconds_low", "a measured time has no band")
    elif low > seconds or high < seconds:
        yield row.problem("seconds", f"its band is {shown_cell(low)} to {shown_cell(high)} s")
    stall, rate, resident = map(row.number, ("data_stall", "samples_per_second", "resident_samples_per_second"))
    if resident > 0 and abs(1 - rate / resident - stall) > 3 * ROUNDED * (1 + rate / resident):
        yield row.problem("data_stall", f"the two rates give {shown_cell(1 - rate / resident)}")


def _of_marks(row: SubmittedRow) -> Iterator[Problem]:
    """Marks that other columns contradict."""
    marks, load = row.text("marks").split(), row.text("foreign_load")
    follow = {
        "unsteady": row.text("steady").startswith("unsteady"),
        "resumed": bool(row.text("resumed")),
        "shared": "compute" in load or "of the CPUs" in load,
    }
    for mark, present in follow.items():
        if present != (mark in marks) and row.has("marks"):
            yield row.problem("marks", f"other columns give {'' if present else 'not '}{mark}")


def _of_date(row: SubmittedRow) -> Iterator[Problem]:
    started = started_at(row)
    if started is None:
        yield row.problem("started", "must be a time in UTC, ISO 8601")
    elif started > datetime.now(UTC) + CLOCK_ERROR:
        yield row.problem("started", "in the future")
    elif started < FIRST_RUN:
        yield row.problem("started", f"before the first release ({FIRST_RUN:%Y-%m})")


def started_at(row: SubmittedRow) -> datetime | None:
    """The start of the trial; None where the cell is no time with a zone."""
    try:
        found = datetime.fromisoformat(row.text("started"))
    except ValueError:
        return None
    return found if found.tzinfo else None


def _of_card(row: SubmittedRow) -> Iterator[Problem]:
    card, cpu = row.text("card"), row.text("cpu")
    if not row.accelerator and card != cpu:
        yield row.problem("card", f"the device is a CPU, and it is {shown_cell(cpu)}")
    elif row.text("device").startswith("cuda") and card == cpu:
        yield row.problem("card", f"the device is {row.text('device')}, not a CPU")
    own, used = row.number("card_memory_bytes"), row.number("peak_memory_bytes")
    if used > own * MEMORY_SLACK:
        yield row.problem("peak_memory_bytes", f"the card has {shown_cell(own)}")
    if row.number("device_memory_bytes") > own * MEMORY_SLACK:
        yield row.problem("device_memory_bytes", f"the card has {shown_cell(own)}")
    named = re.search(r"(\d+) ?GB\b", card)
    if named and row.accelerator and own > int(named[1]) * 1.1e9:
        yield row.problem("card_memory_bytes", f"the card's name says {named[0]}")


def _of_work(row: SubmittedRow) -> Iterator[Problem]:
    """More FLOP/s or bytes/s than the card can do."""
    rate = row.number("samples_per_second")
    if row.text("resumed"):  # the counted step may be of a later stage, which is heavier than the whole run
        rate = math.nan
    done = row.number("flops_per_sample") * rate / peaks_used(row.cells)
    peak, moved = row.number("measured_peak_flops"), row.number("measured_bandwidth_bytes_per_second")
    if done > peak * SAME_PEAK:
        yield row.problem(
            "samples_per_second",
            f"that is {shown_cell(done)} FLOP/s, and the peak measured on the card is {shown_cell(peak)}",
        )
    card = listed_peaks.find(row.text("card"), row.number("card_memory_bytes"))
    if card is None:
        return
    listed = card.peak(row.text("precision")) or math.inf
    if done > listed * IMPOSSIBLE:
        yield row.problem(
            "samples_per_second",
            f"that is {shown_cell(done)} FLOP/s, and {card.name} is specified for {shown_cell(listed)}",
        )
    if peak > listed * IMPOSSIBLE:
        yield row.problem("measured_peak_flops", f"the specified peak of {card.name} is {shown_cell(listed)}")
    if moved > card.bytes_per_second * IMPOSSIBLE:
        yield row.problem(
            "measured_bandwidth_bytes_per_second", f"{card.name} is specified for {shown_cell(card.bytes_per_second)}"
        )


def _of_precision(row: SubmittedRow) -> Iterator[Problem]:
    """A proof of another precision than the row has."""
    precision, proof = PRECISIONS.get(row.text("precision")), row.text("precision_proof")
    if precision is None or (precision.tf32 and not row.accelerator):
        known = [name for name, known_precision in PRECISIONS.items() if row.accelerator or not known_precision.tf32]
        yield row.problem("precision", f"must be one of {', '.join(known)}")
        return
    low, high = precision.band
    error, probe = row.number("precision_error"), proof.partition(";")[0]
    errors = [float(number) for number in re.findall(r"\d(?:\.\d+)?e[+-]\d+", probe)]
    low = 0.0 if precision.tf32 and error < low else low
    if not errors or abs(error - max(errors)) > 0.06 * error:
        yield row.problem("precision_error", f"the proof has {shown_cell(probe)}")
    elif not low <= min(error, *errors) <= error <= high:
        yield row.problem("precision", f"the proof's errors, up to {shown_cell(error)}, are of another precision")
    wanted = precision.autocast or precision.weights
    seen: Counter[tuple[str, bool]] = Counter()
    for family, dtype, count in re.findall(r"(\w+) (b?float\d+) x(\d+)", _part(proof, "operands")):
        seen[family, dtype == wanted] += int(count)
    families = {family for family, _ in seen}
    enough = [seen[family, True] > (0 if wanted == FLOAT32 else seen[family, False]) for family in families]
    if not families or not all(enough) or (wanted == FLOAT32 and any(seen[family, False] for family in families)):
        yield row.problem("precision", f"the proof has `{shown_cell(_part(proof, 'operands') or proof)}`")
    weights = re.findall(r"model (b?float\d+) x", _part(proof, "weights"))
    if set(weights or [FLOAT32]) != {precision.weights}:
        yield row.problem("precision", f"the proof has `{shown_cell(_part(proof, 'weights') or proof)}`")


def _part(proof: str, name: str) -> str:
    """The part of a proof that begins with this word."""
    return next((part for part in proof.split("; ") if part.startswith(name)), "")
