"""Where laps begin and end: waits for the device, tells the time, and agrees with the processes that train along."""

import time
from collections.abc import Callable, Sequence

from gpubench.errors import UserError
from gpubench.suite.trial import Lap
from gpubench.training.clock.marks import Event, Marks
from gpubench.training.clock.peers import Peers, lap_of_all, numbers_of


class Timer:
    """The device, the time and the peers of one process.

    Args:
        synchronize: waits until the device has done all it was given.
        now: seconds, monotonic.
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
        """Seconds of the running epoch that are nobody's training, and in no sum: clean-up, waiting for the others."""
        self._waited = [(0.0, 0)] * self.peers.world

    def synchronize(self) -> None:
        """Wait for the device; inside an unbroken run only mark the place in its queue."""
        if self._marks:
            self._marks.set()
        else:
            self._synchronize()

    @property
    def unbroken(self) -> bool:
        """Whether an unbroken run is under way, so that the times known of it are the host's."""
        return self._marks is not None

    def check_ended(self) -> None:
        """Raise UserError where such a run was left."""
        if self.unbroken:
            raise UserError("clock.runs(n, event): its loop was left before its end, so no lap has the device's time")

    def leave_out(self, seconds: float) -> None:
        """Keep a phase that does not count out of its epoch; raises UserError inside an unbroken run."""
        if self.unbroken:
            raise UserError("clock.runs(n, event): counted=False is not for these runs, whose phases all count")
        self.outside += seconds

    def begin_unbroken(self, event: Callable[[], Event]) -> None:
        """From here on do not wait for the device; raises UserError where several processes train together."""
        if self.peers.world > 1:
            raise UserError("clock.runs(n, event) is for one process: laps of several need their times at once")
        self._synchronize()
        self._marks = Marks(event, self.now)
        self._marks.set()

    def end_unbroken(self) -> Callable[[float], float]:
        """Wait for the device; returns what makes of a time since `begin_unbroken` when the device was there."""
        assert self._marks
        marks, self._marks = self._marks, None
        marks.set()
        self._synchronize()
        return marks.device_time()

    @property
    def waited(self) -> list[float]:
        """By rank, seconds for which a timed step of training waited for its loader."""
        return [waited / steps if steps else 0.0 for waited, steps in self._waited]

    def agree(self, own: Sequence[float] = ()) -> Sequence[Sequence[float]]:
        """The numbers of all processes. Waiting for them is not counted as training; a single process does not wait."""
        if self.peers.world == 1:
            return [own]
        asked = self.now()
        every = self.peers.gather(own)
        self.outside += self.now() - asked
        return every

    def agreed(self, own: Lap) -> Lap:
        """The lap as all processes see it."""
        if self.peers.world == 1:
            return own
        every = self.agree(numbers_of(own))
        if own.kind == "timed" and own.phase == "train":
            self._waited = [
                (waited + lap[3], steps + own.steps) for (waited, steps), lap in zip(self._waited, every, strict=True)
            ]
        return lap_of_all(own, every)
