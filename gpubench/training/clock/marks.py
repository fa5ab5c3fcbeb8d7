"""Converts host times to device times by events in the device's queue, read after the run, without waiting."""

from bisect import bisect
from collections.abc import Callable
from typing import Any, Protocol


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
