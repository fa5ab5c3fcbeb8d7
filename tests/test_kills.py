"""Runs that are killed at random moments and go on, and other accidents: benchmarks/kills.py, of which 200 are many."""

import pytest


@pytest.mark.e2e
@pytest.mark.parametrize(("kills", "accidents"), [(2, 1), pytest.param(6, 6, marks=pytest.mark.slow)])
def test_nothing_is_lost_doubled_or_left_over(benchmark_script, capsys, kills, accidents):
    code = benchmark_script("kills").main(["--count", str(kills), "--accidents", str(accidents)])
    assert code == 0, capsys.readouterr().out
