"""The laps of one phase while its steps run: what the running lap holds, and how long the next one will be."""

from dataclasses import replace

from gpubench.suite.trial import Lap
from gpubench.training.clock.projection import Phase
from gpubench.training.clock.sampling import Sampling, Stop


class Laps:
    """Laps of one pass over a loader.

    A lap has one step at first and twice as many each time it was too short to be timed well, so that the device's
    queue is drained as rarely as can be; at first as many as `steps` where an earlier pass has shown how many it takes.

    Args:
        phase: its name.
        epoch: the number of the epoch.
        stop: what says whether a lap is warm-up and whether the pass can end.
        sampling: how long a lap is to be at least, and how many there may be.
        total_steps: steps of a whole pass; 0 where nobody knows.
        now: when the first lap begins.
        steps: of the first lap.
    """

    def __init__(
        self, phase: str, epoch: int, stop: Stop, sampling: Sampling, total_steps: int, now: float, steps: int = 1
    ) -> None:
        self.done: list[Lap] = []
        self.stop = stop
        self.wait = 0.0
        """Seconds of the running lap that went into waiting for the loader."""
        self._phase, self._epoch, self._total_steps, self._started = phase, epoch, total_steps, now
        self._steps = self._samples = self._first_samples = 0
        self._lap_seconds, self._lap_steps = sampling.lap_seconds, steps
        most = sampling.most_laps
        self._least_steps = -(-total_steps // most) if most and total_steps else 1

    def step(self, samples: int) -> None:
        """A step over so many samples is done."""
        self._first_samples = self._first_samples or samples
        self._steps += 1
        self._samples += samples

    @property
    def due(self) -> bool:
        """Whether the running lap has its steps."""
        return self._steps >= self._lap_steps

    @property
    def long_enough(self) -> int:
        """Steps of a lap that can be timed well, by the pace of the last one: those of a whole pass at most."""
        last, steps = self.done[-1], self._lap_steps
        while steps < self._total_steps and steps * last.seconds < self._lap_seconds * last.steps:
            steps *= 2
        return min(steps, self._total_steps or steps)

    @property
    def nothing_left(self) -> bool:
        """Whether nothing happened since the last lap, of which there is one."""
        return bool(self.done) and not self._steps and not self.wait

    def running(self, now: float) -> Lap:
        """The running lap, were it over now."""
        seconds = now - self._started
        return Lap(
            self._phase, self._epoch, self.stop.kind, self._steps, self._samples, seconds, self.wait, self._started
        )

    def close(self, lap: Lap, now: float) -> None:
        """The running lap is over, and `lap` is what all processes make of it; the next one begins now."""
        self.done.append(lap)
        self.stop.add(lap)
        if lap.seconds < self._lap_seconds or self._lap_steps < self._least_steps:
            self._lap_steps = min(self._lap_steps * 2, self._total_steps or self._lap_steps * 2)
        self._started, self._steps, self._samples, self.wait = now, 0, 0, 0.0

    def end(self, lap: Lap) -> None:
        """Take in what came after the last whole lap: a shorter one, or the time the loader took to say it is over."""
        if lap.steps or not self.done:
            self.done.append(lap)
            return
        last = self.done[-1]
        self.done[-1] = replace(
            last, seconds=last.seconds + lap.seconds, wait_seconds=last.wait_seconds + lap.wait_seconds
        )

    def as_phase(self, samples: int | None, world: int, *, cut: bool, left: bool) -> Phase:
        """What the projection needs to know of this pass.

        Args:
            samples: samples of a whole pass, where they are known.
            world: processes that share the samples.
            cut: whether the pass was stopped because it knew enough.
            left: whether the suite left its loop, so that there was no more to it.
        """
        seen = sum(lap.samples for lap in self.done)
        # A loader that came to its end has shown how much there was.
        whole = seen if samples is None else samples
        if samples is None and cut:
            whole = self._total_steps * self._first_samples * world
        if self._total_steps and sum(lap.steps for lap in self.done) >= self._total_steps:
            cut = False  # stopped exactly at the end
        total = seen if left else max(seen, whole)
        return Phase(self._phase, self._epoch, tuple(_some_timed(self.done)), total, cut)


def _some_timed(laps: list[Lap]) -> list[Lap]:
    """Where a phase ended before it was steady, all laps but the first count as timed."""
    if not laps or any(lap.kind == "timed" for lap in laps):
        return laps
    if len(laps) == 1:
        return [replace(laps[0], kind="timed")]
    return [laps[0], *(replace(lap, kind="timed") for lap in laps[1:])]
