"""A suite for tests that goes wrong on purpose: hangs."""

from gpubench import Suite


def train(trial, clock):
    """Go wrong."""
    import time

    time.sleep(600)


SUITE = Suite(train=train, models=("m",), params={}, version=1, torch=False)
