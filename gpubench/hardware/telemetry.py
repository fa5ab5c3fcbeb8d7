"""Reads the device's sensors in the parent process while a child trains, and summarises the readings in timed laps.

The runner and `doctor` call it. Never computes on a device. Values that a card or driver does not report stay empty.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import psutil

from gpubench.hardware.state import IDLE_UTILISATION, SLOWED, CardState, Commands, Processes, Reading
from gpubench.suite.trial import Lap, Telemetry

SAMPLE_SECONDS = 0.15
"""Least time between two readings; the parent wakes every 0.2 s. Cards update their sensors about every 0.1 s."""
PROCESSES_SECONDS = 1.0
"""Least time between two lists of the processes on the card."""
LEAST_READINGS = 5
"""With fewer readings in the timed laps (about a second) there is no mean: power and energy lag by about a second."""
FALLEN = 0.03
"""A clock that falls by this share inside the timed laps is marked `clock_fell`: normal for a card that gets warm."""
SLUMPED = 0.1
"""A clock that falls by this share without a power cap is marked `throttled`."""
STRAY_SHARE = 0.05
"""Up to this share of readings may have `hw_slowdown`, which NVML also reports while the clock changes."""
WINDOW_SECONDS = 5.0
"""A card has settled when the means of clock and temperature agree in the two halves of this window."""
CLOCK_TOLERANCE = 0.02
TEMPERATURE_TOLERANCE_CELSIUS = 0.5
"""Largest differences between the halves' means. For the temperature that is a trend of 0.2 degrees per second."""
Floats = npt.NDArray[np.float64]
Span = tuple[float, float]


class CardReader(Protocol):
    """Reads one card through its maker's library."""

    commands: Commands

    def state(self) -> CardState:
        """Return the settings of the card."""

    def read(self) -> Reading:
        """Return the sensors' values now."""

    def processes(self) -> Processes | None:
        """Return the processes on the card, or None if unknown."""


