"""A run on several machines: how they agree on each task, and how Slurm is given such a run as a job.

Imports plan, hardware, rows, suite, and of the runner what measures one trial. The run and the command line call it.
"""
