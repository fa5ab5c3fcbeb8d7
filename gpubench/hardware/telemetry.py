"""Reads the device from the parent process while a child trains on it, and keeps what lies in the timed laps.

Opens no device for computing. What a card, a driver or a container does not report stays empty.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np
import numpy.typing as npt
import psutil

from gpubench.hardware.environment import Device
from gpubench.hardware.state import SLOWED, CardState, Commands, Processes, Reading
from gpubench.suite.trial import Lap, Telemetry

SAMPLE_SECONDS = 0.15
"""Least time between two readings; the parent wakes every 0.2 s. A card renews its figures about ten times a second."""

PROCESSES_SECONDS = 1.0
"""Least time between two looks at the processes on the card."""

LEAST_READINGS = 5
"""Fewer readings in the timed laps, about a second of them, are no mean: power and energy lag behind that much."""

FALLEN = 0.03
"""A clock that falls by this share inside the timed laps is marked: `throttled`, or `clock_fell` under a power cap."""

WINDOW_SECONDS = 5.0
"""A card has settled when the two halves of the last seconds agree."""
CLOCK_TOLERANCE = 0.02
TEMPERATURE_TOLERANCE_CELSIUS = 0.5
"""Between the middles of the halves: a slope of 0.2 degrees a second."""

Floats = npt.NDArray[np.float64]
Span = tuple[float, float]


class CardReader(Protocol):
    """A card as a maker's library shows it."""

    commands: Commands

    def state(self) -> CardState:
        """How it is set up."""

    def read(self) -> Reading:
        """What it says now."""

    def processes(self) -> Processes | None:
        """Who uses it; None where that is not told."""


class Maker(Protocol):
    """What a file of `makers/` has, which reads the cards of one maker. `MAKERS` in readers.py lists these files."""

    KIND: str
    """What torch calls such devices; AMD's cards are `cuda` too."""
    MISSING: str
    """What to install where nothing can be read of one."""

    def library(self) -> ModuleType | None:
        """The maker's library, ready to be asked; None where it or the driver is missing."""

    def find(self, library: ModuleType, device: Device) -> CardReader | None:
        """What reads this device, if the library knows it."""


@dataclass(frozen=True)
class Foreign:
    """How many processes of others are on the card."""

    compute: int
    graphics: int


