"""Runs on several machines: how they agree on each task, and how a run becomes a Slurm job.

Imports plan, hardware, rows, suite, and of the runner what measures one trial. The run and the command line call it.
"""
