"""Checks one row: required cells, cells that contradict each other, limits of its card (FLOP/s), date and precision."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources

from gpubench.rows.column import DIGITS
from gpubench.rows.lines import number_of
from gpubench.rows.params import params_of
from gpubench.rows.row import QUALITIES
from gpubench.studies import listed_peaks
from gpubench.studies.bound import IMPOSSIBLE, peaks_used
from gpubench.submit.submitted import Problem, SubmittedRow, shown_cell
from gpubench.suite import files
from gpubench.suite.precisions import FLOAT32, PRECISIONS
from gpubench.suite.suite import Suite

RELEASED = frozenset(
    re.findall(r"^[0-9a-f]{64}$", (resources.files("gpubench.submit") / "released_suites.txt").read_text(), re.M)
)
"""Digests of the built-in suites of earlier releases."""
FIRST_RUN = datetime(2026, 11, 20, tzinfo=UTC)
"""Date of the first row that gpubench wrote."""
SAME_PEAK = 1.1
"""Maximum ratio of a training's FLOP/s to the measured peak. Above 1, because the peak was measured at another time."""
EMULATED = 10.0
"""The same ratio for fp16 on a CPU, which emulates fp16: convolutions were 4.4 times as fast as the peak's matmuls."""
MEMORY_SLACK = 1.05
"""Maximum ratio of used memory to the card's memory, which tools count in different ways."""
ROUNDED = 10.0 ** (1 - DIGITS)
"""Largest relative difference between equal figures that were rounded to DIGITS digits."""
REQUIRED = (
    "seconds", "measured", "train_seconds", "valid_seconds", "epochs", "samples", "steady", "setup_seconds",
    "startup_seconds", "laps", "precision_error", "precision_proof", "peak_memory_bytes", "processes", "mode", "trial",
    "seed", "card_memory_bytes", "suite_digest", "suite_version", "threads", "cpu_count", "batch_size", "batch_policy",
)  # fmt: skip
"""Columns that no row of a finished training may leave empty."""
COUNTED = ("step_samples", "bytes_per_sample", "ops_per_step")
"""Columns that no row of a finished training without torch.compile may leave empty."""
HOST = ("container", "load_average", "host_reference_seconds")
"""Columns about the host that may not be empty either. Files of an older gpubench may lack these columns."""
MODES = ("sampled", "full", "quick")


def problems(row: SubmittedRow) -> Iterator[Problem]:
    """Return the problems of one row of a training that gpubench ran."""
    if not row.known("torch") and not row.known("precision_proof"):
        yield row.problem("torch", "rows of a suite without torch are not accepted: they have no proof of precision")
        return
    checks = _check_required, _check_suite, _check_goal, _check_times, _check_date, _check_card, _check_work
    for check in (*checks, _check_precision):
        yield from check(row)


def _check_required(row: SubmittedRow) -> Iterator[Problem]:
    """Yield required cells that are empty, laps that are no list, unknown modes, and a quality without `data`."""
    compiled = "compile=true" in row.text("params")
    for name in (*REQUIRED, *HOST, *(() if compiled else COUNTED)):
        if not row.known(name) and (name in REQUIRED or row.has(name)):
            yield row.problem(name, "a required column")
    if row.known("laps") and not row.laps:
        yield row.problem("laps", "not a list of laps")
    if row.text("mode") not in MODES:
        yield row.problem("mode", f"must be one of {', '.join(MODES)}")
    if not row.known("data") and any(row.known(name) for name in QUALITIES):
        yield row.problem("data", "empty, but the row has a quality")


def _check_suite(row: SubmittedRow) -> Iterator[Problem]:
    """Check that the suite was released and has this model, and that the row has the suite's quality."""
    name, digest = row.text("suite"), row.text("suite_digest")
    built_in, suite = files.built_in(name), suite_of(row)
    if built_in and digest not in {built_in.digest, *RELEASED}:
        yield row.problem(
            "suite_digest", f"no release of gpubench has this version of {name}; give a changed suite another name"
        )
    if suite is None:
        return
    if row.text("model") not in suite.models:
        yield row.problem("model", f"{name} has {', '.join(suite.models)}")
    if row.learns and suite.quality in QUALITIES and not row.known(suite.quality):
        yield row.problem(suite.quality, f"{name} must have it after every full run on real data")


