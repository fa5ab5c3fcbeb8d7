"""Runs that are killed at random moments and go on, and other accidents: benchmarks/kills.py, of which 200 are many."""

import pytest


@pytest.mark.e2e
def test_nothing_is_lost_doubled_or_left_over(benchmark_script, capsys):
    code = benchmark_script("kills").main(["--count", "6"])
    assert code == 0, capsys.readouterr().out
