"""From laps to the seconds of a whole run: every figure worked out by hand."""

import json
from dataclasses import asdict, replace

import pytest

from gpubench.suite.trial import Lap
from gpubench.training.clock.projection import Epoch, Phase, Stage, epoch_from_json, stage_of
from gpubench.training.clock.runs import Run


def lap(seconds, samples, kind="timed", *, phase="train", epoch=0, wait=0.0):
    return Lap(phase, epoch, kind, 4, samples, seconds, wait)


def phase(*laps, total=0, name="train", epoch=0, cut=False):
    return Phase(name, epoch, laps, total, cut)


def run_of(epochs, once, planned, stages=(0,), lost_seconds=0.0):
    """A run with these epochs, and these phases outside epochs."""
    phases = [phase for epoch in epochs for phase in epoch.phases] + once
    return Run(planned, stages, epochs=epochs, phases=phases, lost_seconds=lost_seconds)


def summarise(epochs, once, resident, planned, stages=(0,), lost_seconds=0.0):
    return run_of(epochs, once, planned, stages, lost_seconds).summary(resident)


CUT = phase(lap(2.0, 30, "warmup"), lap(3.0, 60), lap(5.0, 20), lap(7.0, 0), total=210, cut=True)
"""80 timed samples in 8 s; the 7 s without a sample are the end of the loader."""


def test_a_phase_is_projected_by_its_timed_laps_and_an_epoch_has_time_between():
    assert (CUT.seconds, CUT.samples) == (17.0, 110)
    assert CUT.seconds_per_sample == pytest.approx(0.1)
    assert CUT.projected_seconds == pytest.approx(17 + 100 * 0.1)
    assert CUT.again_seconds == pytest.approx(21)
    assert phase(lap(2.0, 30, "warmup"), total=90).projected_seconds == 2.0
    assert phase(lap(2.0, 30), total=20).projected_seconds == 2.0
    assert Epoch(0, 20.0, (CUT,)).between_seconds == 3.0
    assert Epoch(0, 10.0, (CUT,)).between_seconds == 0.0


def test_an_epoch_comes_back_from_json_as_it_went():
    epoch = Epoch(3, 20.0, (CUT, phase(lap(1.5, 7, phase="valid"), total=7, name="valid")))
    again = epoch_from_json(json.loads(json.dumps(asdict(epoch))))
    assert [lap for phase in again.phases for lap in phase.laps] == [
        replace(lap, earlier=True) for phase in epoch.phases for lap in phase.laps
    ]
    assert [phase.projected_seconds for phase in again.phases] == [phase.projected_seconds for phase in epoch.phases]
    assert (again.index, again.seconds, again.projected_seconds(None)) == (3, 20.0, epoch.projected_seconds(None))


@pytest.mark.parametrize(("epoch", "stage"), [(0, 0), (12, 0), (13, 13), (24, 13), (25, 25), (40, 25)])
def test_the_stage_of_an_epoch(epoch, stage):
    assert stage_of((0, 13, 25), epoch) == stage
    assert stage_of((5,), 4) == 0


def test_epochs_of_a_stage_that_did_not_run_have_the_samples_of_the_last_that_did():
    ran = tuple(Epoch(index, 9.0, (phase(total=total),)) for index, total in enumerate((100, 80)))
    assert Stage(ran, 5, ()).samples == 100 + 80 + 3 * 80
    assert Stage(ran, 1, ()).samples == 180
    assert (Stage((), 5, ()).samples, Stage((), 5, ()).seconds(None)) == (0, 0)
    assert Stage((Epoch(0, 9.0, (phase(total=50, name="valid"),)),), 3, ()).samples == 0


def whole(index, seconds, train_seconds, *, valid_seconds=4.0, wait=0.0):
    """An epoch of 100 training and 40 validation samples that ran to its end, its first lap a warm-up."""
    train = phase(
        lap(3.0, 20, "warmup", epoch=index),
        lap(train_seconds - 3.0, 80, epoch=index, wait=wait),
        total=100,
        epoch=index,
    )
    valid = phase(lap(valid_seconds, 40, phase="valid", epoch=index), total=40, name="valid", epoch=index)
    return Epoch(index, seconds, (train, valid))


def test_a_full_run_is_the_sum_of_its_epochs():
    resident = [lap(1.0, 20, "resident")]
    final = phase(lap(6.0, 50, phase="valid"), total=50, name="valid")
    run = summarise([whole(0, 20.0, 11.0, wait=2.0), whole(1, 17.0, 11.0, wait=2.0)], [final], resident, 2)
    laps = run.pop("laps")
    assert run == {
        "seconds": pytest.approx(20 + 17 + 6),
        "measured": True,
        "train_seconds": pytest.approx(22),
        "valid_seconds": pytest.approx(4 + 4 + 6),
        "samples_per_second": pytest.approx(10),  # 160 samples in two laps of 8 s
        "epochs": 2,
        "samples": 200,
        "loader_wait": pytest.approx(0.25),
        "data_stall": pytest.approx(0.5),
        "resident_samples_per_second": pytest.approx(20),
        "run_samples": 200,
    }
    assert [each.seconds for each in laps] == [3, 8, 4, 3, 8, 4, 6, 1]


