"""What ends a run before its time, and that it came."""

import signal
from collections.abc import Mapping
from typing import Self

STOPPED = "the run was stopped before this trial ended"


class Interrupts:
    """Ctrl-C, SIGTERM as schedulers send it, and Slurm's notice that time is up end a run alike, and are remembered.

    Python loses an exception that a signal raises inside a finalizer, so that between trials `check` looks again.
    """

    SIGNALS: Mapping[int, str] = {
        signal.SIGINT: STOPPED,
        signal.SIGTERM: "the run was ended by SIGTERM before this trial ended",
        signal.SIGUSR2: "the time of the job was over before this trial ended",
    }

    def __init__(self) -> None:
        self.came = ""
        """Why the run was stopped, or empty."""

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

    def _interrupt(self, number: int, frame: object) -> None:
        self.came = self.SIGNALS[number]
        raise KeyboardInterrupt(self.came)