def suite_of(row: SubmittedRow) -> Suite | None:
    """Return the suite of the row; None if this gpubench has no suite with that name and digest."""
    loaded = files.built_in(row.text("suite"))
    return loaded.suite if loaded and loaded.digest == row.text("suite_digest") else None


def _check_goal(row: SubmittedRow) -> Iterator[Problem]:
    """Check that the status agrees with the quality, the goal and the reason."""
    passed = row.text("status") == "ok"
    share = row.number("success_rate")
    if share == (0 if passed else 1):
        yield row.problem("status", f"success_rate is {share:g}")
    if passed and "and the goal is" in row.text("reason"):
        yield row.problem("status", f"reason is: {shown_cell(row.text('reason'))}")
    suite = suite_of(row)
    if suite is None or not suite.quality or not row.learns or not row.known(suite.quality) or share == 1:
        return
    goal = suite.goal
    if isinstance(goal, str):
        goal = number_of(params_of(row.text("params")).get(goal, "0"))
    if goal and passed != suite.reaches(row.number(suite.quality), goal, ROUNDED):
        yield row.problem("status", f"{suite.quality} is {row.number(suite.quality):g}, and the goal is {goal:g}")


def _check_times(row: SubmittedRow) -> Iterator[Problem]:
    """Check that seconds and rates agree with each other."""
    seconds, train, valid = map(row.number, ("seconds", "train_seconds", "valid_seconds"))
    if train + valid > seconds + 2 * ROUNDED * max(train, valid):
        yield row.problem("seconds", f"training and validation alone take {shown_cell(train + valid)} s")
    low, high = row.number("seconds_low"), row.number("seconds_high")
    if row.text("measured") not in {"measured", "projected"}:
        yield row.problem("measured", "must be `measured` or `projected`")
    if math.isnan(low) != math.isnan(high):
        yield row.problem("seconds_low", "seconds_low and seconds_high must both be set or both be empty")
    elif row.text("measured") == "measured" and not math.isnan(low):
        yield row.problem("seconds_low", "a measured time has no interval")
    elif low > seconds or high < seconds:
        yield row.problem("seconds", f"its interval is {shown_cell(low)} to {shown_cell(high)} s")
    stall, rate, resident = map(row.number, ("data_stall", "samples_per_second", "resident_samples_per_second"))
    if resident > 0 and abs(1 - rate / resident - stall) > 3 * ROUNDED * (1 + rate / resident):
        yield row.problem("data_stall", f"the two rates give {shown_cell(1 - rate / resident)}")


def _check_date(row: SubmittedRow) -> Iterator[Problem]:
    """Check that the trial started after FIRST_RUN, and not in the future."""
    try:
        started = datetime.fromisoformat(row.text("started"))
    except ValueError:
        started = datetime.min
    if started.tzinfo is None:
        yield row.problem("started", "must be a time in UTC, ISO 8601")
    elif started > datetime.now(UTC) + timedelta(days=1):  # the clocks of two computers differ
        yield row.problem("started", "in the future")
    elif started < FIRST_RUN:
        yield row.problem("started", f"before the first run of gpubench ({FIRST_RUN:%Y-%m})")


def _check_card(row: SubmittedRow) -> Iterator[Problem]:
    """Check that the card agrees with the device and the memory."""
    card, cpu = row.text("card"), row.text("cpu")
    if not row.accelerator and card != cpu:
        yield row.problem("card", f"the device is the CPU {shown_cell(cpu)}")
    elif row.text("device").startswith("cuda") and card == cpu:
        yield row.problem("card", f"the device is {row.text('device')}, not a CPU")
    memory = row.number("card_memory_bytes")
    for name in ("peak_memory_bytes", "device_memory_bytes"):
        if row.number(name) > memory * MEMORY_SLACK:
            yield row.problem(name, f"the card has {shown_cell(memory)}")
    named = re.search(r"(?<!\d)(\d{1,4}) ?GB\b", card)
    if named and row.accelerator and memory > int(named[1]) * 1.1e9:
        yield row.problem("card_memory_bytes", f"the card's name has {named[0]}")


