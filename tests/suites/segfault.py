"""A suite for tests that goes wrong on purpose: segfault."""

from gpubench import Suite


def train(trial, clock):
    """Go wrong."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)


SUITE = Suite(train=train, models=("m",), params={}, version=1, torch=False)
