"""A suite for tests that goes wrong on purpose: raises."""

from gpubench import Suite


def train(trial, clock):
    """Go wrong."""
    raise ValueError("this suite always fails")


SUITE = Suite(train=train, models=("m",), params={}, version=1, torch=False)
