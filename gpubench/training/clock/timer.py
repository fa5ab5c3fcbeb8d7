"""Reads the time for Clock: waits for the device first, and combines the laps of processes that train together.

An unbroken run does not wait for the device. It records events in the device's queue. At the end of the run, the
events' times replace the host's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpubench.errors import UserError
from gpubench.suite.trial import Lap


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


class Timer:
    """The time, device and peers of one process; `synchronize` waits for the device, `now` is in monotonic seconds."""

    def __init__(self, synchronize: Callable[[], None], now: Callable[[], float], peers: Peers) -> None:
        self.now, self.peers = now, peers
        self._synchronize = synchronize
        self._event: Callable[[], Any] | None = None
        self._events: list[Any] = []
        self._recorded: list[float] = []  # host time at which each event was put into the queue
        self.outside = 0.0
        """Seconds of the running epoch that do not count: uncounted phases, clean-up, waiting for other processes."""
        self._timed_steps = 0
        self._waited = [0.0] * peers.world

    def synchronize(self) -> None:
        """Wait for the device; in an unbroken run only record an event in its queue."""
        if self._event is None:
            self._synchronize()
            return
        self._events.append(self._event())
        self._events[-1].record()
        self._recorded.append(self.now())

    @property
    def unbroken(self) -> bool:
        """Whether an unbroken run is active, whose times are the host's until it ends."""
        return self._event is not None

    def begin_unbroken(self, event: Callable[[], Any]) -> None:
        """Stop waiting for the device; record events that `event` makes. Raises UserError with several processes."""
        if self.peers.world > 1:
            raise UserError("clock.runs(n, event) is for one process: several must exchange the time of each lap")
        self._synchronize()
        self._event, self._events, self._recorded = event, [], []
        self.synchronize()

    def end_unbroken(self) -> Callable[[float], float]:
        """Wait for the device; return a function that converts host times since `begin_unbroken` to device times.

        Both times are equal at the first event, when the device was idle. Between two events, times are interpolated.
        """
        self.synchronize()
        self._event = None
        self._synchronize()
        recorded, first = self._recorded, self._events[0]
        finished = [recorded[0] + first.elapsed_time(event) / 1000 for event in self._events]

        def device_time(host_time: float) -> float:
            if host_time <= recorded[0]:  # a warm-up before the run, which waited for the device
                return host_time
            return float(np.interp(host_time, recorded, finished))

        return device_time

    @property
    def waited(self) -> list[float]:
        """Mean seconds that a timed step of training waited for its loader, by rank."""
        return [seconds / max(1, self._timed_steps) for seconds in self._waited]

    def agree(self, numbers: Sequence[float] = ()) -> Sequence[Sequence[float]]:
        """Return the numbers of all processes; the time of waiting for them does not count as training."""
        if self.peers.world == 1:
            return [numbers]
        started = self.now()
        gathered = self.peers.gather(numbers)
        self.outside += self.now() - started
        return gathered

    def agreed(self, lap: Lap) -> Lap:
        """Return the lap of all processes: all samples, in the slowest's time. Raises UserError if steps differ."""
        if self.peers.world == 1:
            return lap
        gathered = self.agree([lap.steps, lap.samples, lap.seconds, lap.wait_seconds])
        steps, samples, seconds, waits = zip(*gathered, strict=True)
        if len(set(steps)) > 1:
            raise UserError(
                f'clock.steps(phase="{lap.phase}"): the processes took {", ".join(f"{count:.0f}" for count in steps)}'
                " steps; all need the same number of batches (see gpubench.training.sharding)"
            )
        if lap.kind == "timed" and lap.phase == "train":
            self._timed_steps += lap.steps
            self._waited = [before + wait for before, wait in zip(self._waited, waits, strict=True)]
        return replace(lap, samples=int(sum(samples)), seconds=max(seconds), wait_seconds=max(waits))
