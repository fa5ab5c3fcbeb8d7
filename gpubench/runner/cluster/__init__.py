"""Runs on several machines: how they agree on each task, and how a run becomes a Slurm job.

Imports hardware, rows, suite, and of the runner the measuring of one trial. `run.py` and `cli/run.py` call it.
"""
