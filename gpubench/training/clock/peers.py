"""Combines the laps of processes that train together, and computes how much they differ. Pure Python."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpubench.errors import UserError
from gpubench.suite.trial import Lap

STRAGGLES = 0.1
"""A process is a straggler if its step takes this much longer than the median process's."""


@dataclass(frozen=True)
class Peers:
    """The processes that train together, including this one; by default there is only this one."""

    gather: Callable[[Sequence[float]], Sequence[Sequence[float]]] = lambda numbers: [numbers]
    """Given this process's numbers, returns those of all processes in the order of ranks; waits for all of them."""
    names: tuple[str, ...] = ("rank 0",)
    """Names of the processes: `rank 3 (node 1, cuda:3)`."""

    @property
    def world(self) -> int:
        """Number of processes."""
        return len(self.names)


def numbers_of(lap: Lap) -> list[float]:
    """Return the numbers of a lap that the processes exchange."""
    return [lap.steps, lap.samples, lap.seconds, lap.wait_seconds]


def lap_of_all(lap: Lap, gathered: Sequence[Sequence[float]]) -> Lap:
    """Return the lap of all processes: the sum of their samples, in the time of the slowest.

    `gathered` has `numbers_of` of each process. Raises UserError if their numbers of steps differ.
    """
    if len({numbers[0] for numbers in gathered}) > 1:
        counts = ", ".join(f"{numbers[0]:.0f}" for numbers in gathered)
        raise UserError(
            f'clock.steps(phase="{lap.phase}"): the processes took {counts} steps; all need the same number of batches'
            " (see gpubench.training.sharding)"
        )
    return replace(
        lap,
        samples=int(sum(numbers[1] for numbers in gathered)),
        seconds=max(numbers[2] for numbers in gathered),
        wait_seconds=max(numbers[3] for numbers in gathered),
    )


def unlikeness(names: Sequence[str], step_seconds: Sequence[float]) -> dict[str, Any]:
    """Return `rank_spread` and `straggler` of a Measurement from the seconds of a step of each process."""
    typical = sorted(step_seconds)[(len(step_seconds) - 1) // 2]  # of two, the faster
    slowest = max(range(len(step_seconds)), key=step_seconds.__getitem__)
    times = step_seconds[slowest] / typical if typical > 0 else 1.0
    least = min(step_seconds)
    return {
        "rank_spread": step_seconds[slowest] / least - 1 if least > 0 else None,
        "straggler": f"{names[slowest]}: {times:.2f} times the median" if times > 1 + STRAGGLES else "",
    }
