"""What a suite trains with: clock, precision, optimizer step, device, process group, fastai callbacks.

Imports suite and hardware. Suites import its names from here (`from gpubench.training import Stepper`), and the worker
sets it up for them.
"""
