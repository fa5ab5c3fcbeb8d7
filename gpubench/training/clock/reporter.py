"""Tells how far a training has come, a few times a second."""

from collections.abc import Callable
from typing import Any, Protocol

from gpubench.suite.trial import Lap
from gpubench.training.clock.runs import Run
from gpubench.training.clock.sampling import Sampling

SECONDS = 0.25
"""The least between two reports."""


class Memory(Protocol):
    """Whoever watches the device's memory (see device.MemoryUse)."""

    def trained(self) -> None:
        """The first lap of training is over: until then libraries load and try algorithms."""

    def resting(self) -> None:
        """The steps on a resident batch begin, which are all alike."""


class Reporter:
    """Calls `report`, where there is one, with a phase, an epoch, the share that is done and a rate."""

    def __init__(
        self, report: Callable[[dict[str, Any]], None] | None, sampling: Sampling, now: Callable[[], float]
    ) -> None:
        self._report, self._sampling, self._now = report, sampling, now
        self._reported = 0.0

    def begun(self, phase: str, epoch: int) -> None:
        """The first step of all is near: from here on the device is at work."""
        if self._report:
            self._report({"phase": phase, "epoch": epoch, "epochs": 1, "fraction": 0.0, "rate": None})

    def tell(self, lap: Lap, share: float, run: Run, *, paced: bool) -> None:
        """A lap is over, of a phase of which such a share is done; `paced`: its seconds are the device's."""
        if self._report is None:
            return
        now = self._now()
        if now - self._reported < SECONDS:
            return
        self._reported = now
        epochs = min(run.planned or 1, self._sampling.epochs or run.planned or 1)
        # Validation is the last tenth of an epoch, for all that a progress bar knows.
        part = 0.9 * share if lap.phase == "train" else 0.9 + 0.1 * share
        if run.epoch < 0:  # what comes before them is no part of any epoch
            part = 0.0
        self._report(
            {
                "phase": lap.phase,
                "epoch": run.epoch,
                "epochs": epochs,
                "fraction": min(1.0, (max(0, run.epoch) + part) / epochs),
                "rate": lap.samples / lap.seconds if paced and lap.seconds > 0 else None,
            }
        )
