"""What the probes of a batch search answer becomes a batch, or a refusal with the right status."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from facts import lacking

from gpubench.hardware.environment import Device
from gpubench.runner.batches import MOST, CaseBatches, cap_of, capacity_of, confirm, fit_batch, try_fp16
from gpubench.suite.files import LoadedSuite, find
from gpubench.suite.suite import Suite
from gpubench.suite.trial import Case, Measurement, Trial

CARD = Device("cuda:0", "cuda", "Card", 10**10, "8.6", "1", "aa", {})
CASE = Case(
    suite="demo", suite_version=1, suite_digest="d", suite_path="demo.py", model="m", precision="fp32",
    device="cuda:0", params={}, batch_policy="max", batch_size=None, mode="sampled", data="toy",
)  # fmt: skip


def search(answer, cap=MOST):
    """Search on a device that answers `answer(batch, mode)`, then take the first trial. The case, and what was said."""
    lines = []

    def measure(trial):
        return answer(trial.case.batch_size, trial.case.mode)

    case = fit_batch(CASE, CARD, cap, measure, lines.append)
    if not case.refusal:
        case = confirm(Trial(case, 0, 42), measure, lines.append)[0].case
    return case, lines


def batches(measure, known=lambda case: None, samples=2000, card=CARD):
    session = SimpleNamespace(suites={"demo": suite_of(samples)}, devices={"cuda:0": card})
    return CaseBatches(session, SimpleNamespace(batch_of=known), measure, lambda line: None)


def found_by(batches, case):
    """The case of its first trial, once its batch is known."""
    trial = batches.ready(Trial(case, 0, 42))
    return trial and trial.case


def fits(batch):
    return Measurement(status="ok", samples_per_second=100.0, peak_memory_bytes=batch * 10**6)


def test_a_crash_above_a_batch_that_fitted_is_too_large():
    crash = Measurement(status="failed", reason="ended by SIGSEGV")
    case, _ = search(lambda batch, mode: fits(batch) if batch <= 100 else crash)
    assert case.batch_size == 96
    assert not case.refusal


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (Measurement(status="failed", error="RuntimeError", reason="RuntimeError: no kernel"), True),
        (Measurement(status="failed", error="NotImplementedError", reason="NotImplementedError: no kernel"), True),
        (Measurement(status="failed", error="ValueError", reason="ValueError: RuntimeError: not torch's"), False),
        (Measurement(status="ok"), False),
    ],
)
def test_a_model_that_torch_cannot_compute_in_fp16_on_a_cpu_is_refused(answer, refused):
    asked = replace(CASE, device="cpu", precision="fp16", batch_size=8)
    found = try_fp16(asked, suite_of(100).suite, lambda trial: answer)
    assert found.refusal.endswith(answer.reason) if refused else found.refusal == ""


@pytest.mark.parametrize("cap", [1, MOST])
@pytest.mark.parametrize("status", ["failed", "timed_out", "out_of_memory"])
def test_a_search_that_finds_nothing_ends_as_its_last_probe(status, cap):
    case, _ = search(lambda batch, mode: Measurement(status=status, reason="the reason"), cap)
    assert case.refusal_status == status
    assert case.refusal.endswith("the reason")


@pytest.mark.parametrize(("cap", "most", "batch"), [(64, 60, 56), (2000, 1340, 1224)])
def test_a_confirmed_batch_may_be_smaller(cap, most, batch):
    full = Measurement(status="out_of_memory", reason="full")
    case, lines = search(lambda batch, mode: full if mode == "sampled" and batch > most else fits(batch), cap=cap)
    assert (case.batch_size, case.batch_capped) == (batch, False)
    assert lacking(lines[-1], "batch", "out_of_memory", "full") == []


PRECISION_FAILED = Measurement(status="failed", reason="PrecisionError: asked for fp16, which looks like fp32")


def test_a_precision_is_proved_by_the_first_probe_or_ends_the_search():
    asked = []

    def measure(trial):
        asked.append(trial.case.batch_size)
        return PRECISION_FAILED if trial.prove else fits(trial.case.batch_size)

    case = fit_batch(CASE, CARD, MOST, measure, lambda line: None)
    assert asked == [8]
    assert (case.refusal_status, "PrecisionError" in case.refusal) == ("failed", True)
    proved = []

    def measure(trial):
        if trial.case.mode == "probe" and trial.prove:
            proved.append(trial.case.batch_size)
        return fits(trial.case.batch_size)

    fit_batch(CASE, CARD, 64, measure, lambda line: None)
    assert proved == [8]


@pytest.mark.parametrize(
    ("answer", "trials"),
    [
        (Measurement(status="out_of_memory"), 9),
        (Measurement(status="failed", fault="crashed", reason="SIGSEGV"), 9),
        (PRECISION_FAILED, 1),
    ],
)
def test_memory_and_crashes_lead_to_eight_smaller_batches_and_other_errors_to_none(answer, trials):
    case, lines = search(lambda batch, mode: answer if mode == "sampled" else fits(batch), cap=2000)
    assert len([line for line in lines if "not confirmed" in line]) == trials
    assert lacking(lines[-1], answer.status, answer.reason) == []
    assert case.refusal_status == answer.status
    assert case.batch_curve


@pytest.mark.parametrize(("kind", "share"), [("cuda", 0.97), ("cpu", 0.92)])
def test_probes_leave_more_free_where_memory_differs_from_process_to_process(kind, share):
    seen = {}

    def measure(trial):
        seen.setdefault(trial.case.mode, set()).add(trial.case.memory_limit_bytes)
        return fits(trial.case.batch_size)

    case = replace(CASE, device=kind, memory_limit_bytes=10**9)
    found = fit_batch(case, replace(CARD, kind=kind), 64, measure, lambda line: None)
    assert seen == {"probe": {int(share * 10**9)}}
    assert found.memory_limit_bytes == 10**9


def suite_of(samples):
    return LoadedSuite("demo", Path("demo.py"), Suite(print, ("m",), {}, 1, train_samples=samples))


def test_no_tensor_passes_the_indices_of_32_bits():
    """Of 64 x 112 x 112 numbers an image 2,674 are 2^31; of 64 x 120 x 120 it is 2,330."""
    resnet = find("resnet")
    for image_size, cap in (("224", 2500), ("240", 2330), ("32", 2500)):
        params = resnet.resolve_params({"image_size": image_size}, "resnet18")
        assert cap_of(replace(CASE, params=params), resnet) == cap
    scaling = find("scaling")
    params = scaling.resolve_params({}, "resnet50")
    assert cap_of(replace(CASE, model="resnet50", params=params), scaling) == 2674
    assert cap_of(replace(CASE, model="alexnet-bn", params=params), scaling) == 7133


@pytest.mark.parametrize(("samples", "cap"), [(50_000, 2500), (19, 1), (0, MOST)])
def test_there_is_always_a_cap(samples, cap):
    assert cap_of(CASE, suite_of(samples)) == cap


def test_where_a_search_ends():
    flat = Measurement(status="ok", samples_per_second=100.0, peak_memory_bytes=10**6)
    asked = []
    case = found_by(batches(lambda trial: asked.append(trial) or flat, samples=0), CASE)
    assert (case.batch_size, case.batch_capped) == (MOST, True)
    assert len(asked) < 25

    def answer(batch, mode):
        if batch > 1:
            return Measurement(status="out_of_memory", reason="CUDA out of memory")
        return Measurement(status="failed", reason="ValueError: Expected more than 1 value per channel when training")

    case, _ = search(answer)
    assert case.refusal_status == "out_of_memory"
    assert "more than 1 value per channel" in case.refusal
    assert "CUDA out of memory" in case.refusal


def test_what_was_found_before_an_interruption_is_kept():
    def measure(trial):
        if trial.case.model == "n":
            raise KeyboardInterrupt
        return fits(trial.case.batch_size)

    found, other = batches(measure), replace(CASE, model="n")
    found_by(found, CASE)
    with pytest.raises(KeyboardInterrupt):
        found_by(found, other)
    assert [found.so_far(case).batch_size for case in (CASE, other)] == [96, None]


@pytest.mark.parametrize(("capped", "status"), [(True, "ok"), (False, "goal_missed"), (False, "interrupted")])
def test_a_batch_that_was_found_earlier_is_not_looked_for_again_but_confirmed_if_no_trial_did(capped, status):
    row = {"batch_size": 64.0, "batch_capped": capped, "batch_curve": "[[8,1.5,100]]", "status": status}
    asked = []

    def measure(trial):
        asked.append(trial.batch_size)
        return fits(trial.batch_size) if trial.batch_size < 60 else Measurement(status="out_of_memory")

    found = batches(measure, known=lambda case: pd.Series(row))
    case = found_by(found, CASE)
    assert (case.batch_size, case.batch_capped, case.batch_curve) == (64, capped, ((8, 1.5, 100),))
    assert (asked, found.has_searched) == ([], False)
    trial, measurement = found.measured(Trial(case, 0, 42))
    assert (asked, measurement.status) == (([64, 56], "ok") if status == "interrupted" else ([64], "out_of_memory"))
    assert found.so_far(CASE) == trial.case


FP16 = replace(CASE, precision="fp16")
TWIN = replace(FP16, batch_policy="max-fp32")


@pytest.mark.parametrize(("fp32", "fp16", "twin"), [(136, 152, 136), (160, 152, 160), (136, 136, None), (8, 152, None)])
def test_a_twin_has_the_batch_of_fp32_and_is_dropped_where_both_agree_or_fp32_fails(fp32, fp16, twin):
    """The search finds 160. First trials confirm less, or, after eight smaller batches, none."""
    most = {"fp32": fp32, "fp16": fp16}

    def measure(trial):
        if trial.case.mode == "probe" or trial.batch_size <= most[trial.case.precision]:
            return fits(trial.batch_size)
        return Measurement(status="out_of_memory")

    found = batches(measure, samples=160 * 20)
    assert found_by(found, TWIN) is None  # where fp32 has no batch, an earlier run found that it cannot run
    for case in (CASE, FP16):
        found.measured(found.ready(Trial(case, 0, 42)))
    case = found_by(found, TWIN)
    assert (case and case.batch_size) == twin
    assert case is None or case.batch_capped == (fp32 == 160)


def test_a_quick_run_takes_one_probe_per_precision():
    asked = []

    def measure(trial):
        asked.append((trial.case.precision, trial.case.batch_size))
        size = trial.case.batch_size
        return Measurement(status="ok", samples_per_second=1.0, peak_memory_bytes=10**9 + size * 10**8,
                           resting_memory_bytes=10**9)  # fmt: skip

    found = batches(measure, samples=100_000)
    quick = [replace(case, mode="quick") for case in (CASE, FP16)]
    sizes = [found_by(found, case).batch_size for case in quick]
    assert asked == [("fp32", 8), ("fp16", 8)]
    assert sizes == [72, 72]  # 8 + 0.85 x (9.7 - 1.8) GB / 0.1 GB, down to a multiple of 8


@pytest.mark.parametrize(
    ("limit", "available", "capacity"), [(None, None, 80), (None, 50, 50), (11, None, 11), (11, 50, 11), (60, 50, 50)]
)
def test_the_capacity_of_a_card_is_what_was_free_at_the_start(limit, available, capacity):
    device = Device("cuda:0", "cuda", "A card", 80 << 30, available_bytes=available and available << 30)
    case = replace(CASE, memory_limit_bytes=limit and limit << 30)
    assert capacity_of(case, device) == int((capacity << 30) * 0.97)


def test_a_cap_that_the_suite_cannot_compute_fails_the_case(monkeypatch):
    broken = batches(lambda trial: fits(trial.batch_size))
    monkeypatch.setattr("gpubench.runner.batches.cap_of", lambda case, suite: 1 / 0)
    case = found_by(broken, CASE)
    assert (case.refusal_status, case.batch_size) == ("failed", None)
    assert "ZeroDivisionError" in case.refusal


def test_a_timeout_is_no_full_memory():
    """MIOpen and compilers may search for minutes at each new shape. A batch that fitted before is kept."""
    late = Measurement(status="timed_out", reason="no answer within the time limit")
    tried = []

    def answer(batch, mode):
        tried.append(batch)
        return fits(batch) if batch <= 100 else late

    case, lines = search(answer)
    assert (case.batch_size, case.batch_capped, case.refusal) == (16, True, "")
    assert len([batch for batch in tried if batch > 100]) == 1
    assert lacking(lines[-1], "batch 16", "stopped") == []
    assert [batch for batch, *_ in case.batch_curve] == [8, 16]
    case, _ = search(lambda batch, mode: late)
    assert (case.refusal_status, case.batch_size) == ("timed_out", None)
    assert "batch 8" in case.refusal


@pytest.mark.parametrize(("kind", "slow", "batch"), [("cuda", 30.0, 96), ("cuda", 80.0, 200), ("cpu", 30.0, 200)])
def test_a_batch_far_slower_than_a_smaller_one_uses_memory_beyond_the_cards(kind, slow, batch):
    def measure(trial):
        rate = 100.0 if trial.batch_size <= 100 else slow
        return replace(fits(trial.batch_size), resident_samples_per_second=rate)

    case = replace(CASE, device=kind, memory_limit_bytes=10**9)
    found = fit_batch(case, replace(CARD, kind=kind), 200, measure, lambda line: None)
    assert found.batch_size == batch


def test_under_wsl_probes_leave_a_tenth_free(monkeypatch):
    monkeypatch.setattr("platform.release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    assert capacity_of(CASE, CARD) == 9 * 10**9


@pytest.mark.parametrize(("rocm", "expected"), [(True, ["probe", "sampled", "sampled"]), (False, ["sampled"] * 2)])
def test_on_rocm_the_kernels_of_a_case_are_compiled_before_its_first_trial(rocm, expected):
    modes = []

    def measure(trial):
        modes.append(trial.case.mode)
        return fits(trial.batch_size)

    found = batches(measure, card=replace(CARD, rocm=rocm))
    for index in range(2):
        found.measured(Trial(replace(CASE, batch_policy="fixed", batch_size=8), index, 42))
    assert modes == expected
