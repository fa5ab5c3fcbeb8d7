"""Which samples each process takes in each step, so that an epoch is exactly the dataset. Pure Python."""

from dataclasses import dataclass

from gpubench.errors import UserError


@dataclass(frozen=True)
class Shard:
    """One process's part of one step: the samples from `start` to `stop` of the epoch's order."""

    start: int
    stop: int
    weight: float = 1.0
    """Factor for the loss, a mean over these samples, that makes the mean of all processes' gradients the
    gradient of the mean over the whole step: 1 where all processes have as many samples."""


def shards(
    samples: int, batch: int, *, rank: int = 0, world: int = 1, least: int = 1, evaluate: bool = False
) -> list[Shard]:
    """The steps of one epoch for process `rank` of `world`: as many for each, every sample in one of them once.

    Args:
        samples: of the whole dataset.
        batch: samples in a step of one process; the last step has what is left.
        least: samples that a process needs for a step: 2 to train a BatchNorm.
        evaluate: what is left and too little for a step of all processes joins the last one; without
            it, it is left out, and the clock scales the time.

    Raises UserError where the samples do not suffice for one step of all processes.
    """
    step = batch * world
    ends = list(range(step, samples + 1, step))
    left = samples - len(ends) * step
    if left >= least * world or (left and not ends and world == 1):
        ends.append(samples)
    elif left and evaluate and ends:
        ends[-1] = samples
    if samples and not ends:
        raise UserError(f"{samples} samples are too few for {world} processes of at least {least} each")
    found, start = [], 0
    for end in ends:
        many = end - start
        first, last = start + many * rank // world, start + many * (rank + 1) // world
        found.append(Shard(first, last, (last - first) * world / many))
        start = end
    return found