class Sampler:
    """Collects the readings of one trial.

    `cpu_energy` returns the CPU's energy counter in joules; a trial `on_cpu` gets this energy as its own. With
    `all_processes_visible`, process ids here are those that the driver reports. `now` is the clock of the laps.
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
        self._foreign: list[tuple[float, Processes | None]] = []
        self._training: float | None = None
        self._settled = False
        self._max_clock_mhz = card.state().card_max_sm_clock_mhz if card else None
        first = card.read() if card else Reading()
        self._reads = card is not None or cpu_energy() is not None
        self.watches = first.sm_clock_mhz is not None or first.temperature_celsius is not None
        """Whether it can notify the child when the card has settled."""

    def note(self, event: Mapping[str, object]) -> None:
        """Note when the child's first lap with a rate ends. Before that, a card idles while code is compiled."""
        if event["event"] == "lap" and event.get("rate") and self._training is None:
            self._training = self._now()

    def tick(self, pid: int) -> Mapping[str, bool] | None:
        """Read the sensors that are due; return a message for the child (process `pid`) if `settled` has changed."""
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
        if not self.watches or self._training is None:
            return None
        before, since = self._settled, self._training
        self._settled = settled(self._times, self.readings, since=since, max_clock_mhz=self._max_clock_mhz)
        return {"settled": self._settled} if self._settled != before else None

    def telemetry(self, laps: Sequence[Lap]) -> Telemetry:
        """Return the telemetry columns over the timed training laps.

        With less than a second of readings in these laps, as in quick runs, only the foreign load is returned, over
        all laps. Laps of an earlier process (before the run was resumed) do not count: they may be from another host or
        from before a restart.
        """
        timed = sorted(
            (lap for lap in laps if lap.phase == "train" and lap.kind == "timed" and not lap.earlier),
            key=lambda lap: lap.started,
        )
        spans = [(lap.started, lap.started + lap.seconds) for lap in timed]
        inside = [reading for reading, within in zip(self.readings, _inside(self._times, spans), strict=True) if within]
        if len(inside) < LEAST_READINGS:
            others = self.others(sorted((lap.started, lap.started + lap.seconds) for lap in laps if not lap.earlier))
            if others is None:
                return Telemetry()
            return Telemetry(foreign_load=_load(others), marks="shared" if others["compute"] else "")
        cpu_joules = _counted(self._times, self._cpu, spans)
        joules, source = (cpu_joules, "rapl") if self._on_cpu else self._card_energy(spans)
        reasons = [reading.reasons for reading in inside if reading.reasons is not None]
        clocks = _values(inside, "sm_clock_mhz")
        others = self.others(spans)
        capped = any("power_cap" in reason for reason in reasons)
        throttled = slowed(reasons) or (fell(clocks, SLUMPED) and not capped)
        marks = {
            "throttled": throttled,
            "clock_fell": fell(clocks, FALLEN) and not throttled,
            "shared": others and others["compute"],
        }
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
            marks=" ".join(mark for mark, applies in marks.items() if applies),
        )

    def _card_energy(self, spans: Sequence[Span]) -> tuple[float | None, str]:
        """Return joules and their source: the card's counter, or power over time if it is stuck (vGPU) or was reset."""
        counted = _counted(self._times, [reading.energy_joules for reading in self.readings], spans)
        if counted:
            return counted, "counter"
        powers = [reading.power_watts for reading in self.readings]
        times, watts = _without_none(self._times, powers)
        if not _inside(times, spans).sum() >= LEAST_READINGS:
            return None, ""
        steps = np.diff(times) * (watts[1:] + watts[:-1]) / 2
        return _between(times, np.concatenate([[0.0], np.cumsum(steps)]), spans), "integrated"

    def others(self, spans: Sequence[Span] = ((0.0, math.inf),)) -> dict[str, int] | None:
        """Return the largest numbers of `compute` and `graphics` processes of others in `spans`; None if unknown."""
        times = [at for at, _ in self._foreign]
        loads = zip(self._foreign, _inside(times, spans), strict=True)
        known_loads = [load for (_, load), within in loads if within and load]
        if not known_loads:
            return None
        return {kind: max(len(getattr(load, kind)) for load in known_loads) for kind in ("compute", "graphics")}


def foreign(processes: Processes | None, pid: int, *, all_visible: bool) -> Processes | None:
    """Return the processes on the card that do not belong to process `pid`, or None if unknown.

    If the driver does not list our child, it reports the ids of another namespace, so the others are unknown. If we
    have a namespace of our own (not `all_visible`), the driver may hide processes of others.
    """
    if processes is None:
        return None
    trial = {process for process in processes.compute | processes.graphics if _descends(process, pid)}
    compute, graphics = processes.compute - trial, processes.graphics - processes.compute - trial
    if not trial or not (compute or all_visible):
        return None
    return Processes(compute, graphics)