def _check_work(row: SubmittedRow) -> Iterator[Problem]:
    """Check that FLOP/s and bytes/s are below the peaks of the card."""
    rate = row.number("samples_per_second")
    if row.text("resumed"):  # the counted step may be of a later stage, with more FLOPs per sample
        rate = math.nan
    flops = row.number("flops_per_sample") * rate / peaks_used(row.cells)
    peak, moved = row.number("measured_peak_flops"), row.number("measured_bandwidth_bytes_per_second")
    emulated = not row.accelerator and row.text("precision").startswith("fp16")
    done = f"that is {shown_cell(flops)} FLOP/s, and"
    if flops > peak * (EMULATED if emulated else SAME_PEAK):
        yield row.problem("samples_per_second", f"{done} the peak measured on the card is {shown_cell(peak)}")
    card = listed_peaks.find(row.text("card"), row.number("card_memory_bytes"))
    if card is None:
        return
    listed = card.peak(row.text("precision")) or math.inf
    if flops > listed * IMPOSSIBLE:
        yield row.problem("samples_per_second", f"{done} {card.name} is specified for {shown_cell(listed)}")
    if peak > listed * IMPOSSIBLE:
        yield row.problem("measured_peak_flops", f"the specified peak of {card.name} is {shown_cell(listed)}")
    if moved > card.bytes_per_second * IMPOSSIBLE:
        yield row.problem(
            "measured_bandwidth_bytes_per_second", f"{card.name} is specified for {shown_cell(card.bytes_per_second)}"
        )


def _check_precision(row: SubmittedRow) -> Iterator[Problem]:
    """Check that the errors and dtypes in the proof are those of the row's precision."""
    precision, proof = PRECISIONS.get(row.text("precision")), row.text("precision_proof")
    if precision is None or (precision.tf32 and not row.accelerator):
        names = [name for name, choice in PRECISIONS.items() if row.accelerator or not choice.tf32]
        yield row.problem("precision", f"must be one of {', '.join(names)}")
        return
    low, high = precision.probe_errors
    error, probe = row.number("precision_error"), proof.partition(";")[0]
    errors = [float(number) for number in re.findall(r"\d(?:\.\d+)?e[+-]\d+", probe)]
    low = 0.0 if precision.tf32 and error < low else low
    if not errors or abs(error - max(errors)) > 0.06 * error:
        yield row.problem("precision_error", f"the proof has {shown_cell(probe)}")
    elif not low <= min(error, *errors) <= error <= high:
        yield row.problem("precision", f"the proof's errors, up to {shown_cell(error)}, are of another precision")
    parts = {part.partition(" ")[0]: part for part in proof.split("; ")}
    operands, weights = parts.get("operands", ""), parts.get("weights", "")
    wanted = precision.autocast or precision.weights
    seen: Counter[tuple[str, bool]] = Counter()
    for family, dtype, count in re.findall(r"\b(\w+) (b?float\d+) x(\d{1,9})", operands):
        seen[family, dtype == wanted] += int(count)
    others = 0 if wanted == FLOAT32 else 1
    families = {family for family, _ in seen}
    enough = [seen[family, True] > others * seen[family, False] for family in families]
    narrow = set(re.findall(r"matmul (float8_\w+|int8) x[1-9]", operands))
    right_operands = families and all(enough) and (others or not any(seen[family, False] for family in families))
    right_linears = bool(narrow) == bool(precision.linears) and narrow <= set(precision.linears)
    if not (right_operands and right_linears):
        yield row.problem("precision", f"the proof has `{shown_cell(operands or proof)}`")
    dtypes = re.findall(r"model (b?float\d+) x", weights)
    if set(dtypes or [FLOAT32]) != {precision.weights}:
        yield row.problem("precision", f"the proof has `{shown_cell(weights or proof)}`")
