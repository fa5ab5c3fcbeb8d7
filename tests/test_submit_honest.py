"""`gpubench submit` refuses no honest run: one that was gone on with, that validates once, of a suite of its own."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from made_trials import USUAL, made_row, usual_file
from typer.testing import CliRunner

from gpubench.cli.app import app
from gpubench.rows import write as records
from gpubench.submit.check import reports
from gpubench.suite import files


def submitted(tmp_path, rows):
    path = tmp_path / "mine.csv"
    path.unlink(missing_ok=True)
    records.append(path, rows)
    return reports([path])[path].missing


@pytest.mark.parametrize("mode", ["sampled", "full"])
def test_a_validation_after_the_epochs_counts_once(tmp_path, mode):
    rows = usual_file(1, mode=mode, epochs=5, after=True)
    assert submitted(tmp_path, rows) == []
    less = replace(rows[2], valid_seconds=rows[2].valid_seconds * 0.9)
    assert any("line 4, valid_seconds: it says" in line for line in submitted(tmp_path, [*rows[:2], less, *rows[3:]]))


def test_a_validation_in_each_epoch_is_not_taken_for_one_after_them(tmp_path):
    rows = usual_file(1, epochs=5)
    once = [replace(row, valid_seconds=row.valid_seconds / 5) for row in rows]
    assert any("valid_seconds: it says" in line for line in submitted(tmp_path, once))


def resumed_file():
    """Two full runs of three stages; the first one was killed when the third began, and gone on with."""
    rng, wishes = random.Random(3), {**USUAL, "epochs": 3, "stages": (1, 2), "step": 0.5, "noise": 0.01}
    first, second = (
        made_row("full", rng, **{**wishes, "trial": trial, "killed": at}) for trial, at in ((0, 2), (1, 0))
    )
    began = datetime(2026, 11, 21, 12, tzinfo=UTC)
    later = began + timedelta(seconds=first.seconds / 3 + 60)
    return [replace(first, started=began.isoformat()), replace(second, started=later.isoformat())]


def test_a_run_that_was_gone_on_with_is_not_doubted(tmp_path):
    first, second = resumed_file()
    assert first.resumed
    assert first.data_stall is None  # no batch of the first stages is resident
    # The step that was counted is one of the last stage.
    heavier = {"step_samples": 4, "flops_per_sample": 6e6, "bytes_per_sample": 1e5, "ops_per_step": 70}
    laps = first.laps.replace('"resident",1,8,', '"resident",1,4,')
    assert submitted(tmp_path, [replace(first, laps=laps, **heavier), second]) == []


def test_of_a_run_that_was_gone_on_with_figures_still_follow(tmp_path):
    rows = resumed_file()
    for name in ("samples_per_second", "train_seconds", "valid_seconds"):
        other = replace(rows[0], **{name: getattr(rows[0], name) * 1.5})
        assert any(f"line 2, {name}: it says" in line for line in submitted(tmp_path, [other, rows[1]]))
    # Its last process took its steps on the resident batch, and they are over before the next trial begins.
    started = (datetime.fromisoformat(rows[0].started) + timedelta(seconds=1)).isoformat()
    said = submitted(tmp_path, [rows[0], replace(rows[1], started=started)])
    assert any("line 2, started: it says" in line and "began 1 s later" in line for line in said)


def test_what_one_model_never_has_is_not_missing(tmp_path):
    """Of an LSTM nobody counts multiplications of odd sizes."""
    counted = [replace(row, odd_flops_share=0.25) for row in usual_file()]
    others = [replace(row, model="lstm", session="s2") for row in usual_file(2)]
    assert submitted(tmp_path, [*counted, *others]) == []
    assert any(
        "odd_flops_share: it says nothing" in line for line in submitted(tmp_path, [*counted[1:], usual_file()[0]])
    )


def test_accuracies_that_are_means_over_runs_are_no_fractions_of_the_validation(tmp_path):
    rng = random.Random(1)
    single = [replace(row, accuracy=rng.randint(280, 310) / 320) for row in usual_file(1, mode="full", trials=7)]
    means = [
        replace(row, session="s2", accuracy=float(f"{rng.randint(1120, 1240) / 1280:.6g}"), params="runs_per_process=4")
        for row in usual_file(2, mode="full")
    ]
    assert submitted(tmp_path, [*single, *means]) == []
    odd = replace(single[0], accuracy=0.9)
    assert submitted(tmp_path, [odd, *single[1:], *means]) == []  # 288 of 320
    odd = replace(single[0], accuracy=0.901)
    assert any("line 2, accuracy: it says 0.901" in line for line in submitted(tmp_path, [odd, *single[1:], *means]))


def test_a_host_may_change_while_a_run_is_stopped(tmp_path):
    rows = usual_file()
    later = {"os": "Linux 7", "cpu_governor": "performance", "container": "docker", "card_memory_bytes": 24 * 10**9}
    assert submitted(tmp_path, [*rows[:3], *(replace(row, **later) for row in rows[3:])]) == []


def test_trials_of_two_versions_that_take_turns_are_no_one_case(tmp_path):
    rows = usual_file()
    for changes in ({"torch": "2.14.0"}, {"gpubench": "0.1.9"}, {"suite_digest": "d0"}):
        turns = [
            replace(row, trial=at // 2, seed=42 + at // 2, **(changes if at % 2 else {})) for at, row in enumerate(rows)
        ]
        said = submitted(tmp_path, turns)
        assert said == ["trials: small fp32 has 3 of the 6 that a sampled case needs (2 cases)"]


def test_a_suite_of_ones_own_may_have_the_name_of_ours(tmp_path):
    ours = files.find("resnet")
    own = [replace(row, suite="resnet", suite_version=ours.suite.version, model="mine") for row in usual_file()]
    assert submitted(tmp_path, own) == []
    said = CliRunner().invoke(app, ["submit", str(tmp_path / "mine.csv")]).output
    assert "note: resnet: not as this gpubench has it (suite_digest)" in said
    assert all(len(line) <= 80 for line in said.splitlines()[1:-1])
    said = submitted(tmp_path, [replace(row, suite_digest=ours.digest) for row in own])
    assert any("line 2, model: it says mine; and resnet has" in line for line in said)


def test_rows_without_torch_are_not_taken_and_that_is_said_plainly(tmp_path):
    nothing = {
        "torch": "", "cuda": "", "cudnn": "", "threads": None, "peak_memory_bytes": None, "precision_error": None,
        "precision_proof": "", "step_samples": None, "flops_per_sample": None, "bytes_per_sample": None,
        "ops_per_step": None,
    }  # fmt: skip
    said = submitted(tmp_path, [replace(row, **nothing) for row in usual_file()])
    assert said[1].startswith("line 2, torch: it says nothing; rows of a suite without torch are not taken")
    assert said[4:] == ["torch: the same of 3 more lines"]


def test_measured_peaks_that_are_edited_one_by_one(tmp_path):
    peaks = {
        "measured_peak_flops": 1.89443e12, "measured_bandwidth_bytes_per_second": 3.21496e10,
        "op_overhead_seconds": 4.91377e-6,
    }  # fmt: skip
    again = {"measured_peak_flops": 1.90216e12, "measured_bandwidth_bytes_per_second": 3.31283e10}
    rows = [replace(row, **peaks) for row in usual_file()]
    gone_on = [replace(row, **again, op_overhead_seconds=4.8819e-6) for row in rows[4:]]
    assert submitted(tmp_path, [*rows[:4], *gone_on]) == []
    for name, value in peaks.items():
        said = submitted(tmp_path, [*rows[:5], replace(rows[5], **{name: value * 1.25})])
        assert any(f"line 7, {name}: it says" in line for line in said)
