"""The child process: runs one task (a trial, a peak, a description of the devices) and answers with JSON.

Imports training, hardware and suite; only here, in training and in suites is torch imported. Nobody imports this
room: the runner starts it as `python -m gpubench.worker`.
"""
