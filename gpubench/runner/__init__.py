"""The parent of a run: takes a session, starts a process per trial, watches it, writes its row, stops and resumes.

Imports plan, hardware, rows and suite; it opens no device, and knows the worker as a process only. Commands call it.
"""