class Sampler:
    """The readings of one trial.

    Args:
        card: the accelerator, or None.
        cpu_energy: joules that the CPU has used since some moment, or None.
        on_cpu: whether the CPU is the device, so that its energy is the trial's.
        all_processes_visible: whether process ids here are those the driver reports.
        now: seconds of the clock that laps are stamped with.
    """

    def __init__(
        self,
        card: CardReader | None,
        cpu_energy: Callable[[], float | None] = lambda: None,
        *,
        on_cpu: bool = False,
        all_processes_visible: bool = True,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._card, self._cpu_energy, self._on_cpu = card, cpu_energy, on_cpu
        self._all_visible, self._now = all_processes_visible, now
        self._times: list[float] = []
        self._cpu: list[float | None] = []
        self.readings: list[Reading] = []
        self._foreign: list[tuple[float, Foreign | None]] = []
        self._training: float | None = None
        self._told = False
        first = card.read() if card else Reading()
        self._reads = card is not None or cpu_energy() is not None
        self.watches = first.sm_clock_mhz is not None or first.temperature_celsius is not None
        """Whether it can tell the child when the card has settled."""

    def hear(self, event: Mapping[str, object]) -> None:
        """News from the child; with the first lap the card is at work."""
        if event["event"] == "lap" and self._training is None:
            self._training = self._now()

    def tick(self, pid: int) -> Mapping[str, bool] | None:
        """Read what is due; `pid` is the child's. Returns what to tell the child: once, that the card has settled."""
        now = self._now()
        if not self._reads or (self._times and now - self._times[-1] < SAMPLE_SECONDS):
            return None
        self._times.append(now)
        self._cpu.append(self._cpu_energy())
        if self._card is None:
            self.readings.append(Reading())
            return None
        self.readings.append(self._card.read())
        if not self._foreign or now - self._foreign[-1][0] >= PROCESSES_SECONDS:
            self._foreign.append((now, foreign(self._card.processes(), pid, all_visible=self._all_visible)))
        if self._told or not self.watches or self._training is None:
            return None
        self._told = settled(self._times, self.readings, since=self._training)
        return {"settled": True} if self._told else None

    def telemetry(self, laps: Sequence[Lap]) -> Telemetry:
        """The columns, over the timed training laps among `laps`; empty where fewer than a second of them was read.

        Laps that are marked as an earlier process's, of a run that was resumed, do not count: their stamps may be of
        another host, or of this one before it was started anew.
        """
        timed = sorted(
            (lap for lap in laps if lap.phase == "train" and lap.kind == "timed" and not lap.earlier),
            key=lambda lap: lap.started,
        )
        spans = [(lap.started, lap.started + lap.seconds) for lap in timed]
        inside = [reading for reading, within in zip(self.readings, _inside(self._times, spans), strict=True) if within]
        if len(inside) < LEAST_READINGS:
            return Telemetry()
        cpu_joules = _counted(self._times, self._cpu, spans)
        joules, source = (cpu_joules, "rapl") if self._on_cpu else self._card_energy(spans)
        reasons = [reading.reasons for reading in inside if reading.reasons is not None]
        clocks = _values(inside, "sm_clock_mhz")
        others = self._others(spans)
        slowed = any(reason & SLOWED for reason in reasons)
        fallen = fell(clocks) and not slowed
        # Boost gives way to the power cap as a card warms up: no fault, and nothing that heat explains.
        capped = fallen and any("power_cap" in reason for reason in reasons)
        seconds, samples = sum(lap.seconds for lap in timed), sum(lap.samples for lap in timed)
        return Telemetry(
            device_memory_bytes=_whole(_values(inside, "memory_used_bytes")),
            mean_power_watts=joules / seconds if joules is not None else None,
            energy_joules=joules,
            energy_source=source if joules is not None else "",
            joules_per_sample=joules / samples if joules is not None and samples else None,
            cpu_energy_joules=cpu_joules,
            mean_sm_clock_mhz=_mean(clocks),
            min_sm_clock_mhz=min(clocks, default=None),
            mean_memory_clock_mhz=_mean(_values(inside, "memory_clock_mhz")),
            max_temperature_celsius=max(_values(inside, "temperature_celsius"), default=None),
            mean_utilisation=_mean(_values(inside, "utilisation")),
            pcie_generation=_whole(_values(inside, "pcie_generation")),
            pcie_width=_whole(_values(inside, "pcie_width")),
            throttle=_shares(reasons),
            foreign_load="" if self._card is None else _load(others),
            marks=" ".join(
                ["throttled"] * (slowed or (fallen and not capped))
                + ["clock_fell"] * capped
                + ["shared"] * bool(others and others.compute)
            ),
        )

    def _card_energy(self, spans: Sequence[Span]) -> tuple[float | None, str]:
        """Joules by the card's counter, else by its power over time; a counter that stands still is none (vGPU)."""
        counted = _counted(self._times, [reading.energy_joules for reading in self.readings], spans)
        if counted:
            return counted, "counter"
        powers = [reading.power_watts for reading in self.readings]
        times, watts = _known(self._times, powers)
        if not _inside(times, spans).sum() >= LEAST_READINGS:
            return None, ""
        steps = np.diff(times) * (watts[1:] + watts[:-1]) / 2
        return _between(times, np.concatenate([[0.0], np.cumsum(steps)]), spans), "integrated"

    def _others(self, spans: Sequence[Span]) -> Foreign | None:
        times = [at for at, _ in self._foreign]
        seen = [load for (_, load), within in zip(self._foreign, _inside(times, spans), strict=True) if within and load]
        if not seen:
            return None
        return Foreign(max(load.compute for load in seen), max(load.graphics for load in seen))


def foreign(processes: Processes | None, pid: int, *, all_visible: bool) -> Foreign | None:
    """Who is on the card beside the process `pid` and its descendants; None where that cannot be told.

    A driver that does not list our own child, which is at work there, counts in ids of another namespace, so
    nothing can be said of the rest. And in a namespace of our own, others may be there that are not shown.
    """
    if processes is None:
        return None
    own = {each for each in processes.compute | processes.graphics if _descends(each, pid)}
    compute, graphics = processes.compute - own, processes.graphics - processes.compute - own
    if not own or not (compute or all_visible):
        return None
    return Foreign(len(compute), len(graphics))


def _descends(pid: int, root: int) -> bool:
    if pid == root:
        return True
    try:
        return any(parent.pid == root for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return False


def settled(times: Sequence[float], readings: Sequence[Reading], *, since: float) -> bool:
    """Whether SM clock and temperature stayed flat over the last seconds, all of them after `since`."""
    start = times[-1] - WINDOW_SECONDS
    if start < since:
        return False
    window = [(at, reading) for at, reading in zip(times, readings, strict=True) if at >= start]
    early, late = (
        [reading for at, reading in window if (at < start + WINDOW_SECONDS / 2) is first] for first in (True, False)
    )
    clocks = [_mean(_values(half, "sm_clock_mhz")) for half in (early, late)]
    degrees = [_mean(_values(half, "temperature_celsius")) for half in (early, late)]
    return _agree(clocks, CLOCK_TOLERANCE * (clocks[0] or 0)) and _agree(degrees, TEMPERATURE_TOLERANCE_CELSIUS)


def _agree(means: Sequence[float | None], tolerance: float) -> bool:
    early, late = means
    return early is None or late is None or abs(late - early) <= tolerance  # what is not told cannot move


def fell(clocks: Sequence[float]) -> bool:
    """Whether the last quarter of the readings is lower than the first by more than a clock's own flutter."""
    quarter = len(clocks) // 4
    if quarter < 2:
        return False
    first, last = sum(clocks[:quarter]) / quarter, sum(clocks[-quarter:]) / quarter
    return first > 0 and last <= first * (1 - FALLEN)


def _values(readings: Sequence[Reading], name: str) -> list[float]:
    return [value for reading in readings if (value := getattr(reading, name)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _whole(values: Sequence[float]) -> int | None:
    return int(max(values)) if values else None


def _shares(reasons: Sequence[frozenset[str]]) -> str:
    """Share of the readings in which each reason held: `idle=0.1 power_cap=0.85`, or `none`; empty if never told."""
    counts = Counter(name for each in reasons for name in each)
    shares = " ".join(f"{name}={count / len(reasons):.2g}" for name, count in sorted(counts.items()))
    return shares or ("none" if reasons else "")


def _load(others: Foreign | None) -> str:
    if others is None:
        return "unknown"
    parts = [f"{count} {kind}" for count, kind in ((others.compute, "compute"), (others.graphics, "graphics")) if count]
    return ", ".join(parts) or "none"


def _inside(times: Sequence[float] | Floats, spans: Sequence[Span]) -> npt.NDArray[np.bool_]:
    """Which of `times` lie in one of `spans`, which are in order and do not overlap."""
    at = np.asarray(times, dtype=float)
    if not spans:
        return np.zeros(len(at), dtype=bool)
    starts, ends = np.asarray(spans, dtype=float).T
    last = np.searchsorted(starts, at, side="right") - 1
    within: npt.NDArray[np.bool_] = (last >= 0) & (at <= ends[last.clip(0)])
    return within


def _known(times: Sequence[float], values: Sequence[float | None]) -> tuple[Floats, Floats]:
    pairs = [(at, value) for at, value in zip(times, values, strict=True) if value is not None]
    both = np.asarray(pairs, dtype=float).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _counted(times: Sequence[float], counts: Sequence[float | None], spans: Sequence[Span]) -> float | None:
    """What a counter went up by inside `spans`; None where it was read too seldom there."""
    at, values = _known(times, counts)
    return _between(at, values, spans) if _inside(at, spans).sum() >= LEAST_READINGS else None


def _between(times: Floats, counts: Floats, spans: Sequence[Span]) -> float:
    """What was counted inside `spans`; what lies beyond the first and the last reading is taken to be like the rest."""
    starts, ends = np.asarray(spans, dtype=float).T
    seconds = (ends - starts).sum()
    starts, ends = starts.clip(times[0], times[-1]), ends.clip(times[0], times[-1])
    gained = (np.interp(ends, times, counts) - np.interp(starts, times, counts)).sum()
    return float(gained * seconds / (ends - starts).sum())
