"""`gpubench submit` refuses no honest run: one that was gone on with, that validates once, of a suite of its own."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from made_trials import USUAL, made_row, usual_file

from gpubench.rows import write as records
from gpubench.submit.check import reports


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
