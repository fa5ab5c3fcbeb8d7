"""The child process: runs one task (a trial, a peak, a description of the devices) and returns JSON.

The runner starts it as `python -m gpubench.worker`; no package imports it. Imports training, hardware and suite. torch
is imported only here, in training and in suites.
"""
