"""The parent process of a run: turns options into cases, starts a process for each trial, and writes its row.

Also the batch search, several machines, resuming and stopping. Imports suite, data, hardware and rows; it opens no
device, and starts the worker only as a process. Commands call it.
"""