def test_epochs_that_did_not_run_are_like_the_mean_of_those_after_the_first():
    first, second, third = whole(0, 40.0, 23.0, wait=2.0), whole(1, 17.0, 11.0, wait=2.0), whole(2, 21.0, 13.0)
    run = summarise([first, second, third], [], [], 10, lost_seconds=2.5)
    assert run["seconds"] == pytest.approx(40 + 17 + 21 + 7 * 19 + 2.5)
    assert run["train_seconds"] == pytest.approx(23 + 11 + 13 + 7 * 12)
    assert run["valid_seconds"] == pytest.approx(10 * 4)
    assert (run["measured"], run["epochs"], run["samples"], run["run_samples"]) == (False, 10, 300, 1000)
    # Of the rate the first epoch is no part: 160 samples in 8 + 10 s, of which 2 went into waiting.
    assert run["samples_per_second"] == pytest.approx(160 / 18)
    assert run["loader_wait"] == pytest.approx(1 / 9)
    assert run["data_stall"] is None
    assert run["resident_samples_per_second"] is None


def test_a_lone_epoch_is_repeated_without_its_start_up():
    """The others take 100 samples at 8 s for 80, 40 at 4 s for 40, and the 5 s between the phases."""
    run = summarise([whole(0, 20.0, 11.0)], [], [], 4)
    assert run["seconds"] == pytest.approx(20 + 3 * (10 + 4 + 5))
    assert run["train_seconds"] == pytest.approx(11 + 3 * 10)
    assert run["valid_seconds"] == pytest.approx(4 * 4)
    assert run["samples_per_second"] == pytest.approx(10)
    assert run["run_samples"] == 400


def test_what_was_cut_or_left_out_is_projected_and_so_no_measurement():
    run = summarise([Epoch(0, 19.0, (CUT,))], [], [], 1)
    assert (run["seconds"], run["measured"], run["samples"]) == (pytest.approx(17 + 10 + 2), False, 110)
    run = summarise([Epoch(0, 9.0, (phase(lap(8.0, 80), total=81),))], [], [], 1)
    assert (run["seconds"], run["measured"]) == (pytest.approx(9.1), False)


def test_what_ran_outside_epochs_counts_once():
    training, final = phase(lap(8.0, 80, wait=2.0), total=80), phase(lap(2.0, 5), total=10, name="final")
    run = summarise([], [training, final], [lap(2.0, 40, "resident")], 0)
    assert (run["seconds"], run["epochs"], run["samples"], run["run_samples"]) == (pytest.approx(12), 1, 80, 80)
    assert (run["samples_per_second"], run["loader_wait"], run["data_stall"]) == (10, 0.25, 0.5)
    assert (run["train_seconds"], run["valid_seconds"], run["measured"]) == (8, 0, False)


def test_a_run_without_training_or_time_has_no_rate():
    run = summarise([], [phase(lap(2.0, 5, phase="valid"), total=5, name="valid")], [], 0)
    assert (run["seconds"], run["valid_seconds"], run["measured"]) == (2, 2, True)
    for figure in ("samples_per_second", "loader_wait", "data_stall", "resident_samples_per_second", "run_samples"):
        assert run[figure] is None, figure
    assert summarise([], [phase(lap(0.0, 80), total=80)], [], 0)["loader_wait"] is None


def staged(index, seconds, samples, wait=0.0):
    return Epoch(index, seconds, (phase(lap(seconds, samples, epoch=index, wait=wait), total=samples, epoch=index),))


STAGES = [staged(0, 30.0, 90), staged(1, 10.0, 90, wait=4.0), staged(4, 50.0, 200), staged(5, 40.0, 200, wait=10.0)]
"""Two epochs of a stage of four, and two of one of six."""


def test_each_stage_is_projected_from_its_own_timed_laps():
    resident = [lap(5.0, 90, "resident"), lap(20.0, 200, "resident", epoch=4)]
    run = summarise(STAGES, [], resident, 10, (0, 4))
    assert run["seconds"] == pytest.approx(30 + 3 * 10 + 50 + 5 * 40)
    stages = run_of(STAGES, [], 10, (0, 4)).by_start()
    assert {start: round(stage.seconds(None), 9) for start, stage in stages.items()} == {0: 60, 4: 250}
    assert run["run_samples"] == 4 * 90 + 6 * 200
    # A run of 360 samples at 10/90 s, and of 1200 at 40/200 s; 4/90 and 10/200 of it waiting.
    assert run["samples_per_second"] == pytest.approx(1560 / (40 + 240))
    assert run["loader_wait"] == pytest.approx((16 + 60) / 280)
    assert run["resident_samples_per_second"] == pytest.approx(1560 / (20 + 120))
    assert run["data_stall"] == pytest.approx(0.5)
    warm = Epoch(4, 5.0, (phase(lap(5.0, 200, "warmup", epoch=4), total=200, epoch=4),))
    run = summarise([*STAGES[:2], warm], [], [lap(5.0, 90, "resident")], 10, (0, 4))
    assert run["samples_per_second"] is None
    assert run["resident_samples_per_second"] is None


def test_stages_after_the_end_and_epochs_beyond_the_plan():
    run = summarise(STAGES[:2], [], [], 2, (0, 4))
    assert (run["seconds"], run["measured"]) == (pytest.approx(40), True)
    assert run["samples_per_second"] == pytest.approx(180 / 40)
    assert summarise(STAGES[:2], [], [], 1)["seconds"] == pytest.approx(40)
