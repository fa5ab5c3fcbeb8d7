"""The parent process of a run: turns options into cases, starts a process for each trial, and writes its row.

It also searches for batches, leads several machines, and resumes or stops a run. Imports suite, data, hardware and
rows. It opens no device, and starts the worker only as a process. Commands call it.
"""