def _descends(pid: int, root: int) -> bool:
    if pid == root:
        return True
    try:
        return any(parent.pid == root for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return False


def settled(
    times: Sequence[float], readings: Sequence[Reading], *, since: float, max_clock_mhz: float | None = None
) -> bool:
    """Return whether SM clock and temperature under load were constant in the last WINDOW_SECONDS, all after `since`.

    At `max_clock_mhz` the temperature may still rise: it does not limit the clock yet. Without this exception an H100
    at its highest clock warmed up for 19 s.
    """
    start = times[-1] - WINDOW_SECONDS
    if start < since:
        return False
    window = [(at, reading) for at, reading in zip(times, readings, strict=True) if at >= start]
    loaded = [(at, reading) for at, reading in window if _is_loaded(reading)]
    early, late = (
        [reading for at, reading in loaded if (at < start + WINDOW_SECONDS / 2) is first] for first in (True, False)
    )
    if not early or not late or 2 * len(loaded) < len(window):
        return False
    if max_clock_mhz and all((reading.sm_clock_mhz or 0) >= max_clock_mhz for _, reading in loaded):
        return True
    clocks = [_mean(_values(half, "sm_clock_mhz")) for half in (early, late)]
    degrees = [_mean(_values(half, "temperature_celsius")) for half in (early, late)]
    return _agree(clocks, CLOCK_TOLERANCE * (clocks[0] or 0)) and _agree(degrees, TEMPERATURE_TOLERANCE_CELSIUS)


def _is_loaded(reading: Reading) -> bool:
    idle = "idle" in (reading.reasons or ())
    return not idle and (reading.utilisation is None or reading.utilisation > IDLE_UTILISATION)


def _agree(means: Sequence[float | None], tolerance: float) -> bool:
    early, late = means
    return early is None or late is None or abs(late - early) <= tolerance  # unknown values are taken as constant


def slowed(reasons: Sequence[frozenset[str]]) -> bool:
    """Return whether a fault lowered the clock: heat or a power brake at any time, or slowdown in many readings."""
    slowdowns = sum("hw_slowdown" in reason for reason in reasons)
    return any(reason & SLOWED - {"hw_slowdown"} for reason in reasons) or slowdowns > STRAY_SHARE * len(reasons)


def fell(clocks: Sequence[float], share: float) -> bool:
    """Return whether the mean of the last quarter of the readings is at least `share` below the first quarter's."""
    quarter = len(clocks) // 4
    if quarter < 2:
        return False
    first, last = sum(clocks[:quarter]) / quarter, sum(clocks[-quarter:]) / quarter
    return first > 0 and last <= first * (1 - share)


def _values(readings: Sequence[Reading], name: str) -> list[float]:
    return [value for reading in readings if (value := getattr(reading, name)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _whole(values: Sequence[float]) -> int | None:
    return int(max(values)) if values else None


def _shares(reasons: Sequence[frozenset[str]]) -> str:
    """Return the share of readings with each reason: `idle=0.1 power_cap=0.85`, or `none`; empty if unknown."""
    counts = Counter(name for reason in reasons for name in reason)
    shares = " ".join(f"{name}={count / len(reasons):.2g}" for name, count in sorted(counts.items()))
    return shares or ("none" if reasons else "")


def _load(others: Mapping[str, int] | None) -> str:
    if others is None:
        return "unknown"
    return ", ".join(f"{count} {kind}" for kind, count in others.items() if count) or "none"


def _inside(times: Sequence[float] | Floats, spans: Sequence[Span]) -> npt.NDArray[np.bool_]:
    """Return which of `times` are inside one of `spans`, which are in order and do not overlap."""
    at = np.asarray(times, dtype=float)
    if not spans:
        return np.zeros(len(at), dtype=bool)
    starts, ends = np.asarray(spans, dtype=float).T
    last = np.searchsorted(starts, at, side="right") - 1
    within: npt.NDArray[np.bool_] = (last >= 0) & (at <= ends[last.clip(0)])
    return within


def _without_none(times: Sequence[float], values: Sequence[float | None]) -> tuple[Floats, Floats]:
    pairs = [(at, value) for at, value in zip(times, values, strict=True) if value is not None]
    both = np.asarray(pairs, dtype=float).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _counted(times: Sequence[float], counts: Sequence[float | None], spans: Sequence[Span]) -> float | None:
    """Return the increase of a counter inside `spans`; None with too few readings there, or if it ever fell."""
    at, values = _without_none(times, counts)
    is_usable = _inside(at, spans).sum() >= LEAST_READINGS and (np.diff(values) >= 0).all()
    return _between(at, values, spans) if is_usable else None


def _between(times: Floats, counts: Floats, spans: Sequence[Span]) -> float:
    """Return the increase inside `spans`, extrapolated to the parts before the first and after the last reading."""
    starts, ends = np.asarray(spans, dtype=float).T
    seconds = (ends - starts).sum()
    starts, ends = starts.clip(times[0], times[-1]), ends.clip(times[0], times[-1])
    gained = (np.interp(ends, times, counts) - np.interp(starts, times, counts)).sum()
    return float(gained * seconds / (ends - starts).sum())
