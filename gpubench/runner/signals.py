"""The signals that stop a run early (Ctrl-C, SIGTERM, Slurm's notice) and whether one has come."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

INTERRUPTED = 130
"""Exit code of a run that was stopped."""
STOPPED = "the run was stopped before this trial ended"


class Interrupts:
    """Turns each of the signals into a KeyboardInterrupt and remembers it.

    Python loses an exception that a signal raises inside a finalizer. So `check` looks again between trials.
    """

    SIGNALS: Mapping[int, str] = {
        signal.SIGINT: STOPPED,
        signal.SIGTERM: "the run was ended by SIGTERM before this trial ended",
        signal.SIGUSR2: "the time of the job was over before this trial ended",
    }

    def __init__(self) -> None:
        self.came = ""
        """Why the run was stopped, or empty."""
        self._held = False

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in self.SIGNALS}
        for number, before in self._before.items():
            if before != signal.SIG_IGN:  # a shell's background job ignores Ctrl-C
                signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def check(self) -> None:
        """Raise KeyboardInterrupt if one came."""
        if self.came:
            raise KeyboardInterrupt(self.came)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, a signal is remembered for `check` and raises nothing: a row is written whole and counted once."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _interrupt(self, number: int, frame: object) -> None:
        self.came = self.SIGNALS[number]
        if not self._held:
            raise KeyboardInterrupt(self.came)
