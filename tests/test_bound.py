"""The bottleneck of a case, on constructed rows and on suites with a bottleneck on purpose."""

import json
import math
import re
from pathlib import Path

import pytest
from facts import lacking
from rows import row
from typer.testing import CliRunner

from gpubench.cli.app import app
from gpubench.rows.read import load
from gpubench.rows.write import append
from gpubench.runner import measured_peaks
from gpubench.studies.bound import bound_of, why_not_faster

SUITES = Path(__file__).parent / "suites"
BUSY = {
    "card": "some CPU", "card_memory_bytes": 8e9, "precision": "fp32", "processes": 1,
    "samples_per_second": 1000.0, "resident_samples_per_second": 1000.0, "data_stall": 0.0, "step_samples": 10,
    "flops_per_sample": 8e8, "bytes_per_sample": 1e6, "ops_per_step": 100, "run_samples": 50_000,
    "measured_peak_flops": 1e12, "measured_bandwidth_bytes_per_second": 1e10, "op_overhead_seconds": 5e-6,
}  # fmt: skip
"""80% of the time computing, 10% moving bytes, 5% launching."""
NOT_MEASURED = {"measured_peak_flops": math.nan, "measured_bandwidth_bytes_per_second": math.nan}
EIGHT_BITS = {"precision": "float8", "low_flops_share": 0.6, "params": "compile=false epochs=1"}


def changed(**columns):
    return BUSY | columns


@pytest.mark.parametrize(
    ("bottleneck", "columns"),
    [
        ("compute", {}),
        ("memory", {"bytes_per_sample": 2e7}),
        ("launch", {"flops_per_sample": 1e7, "ops_per_step": 2000}),
        ("launch", {"flops_per_sample": 1e7, "ops_per_step": 3280}),  # of cheap calls: 164% of the step
        ("compute", {"card": "A100-SXM4-80GB", "precision": "bf16", "flops_per_sample": 3.6e11} | NOT_MEASURED),
        ("input", {"data_stall": 0.3}),
        ("communication", {"communication_share": 0.3}),
        ("unknown", {"data_stall": 0.3, "communication_share": 0.4}),
        ("unknown", {"flops_per_sample": 3e8}),
        ("unknown", {"bytes_per_sample": 7e6}),
        ("unknown", NOT_MEASURED),
        ("unknown", {name: math.nan for name in BUSY if name not in {"card", "precision"}}),
    ],
)
def test_the_bottleneck(bottleneck, columns):
    result = bound_of(changed(**columns))
    assert (result.bottleneck, "measured peak is too low" in result.evidence) == (bottleneck, False)
    assert all(float(share) <= 100 for share in [*re.findall(r"(\d+)%", result.evidence), 100 * (result.share or 0)])


def test_waiting_for_data_and_throttling_come_first():
    result = bound_of(changed(device="cpu", data_stall=0.6, loader_wait=0.01), throttled=False)
    assert result.bottleneck != "input"
    assert "waits for data 1%" in result.evidence
    assert bound_of(changed(device="cpu", data_stall=-0.2, loader_wait=0.4), throttled=False).bottleneck == "input"
    assert "waits" not in bound_of(changed(device="cpu", data_stall=0.3), throttled=False).evidence
    result = bound_of(changed(data_stall=0.9), throttled=True)
    assert result.bottleneck == "throttling"
    assert "compute 80%" in result.evidence


def test_the_evidence_names_every_share_of_the_whole_pipeline():
    text = bound_of(BUSY).evidence
    assert lacking(text, "data", "0%", "compute 80%", "memory", "10%", "launch 5%") == []
    result = bound_of(changed(samples_per_second=500.0, data_stall=0.5))
    assert result.mfu == pytest.approx(0.4)
    assert result.peak == "measured"
    assert result.limit_seconds == pytest.approx(8e8 * 50_000 / 1e12)


def test_the_listed_peak_comes_first_and_without_any_peak_there_is_no_limit():
    row = changed(card="NVIDIA A100-SXM4-80GB", precision="bf16", measured_peak_flops=math.nan)
    result = bound_of(row | {"flops_per_sample": 1.4e11, "op_overhead_seconds": math.nan})
    assert (result.peak, result.bottleneck) == ("listed", "compute")
    assert result.mfu == pytest.approx(1.4e14 / 311.9e12, rel=0.01)
    assert "of the listed peak" in result.evidence
    result = bound_of(changed(measured_peak_flops=math.nan))
    assert (result.peak, result.mfu, result.limit_seconds) == ("unknown", None, None)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (NOT_MEASURED, "`gpubench peak`"),
        ({name: math.nan for name in BUSY if name not in {"card", "precision"}}, "FLOPs and bytes were not counted"),
    ],
)
def test_what_is_missing_is_named(columns, words):
    result = bound_of(changed(**columns | {"op_overhead_seconds": math.nan}))
    assert result.bottleneck == "unknown"
    assert words in result.evidence


