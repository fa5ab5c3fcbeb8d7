"""Handles the signals that stop a run: Ctrl-C, SIGTERM, and SIGUSR2, which Slurm sends before a job's end."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

INTERRUPTED = 130
"""Exit code of a run that was stopped."""
STOPPED = "the run was stopped before this trial ended"


class Interrupts:
    """A context manager that turns each of SIGNALS into a KeyboardInterrupt, and stores the reason.

    Python ignores an exception that a signal raises inside a finalizer, so `check` raises it again between trials.
    """

    SIGNALS: Mapping[int, str] = {
        signal.SIGINT: STOPPED,
        signal.SIGTERM: "the run was ended by SIGTERM before this trial ended",
        signal.SIGUSR2: "the time of the job was over before this trial ended",
    }

    def __init__(self) -> None:
        self.reason = ""
        """Why the run was stopped, or empty."""
        self._delayed = False

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in self.SIGNALS}
        for number, before in self._before.items():
            if before != signal.SIG_IGN:  # a shell's background job ignores Ctrl-C
                signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            # A stopped run is about to end; a second Ctrl-C must not print a traceback.
            signal.signal(number, signal.SIG_IGN if self.reason else before)

    def ignore(self) -> None:
        """Ignore further signals: the run is about to end."""
        self._delayed = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received."""
        if self.reason:
            raise KeyboardInterrupt(self.reason)

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """Delay signals until `check`, so that a row is written whole and counted once."""
        self._delayed = True
        try:
            yield
        finally:
            self._delayed = False

    def _interrupt(self, number: int, frame: object) -> None:
        self.reason = self.SIGNALS[number]
        if not self._delayed:
            raise KeyboardInterrupt(self.reason)
