"""Synchronises with the device, reads the time, and combines laps with other processes. Used by Clock."""

import time
from bisect import bisect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gpubench.errors import UserError
from gpubench.suite.trial import Lap
from gpubench.training.clock.peers import Peers, lap_of_all, numbers_of


class Event(Protocol):
    """An event in a device's queue, like torch's."""

    def record(self) -> None:
        """Put the event at the end of the queue."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return the device's milliseconds from this event to `end_event`; both must be finished."""


class Marks:
    """Events in the queue of a device, and the host times at which they were recorded.

    The host records them ahead of the device.

    Args:
        event: makes an event.
        now: returns seconds of the host's clock.
    """

    def __init__(self, event: Callable[[], Event], now: Callable[[], float]) -> None:
        self._event, self._now = event, now
        self._events: list[Event] = []
        self._set: list[float] = []

    def set(self) -> None:
        """Record an event at the end of the queue."""
        event = self._event()
        event.record()
        self._events.append(event)
        self._set.append(self._now())

    def device_time(self) -> Callable[[float], float]:
        """Return a function from host time to device time; call this when the device has finished all events.

        Both times are equal at the first event, when the device was idle. Between two events, times are interpolated.
        """
        first = self._events[0]
        passed = [self._set[0] + first.elapsed_time(event) / 1000 for event in self._events]

        def device(host: float) -> float:
            if host <= self._set[0]:  # a warm-up before the run, which waited for the device
                return host
            after = min(max(bisect(self._set, host), 1), len(passed) - 1)
            (begin, end), (low, high) = self._set[after - 1 : after + 1], passed[after - 1 : after + 1]
            share = (host - begin) / (end - begin) if end > begin else 0.0
            return low + (high - low) * min(1.0, max(0.0, share))

        return device


class Timer:
    """The device, the time and the peers of one process.

    Args:
        synchronize: waits until the device has finished its queue.
        now: returns monotonic seconds.
        peers: the processes that train together.
    """

    def __init__(
        self,
        synchronize: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.perf_counter,
        peers: Peers | None = None,
    ) -> None:
        self.now, self.peers = now, peers or Peers()
        self._synchronize = synchronize
        self._marks: Marks | None = None
        self.outside = 0.0
        """Seconds of the running epoch that do not count: clean-up, waiting for other processes."""
        self._waited = [(0.0, 0)] * self.peers.world

    def synchronize(self) -> None:
        """Wait for the device; in an unbroken run only record an event in its queue."""
        if self._marks:
            self._marks.set()
        else:
            self._synchronize()

    @property
    def unbroken(self) -> bool:
        """Whether an unbroken run is active, whose times are the host's until it ends."""
        return self._marks is not None

    def check_ended(self) -> None:
        """Raise UserError if an unbroken run has not ended."""
        if self.unbroken:
            raise UserError("clock.runs(n, event): its loop was left before its end, so no lap has the device's time")

    def leave_out(self, seconds: float) -> None:
        """Exclude a phase's seconds from its epoch; raises UserError in an unbroken run."""
        if self.unbroken:
            raise UserError("clock.runs(n, event): counted=False is not for these runs, whose phases all count")
        self.outside += seconds

    def begin_unbroken(self, event: Callable[[], Event]) -> None:
        """Stop waiting for the device from now on; raises UserError with several processes."""
        if self.peers.world > 1:
            raise UserError("clock.runs(n, event) is for one process: laps of several need their times at once")
        self._synchronize()
        self._marks = Marks(event, self.now)
        self._marks.set()

    def end_unbroken(self) -> Callable[[float], float]:
        """Wait for the device; return a function from host time to device time since `begin_unbroken`."""
        assert self._marks
        marks, self._marks = self._marks, None
        marks.set()
        self._synchronize()
        return marks.device_time()

    @property
    def waited(self) -> list[float]:
        """Mean seconds that a timed step of training waited for its loader, by rank."""
        return [waited / steps if steps else 0.0 for waited, steps in self._waited]

    def agree(self, numbers: Sequence[float] = ()) -> Sequence[Sequence[float]]:
        """Return the numbers of all processes; the time of waiting for them does not count as training."""
        if self.peers.world == 1:
            return [numbers]
        started = self.now()
        gathered = self.peers.gather(numbers)
        self.outside += self.now() - started
        return gathered

    def agreed(self, lap: Lap) -> Lap:
        """Return the lap of all processes (see `lap_of_all`)."""
        if self.peers.world == 1:
            return lap
        gathered = self.agree(numbers_of(lap))
        if lap.kind == "timed" and lap.phase == "train":
            self._waited = [
                (waited + numbers[3], steps + lap.steps)
                for (waited, steps), numbers in zip(self._waited, gathered, strict=True)
            ]
        return lap_of_all(lap, gathered)
