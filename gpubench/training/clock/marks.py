"""Tells when a device did its work without waiting for it: events in its queue, read when the run is over."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


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

        Both begin at the first mark, when the device had nothing to do.
        """
        first = self._events[0]
        passed = [self._set[0] + first.elapsed_time(event) / 1000 for event in self._events]
        return lambda host: float(np.interp(host, self._set, passed))
