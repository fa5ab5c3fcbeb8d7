"""The parent of a run: options become cases, each trial is a process with a time limit, and each gets its row.

Also the batch search, several machines, resuming and stopping. Imports suite, data, hardware and rows; it opens no
device, and knows the worker as a process only. Commands call it.
"""
