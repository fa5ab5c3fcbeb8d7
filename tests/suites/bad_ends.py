"""A suite for tests that goes wrong on purpose: each model is named after how."""

from gpubench import Suite


def train(trial, clock):
    """Go wrong."""
    import os
    import signal
    import time

    if trial.case.model == "raises":
        raise ValueError("this suite always fails")
    if trial.case.model == "out_of_memory":
        raise MemoryError
    if trial.case.model == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(600)


SUITE = Suite(train=train, models=("raises", "out_of_memory", "segfault", "hangs"), params={}, version=1, torch=False)
