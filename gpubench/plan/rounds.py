"""From cases to trials: round after round, each case once, in an order drawn anew."""

import random
from collections.abc import Iterator, Sequence
from itertools import count, islice

from gpubench.suite.trial import Case, Trial


def rounds(cases: Sequence[Case], seed: int) -> Iterator[list[Trial]]:
    """Round after round without end: every case once, in an order of its own, so that drift hits all cases alike.

    Trials of one round share a seed: they see the same data order and differ only in what is compared.
    """
    dice = random.Random(seed)
    for index in count():
        this_round = [Trial(case, index, seed + index) for case in cases if not case.refusal]
        dice.shuffle(this_round)
        yield this_round


def schedule(cases: Sequence[Case], number: int, seed: int) -> list[Trial]:
    """The first `number` rounds, one after the other. Refused cases come once, first."""
    trials = [Trial(case, 0, seed) for case in cases if case.refusal]
    for this_round in islice(rounds(cases, seed), number):
        trials += this_round
    return trials
