"""Reports the progress of a training, a few times per second. Used by Clock."""

from collections.abc import Callable
from typing import Any, Protocol

from gpubench.suite.trial import Lap
from gpubench.training.clock.runs import Run
from gpubench.training.clock.sampling import Sampling

SECONDS = 0.25
"""Least time between two reports."""


class Memory(Protocol):
    """Measures the device's memory (see device.MemoryUse)."""

    def trained(self) -> None:
        """Called after the first lap of training, during which libraries load and try algorithms."""

    def resting(self) -> None:
        """Called before the steps on a resident batch."""

    def watched(self) -> None:
        """Called after the untimed ones of these steps, whose memory is not that of a training step."""


class Reporter:
    """Calls `report`, unless it is None, with phase, epoch, share done and rate."""

    def __init__(
        self, report: Callable[[dict[str, Any]], None] | None, sampling: Sampling, now: Callable[[], float]
    ) -> None:
        self._report, self._sampling, self._now = report, sampling, now
        self._reported = 0.0

    def begun(self, phase: str, epoch: int) -> None:
        """Report that the first step is about to begin."""
        if self._report:
            self._report({"phase": phase, "epoch": epoch, "epochs": 1, "fraction": 0.0, "rate": None})

    def tell(self, lap: Lap, share: float, run: Run, *, paced: bool) -> None:
        """Report a finished lap and the share of its phase done; `paced`: whether its seconds are the device's."""
        if self._report is None:
            return
        now = self._now()
        if now - self._reported < SECONDS:
            return
        self._reported = now
        epochs = min(run.planned or 1, self._sampling.epochs or run.planned or 1)
        # Progress bars count validation as the last tenth of an epoch.
        part = 0.9 * share if lap.phase == "train" else 0.9 + 0.1 * share
        if run.epoch < 0:  # before the first epoch
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
