"""A suite for tests that goes wrong on purpose: out_of_memory."""

from gpubench import Suite


def train(trial, clock):
    """Go wrong."""
    raise MemoryError


SUITE = Suite(train=train, models=("m",), params={}, version=1, torch=False)
