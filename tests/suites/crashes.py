"""A suite for tests that goes wrong on purpose: its process ends without an answer."""

from gpubench import Suite


def train(trial, clock):
    """Go wrong."""
    import os

    os._exit(3)


SUITE = Suite(train=train, models=("m",), params={}, version=1, torch=False)
