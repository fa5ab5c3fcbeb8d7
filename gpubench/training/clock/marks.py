"""Tells when a device did its work without waiting for it: events in its queue, read when the run is over."""

from bisect import bisect
from collections.abc import Callable
from typing import Any, Protocol


class Event(Protocol):
    """A mark in a device's queue, as torch's events are."""

    def record(self) -> None:
        """Put it at the end of the queue."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds of the device from this one to `end_event`, both of which it has passed."""


class Marks:
    """Marks in the queue of a device, and when the host set them.

    The host sets them ahead of the device. What it times between two of its own moments took the device what lies
    between the marks there.

    Args:
        event: makes one.
        now: seconds of the host.
    """

    def __init__(self, event: Callable[[], Event], now: Callable[[], float]) -> None:
        self._event, self._now = event, now
        self._events: list[Event] = []
        self._set: list[float] = []

    def set(self) -> None:
        """Put a mark at the end of the queue."""
        event = self._event()
        event.record()
        self._events.append(event)
        self._set.append(self._now())

    def device_time(self) -> Callable[[float], float]:
        """From a time of the host to when the device was there; to be asked for once it has passed all marks.

        Both begin at the first mark, when the device had nothing to do. In proportion between two marks.
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
