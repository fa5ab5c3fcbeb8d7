"""benchmarks/card_time.py: how long a run takes on a card, by simulation over the real run, search and clock."""

import pytest


@pytest.fixture
def script(benchmark_script):
    return benchmark_script("card_time")


@pytest.mark.parametrize(
    ("number", "mode", "first_row", "everything", "rows"), [(0, "sampled", 3, 56, 78), (1, "quick", 1, 7, 10)]
)
def test_minutes_not_hours(script, number, mode, first_row, everything, rows):
    """Minutes of made-up cards; on the code before, 30 until the first row of the first and 100 for all of it."""
    timed = script.simulate(script.CARDS[number], mode=mode)
    assert timed.rows == rows
    assert timed.first_row < first_row * 60
    assert timed.everything < everything * 60


def test_a_whole_run_is_not_begun_before_seconds_have_shown_that_its_batch_fits(script):
    timed = script.simulate(script.CARDS[0], mode="full", models=("resnet18",))
    assert (timed.rows, timed.trials) == (2, 4), "each case's whole run, and a quick one before it"
