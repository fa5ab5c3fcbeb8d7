"""benchmarks/card_time.py: how long a run takes on a card, by simulation over the real run, search and clock."""

import pytest


@pytest.fixture
def script(benchmark_script):
    return benchmark_script("card_time")


@pytest.mark.parametrize(
    ("number", "mode", "first_ratio", "everything", "rows"), [(0, "sampled", 3.1, 74, 78), (1, "quick", 1.7, 8, 10)]
)
def test_minutes_not_hours(script, number, mode, first_ratio, everything, rows):
    """Minutes of made-up cards; on the code before, 30 until the first row of the first card."""
    timed = script.simulate(script.CARDS[number], script.LOW, mode=mode)
    assert timed.rows == rows
    assert timed.first_row < timed.first_ratio < first_ratio * 60
    assert timed.everything < everything * 60


def test_forks_take_less_time_than_new_processes(script):
    forked, fresh = (
        script.simulate(script.CARDS[1], script.HIGH, forked=forked, mode="quick") for forked in (True, False)
    )
    assert forked.rows == fresh.rows
    assert forked.first_row < fresh.first_row
    assert forked.everything < 0.85 * fresh.everything


def test_a_whole_run_is_not_begun_before_seconds_have_shown_that_its_batch_fits(script):
    timed = script.simulate(script.CARDS[0], script.LOW, mode="full", models=("resnet18",))
    assert (timed.rows, timed.trials) == (2, 4), "each case's whole run, and a quick one before it"
