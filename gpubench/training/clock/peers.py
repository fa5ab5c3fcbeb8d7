"""What processes that train together agree on: laps, how much they differ, and which is slow. Pure Python."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpubench.errors import UserError
from gpubench.suite.trial import Lap

STRAGGLES = 0.1
"""A process is named a straggler when its own step takes this much longer than the median process's."""


@dataclass(frozen=True)
class Peers:
    """The processes that train together, this one among them; by default it is the only one."""

    gather: Callable[[Sequence[float]], Sequence[Sequence[float]]] = lambda own: [own]
    """Everyone's numbers in the order of ranks, given one's own; it waits for the last of them."""
    names: tuple[str, ...] = ("rank 0",)
    """What each is called: `rank 3 (node 1, cuda:3)`."""

    @property
    def world(self) -> int:
        """How many they are."""
        return len(self.names)


def numbers_of(lap: Lap) -> list[float]:
    """What the processes tell each other of a lap."""
    return [lap.steps, lap.samples, lap.seconds, lap.wait_seconds]


def lap_of_all(own: Lap, every: Sequence[Sequence[float]]) -> Lap:
    """The lap of all processes: their samples together, in the time of the slowest.

    `every` holds each process's `numbers_of`. Raises UserError where they did not take as many steps.
    """
    if len({lap[0] for lap in every}) > 1:
        counts = ", ".join(f"{lap[0]:.0f}" for lap in every)
        raise UserError(
            f'clock.steps(phase="{own.phase}"): the processes took {counts} steps; give each as many batches'
            " (gpubench.training.sharding does)"
        )
    return replace(
        own,
        samples=int(sum(lap[1] for lap in every)),
        seconds=max(lap[2] for lap in every),
        wait_seconds=max(lap[3] for lap in every),
    )


def unlikeness(names: Sequence[str], own_step_seconds: Sequence[float]) -> dict[str, Any]:
    """Spread and straggler from each process's own seconds of a step, as fields of a Measurement."""
    typical = sorted(own_step_seconds)[(len(own_step_seconds) - 1) // 2]  # of two, the faster
    slowest = max(range(len(own_step_seconds)), key=own_step_seconds.__getitem__)
    times = own_step_seconds[slowest] / typical if typical > 0 else 1.0
    least = min(own_step_seconds)
    return {
        "rank_spread": own_step_seconds[slowest] / least - 1 if least > 0 else None,
        "straggler": f"{names[slowest]}: {times:.2f} times the median" if times > 1 + STRAGGLES else "",
    }
