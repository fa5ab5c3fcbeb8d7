"""Finds the batch of each case: the largest that fits in memory, or the fastest, confirmed by a trial.

Imports hardware, suite, and of the runner the measuring of one trial. `rounds.py` asks it which trial comes next.
"""
