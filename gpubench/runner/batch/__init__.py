"""Finds the batch of each case: the largest that fits in memory, or the fastest, and confirms it by a trial.

Imports plan, hardware, suite, and of the runner what measures one trial. Rounds ask it which trial can come next.
"""
