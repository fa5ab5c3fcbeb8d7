"""What the probes of a batch search answer becomes a batch, or a refusal with the right status."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from gpubench.measuring.environment import Device
from gpubench.measuring.plan import Options
from gpubench.measuring.search import MOST, cap_of, fit_batch, fit_batches
from gpubench.suite import LoadedSuite, Suite
from gpubench.trial import Case, Measurement

CARD = Device("cuda:0", "cuda", "Card", 10**10, "8.6", "1", "aa", {})
CASE = Case(
    suite="demo", suite_version=1, suite_digest="d", suite_path="demo.py", model="m", precision="fp32",
    device="cuda:0", params={}, batch_policy="max", batch_size=None, mode="sampled", data="toy",
)  # fmt: skip


def search(answer, cap=None):
    """Search with a device that answers `answer(batch, mode)`; returns the case and the lines said."""
    lines = []

    def measure(trial):
        return answer(trial.case.batch_size, trial.case.mode)

    return fit_batch(CASE, CARD, Options(), cap, measure, lines.append), lines


def fits(batch):
    return Measurement(status="ok", samples_per_second=100.0, peak_memory_bytes=batch * 10**6)


def test_a_batch_that_crashes_above_one_that_fitted_is_too_large():
    crash = Measurement(status="failed", reason="ended by SIGSEGV")
    case, _ = search(lambda batch, mode: fits(batch) if batch <= 100 else crash)
    assert case.batch_size == 96
    assert not case.refusal


@pytest.mark.parametrize("status", ["failed", "timed_out", "out_of_memory"])
def test_a_search_that_finds_nothing_ends_as_its_last_probe(status):
    case, _ = search(lambda batch, mode: Measurement(status=status, reason="the reason"))
    assert case.refusal_status == status
    assert case.refusal.endswith("the reason")


def test_the_confirming_trial_backs_off_and_then_is_not_capped():
    full = Measurement(status="out_of_memory", reason="full")
    case, lines = search(lambda batch, mode: full if mode == "quick" and batch > 60 else fits(batch), cap=64)
    assert (case.batch_size, case.batch_capped) == (56, False)
    assert lines[-1].endswith("batch 56 confirmed by a trial")


def test_a_batch_that_no_trial_confirms_is_a_refusal_with_its_curve():
    full = Measurement(status="out_of_memory", reason="full")
    case, _ = search(lambda batch, mode: full if mode == "quick" else fits(batch), cap=64)
    assert case.refusal_status == "out_of_memory"
    assert "no trial could confirm" in case.refusal
    assert case.batch_curve


PRECISION_FAILED = Measurement(status="failed", reason="PrecisionError: asked for fp16, which looks like fp32")


def test_a_precision_that_is_not_proved_ends_the_search_at_its_first_probe():
    asked = []

    def measure(trial):
        asked.append(trial.case.batch_size)
        return PRECISION_FAILED if trial.prove else fits(trial.case.batch_size)

    case = fit_batch(CASE, CARD, Options(), None, measure, lambda line: None)
    assert asked == [8]
    assert (case.refusal_status, "PrecisionError" in case.refusal) == ("failed", True)


def test_only_the_first_probe_that_fits_proves_its_precision():
    proved = []

    def measure(trial):
        if trial.case.mode == "probe" and trial.prove:
            proved.append(trial.case.batch_size)
        return fits(trial.case.batch_size)

    fit_batch(CASE, CARD, Options(), 64, measure, lambda line: None)
    assert proved == [8]


def test_an_error_of_the_confirming_trial_is_final_and_said():
    tried = []

    def answer(batch, mode):
        if mode == "quick":
            tried.append(batch)
        return PRECISION_FAILED if mode == "quick" else fits(batch)

    case, lines = search(answer, cap=64)
    assert tried == [64]
    assert case.refusal_status == "failed"
    assert lines[-1].startswith("  batch 64 not confirmed: failed: PrecisionError")


@pytest.mark.parametrize(
    "answer", [Measurement(status="out_of_memory"), Measurement(status="failed", crashed=True, reason="SIGSEGV")]
)
def test_memory_and_crashes_go_down_five_times_and_each_is_said(answer):
    case, lines = search(lambda batch, mode: answer if mode == "quick" else fits(batch), cap=2000)
    said = [line for line in lines if "not confirmed" in line]
    assert len(said) == 6
    assert case.refusal_status == answer.status


def test_one_sample_that_batchnorm_refuses_is_out_of_memory_where_two_were_too_many():
    def answer(batch, mode):
        if batch > 1:
            return Measurement(status="out_of_memory", reason="CUDA out of memory")
        return Measurement(status="failed", reason="ValueError: Expected more than 1 value per channel when training")

    case, _ = search(answer)
    assert case.refusal_status == "out_of_memory"
    assert "more than 1 value per channel" in case.refusal
    assert "CUDA out of memory" in case.refusal


@pytest.mark.parametrize(("kind", "share"), [("cuda", 0.97), ("cpu", 0.92)])
def test_probes_leave_more_free_where_memory_differs_from_process_to_process(kind, share):
    seen = {}

    def measure(trial):
        seen.setdefault(trial.case.mode, set()).add(trial.case.memory_limit_bytes)
        return fits(trial.case.batch_size)

    case = replace(CASE, device=kind, memory_limit_bytes=10**9)
    fit_batch(case, replace(CARD, kind=kind), Options(), 64, measure, lambda line: None)
    assert seen == {"probe": {int(share * 10**9)}, "quick": {10**9}}


def suite_of(samples):
    return LoadedSuite("demo", Path("demo.py"), "d", Suite(print, ("m",), {}, 1, train_samples=samples))


@pytest.mark.parametrize(("samples", "cap"), [(50_000, 2500), (19, 1), (0, MOST)])
def test_there_is_always_a_cap(samples, cap):
    assert cap_of(CASE, suite_of(samples)) == cap


def test_a_search_ends_where_memory_does_not_grow():
    flat = Measurement(status="ok", samples_per_second=100.0, peak_memory_bytes=10**6)
    asked = []
    case = fit_batches(
        [CASE], {"demo": suite_of(0)}, {"cuda:0": CARD}, Options(), known=lambda case: None,
        measure=lambda trial: asked.append(trial) or flat, say=lambda line: None,
    )[0]  # fmt: skip
    assert (case.batch_size, case.batch_capped) == (MOST, True)
    assert len(asked) < 25


def test_what_was_found_before_an_interruption_is_kept():
    def measure(trial):
        if trial.case.model == "n":
            raise KeyboardInterrupt
        return fits(trial.case.batch_size)

    fitted = []
    with pytest.raises(KeyboardInterrupt):
        fit_batches(
            [CASE, replace(CASE, model="n")], {"demo": suite_of(2000)}, {"cuda:0": CARD}, Options(),
            known=lambda case: None, measure=measure, say=lambda line: None, fitted=fitted,
        )  # fmt: skip
    assert [(case.model, case.batch_size) for case in fitted] == [("m", 96)]


@pytest.mark.parametrize("capped", [True, False])
def test_a_batch_that_was_found_earlier_is_not_looked_for_again(capped):
    row = pd.DataFrame({"batch_size": [64.0], "batch_capped": [capped], "batch_curve": ["[[8,1.5,100]]"]}).iloc[0]
    case = fit_batches(
        [CASE], {"demo": suite_of(0)}, {"cuda:0": CARD}, Options(), known=lambda case: row,
        measure=lambda trial: pytest.fail("measured"), say=lambda line: None,
    )[0]  # fmt: skip
    assert (case.batch_size, case.batch_capped, case.batch_curve) == (64, capped, ((8, 1.5, 100),))
