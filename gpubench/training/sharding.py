"""Divides the samples of an epoch among steps and processes, so that no sample occurs twice. Pure Python."""

from dataclasses import dataclass

from gpubench.errors import UserError


@dataclass(frozen=True)
class Shard:
    """The samples of one process in one step: from `start` to before `stop` in the epoch's order."""

    start: int
    stop: int
    weight: float = 1.0
    """Factor for the loss, which is a mean over these samples. With it, the mean of all processes' gradients is the
    gradient of the whole step's mean loss. It is 1 if all processes have the same number of samples."""


def shards(
    samples: int, batch: int, *, rank: int = 0, world: int = 1, least: int = 1, evaluate: bool = False
) -> list[Shard]:
    """Return the steps of one epoch for process `rank` of `world`: the same number of steps for all processes.

    Args:
        samples: number of samples in the whole dataset.
        batch: samples in a step of one process; the last step has the remaining ones.
        least: samples that a process needs for a step; training a BatchNorm needs 2.
        evaluate: whether the last whole step also takes remaining samples that are too few for a step. Otherwise they
            are left out, and the clock scales the time.

    Raises UserError if there are too few samples for one step of all processes.
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
    result, start = [], 0
    for end in ends:
        count = end - start
        first, last = start + count * rank // world, start + count * (rank + 1) // world
        result.append(Shard(first, last, (last - first) * world / count))
        start = end
    return result