def test_a_peak_that_is_exceeded_must_be_measured_again_or_is_ignored():
    result = bound_of(changed(measured_peak_flops=6e11))
    assert result.bottleneck == "compute"
    assert lacking(result.evidence, "compute 100%", "run `gpubench peak` again") == []
    row = changed(measured_peak_flops=2.9e10)  # other programs computed while it was measured
    result = bound_of(row)
    assert (result.bottleneck, result.mfu, result.limit_seconds) == ("unknown", None, None)
    assert "run `gpubench peak` again" in result.evidence
    assert "matrix products" not in why_not_faster(row, row, result)
    # The resident steps, later, ran on a busy machine.
    result = bound_of(changed(measured_peak_flops=7.5e11, resident_samples_per_second=500.0))
    assert (result.mfu > 1.05, result.evidence.count("run `gpubench peak` again")) == (True, 1)


def test_processes_share_the_work_and_those_of_a_cpu_its_peak():
    group = {"processes": 2, "device": "cpu", "samples_per_second": 1000.0, "resident_samples_per_second": 1000.0}
    assert bound_of(changed(**group)).mfu == bound_of(changed()).mfu
    assert bound_of(changed(**group)).limit_seconds == bound_of(changed()).limit_seconds
    # Its peak is then that of one thread, and each process has one.
    chosen = bound_of(changed(**group, threads_asked="1"))
    assert chosen.mfu == bound_of(changed()).mfu / 2
    both = bound_of(changed(processes=2, samples_per_second=2000.0, resident_samples_per_second=2000.0))
    assert (both.mfu, both.limit_seconds) == (pytest.approx(0.8), pytest.approx(20.0))
    assert both.bottleneck == "compute"


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        ("the GeForce GTX 1080 Ti has no tensor cores", {"card": "NVIDIA GeForce GTX 1080 Ti"}),
        ("matrix products reach only 1.10 times", {"measured_peak_flops": 1.1e12}),
        ("60% of the FLOPs are in products with sizes that are not multiples of 8", {"odd_flops_share": 0.6}),
        ("input-bound (waits for data 40%", {"data_stall": 0.4}),
        ("launch-bound", {"flops_per_sample": 1e7, "ops_per_step": 2000}),
        ("memory-bound", {"bytes_per_sample": 2e7}),
        ("only 60% of the FLOPs are in 8 bits; without compile=true", EIGHT_BITS),
    ],
)
def test_why_a_mixed_precision_is_not_faster(words, columns):
    mixed = changed(precision="fp16", measured_peak_flops=2e12, flops_per_sample=4e8) | columns
    assert words in why_not_faster(mixed, BUSY, bound_of(mixed))


def test_no_reason_where_none_is_known_and_bottlenecks_alone_are_an_answer_to_those_who_ask(tmp_path):
    mixed = changed(precision="fp16", measured_peak_flops=2e12, flops_per_sample=3e8)
    assert why_not_faster(mixed, BUSY, bound_of(mixed)) == ""
    path = tmp_path / "a.csv"
    append(path, [row(**changed(card_memory_bytes=8 * 10**9))])
    codes = [CliRunner().invoke(app, ["compare", str(path), *only]).exit_code for only in ([], ["--only", "roofline"])]
    assert codes == [3, 0]


EXPECTED = {**{model: model for model in ("input", "launch", "compute", "memory")}, "ambiguous": "unknown"}


@pytest.mark.alone  # beside other programs no peak is kept
def test_constructed_suites_have_their_bottlenecks(cli_process, tmp_path):
    """Real runs: a sleeping loader, 50,000 tiny calls, matrix products, a streaming add, a mixture.

    On a machine that is busy with other things one short trial can be off; then the medians of three decide, if the
    rows do not say themselves that they are worth nothing.
    """
    peak = cli_process("peak", "--device", "cpu", "--precision", "fp32")
    assert peak.returncode == 0, peak.stderr
    assert "peak: unknown" in peak.stdout
    if measured_peaks.cache_file().exists():
        (kept,) = json.loads(measured_peaks.cache_file().read_text()).values()
        assert kept["flops_per_second"] > 1e8
        assert kept["bytes_per_second"] > 1e8
        assert 1e-8 < kept["op_seconds"] < 1e-2
    bounds = _bounds(cli_process, tmp_path, repeats=1)
    if _bottlenecks(bounds) != EXPECTED:
        bounds = _bounds(cli_process, tmp_path, repeats=3)
        shared = load([tmp_path / "a.csv"]).frame["marks"].str.contains("shared").any()
        if _bottlenecks(bounds) != EXPECTED and shared:
            pytest.skip("others compute on this machine, as the rows say; run it again when it is quiet")
    assert _bottlenecks(bounds) == EXPECTED, "\n".join(
        f"{model}: {result.evidence}" for model, result in bounds.items()
    )
    shown = cli_process("compare", "--only", "roofline", "a.csv")
    assert re.search(r"at most \d+%", shown.stdout), shown.stdout


def _bottlenecks(bounds):
    return {model: result.bottleneck for model, result in bounds.items()}


def _bounds(cli_process, tmp_path, repeats):
    """Return the bottleneck of each model, by the medians of `repeats` more trials."""
    options = ["--device", "cpu", "--precision", "fp32", "--quick", "--repeats", repeats, "--out", "a.csv"]
    done = cli_process("run", "--suite", SUITES / "bounded.py", *options)
    assert done.returncode == 0, done.stderr
    frame = load([tmp_path / "a.csv"]).frame
    numbers = frame.groupby("model").median(numeric_only=True)
    first = frame.drop_duplicates("model").set_index("model")[["card", "precision"]]
    named = numbers.join(first).to_dict("index")
    return {model: bound_of(row) for model, row in named.items()}
