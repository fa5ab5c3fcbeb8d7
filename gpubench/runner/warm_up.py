"""Warms a device and measures its peaks before its first trial, once."""

from collections.abc import Callable, Iterable

from gpubench.errors import UserError
from gpubench.runner import measured_peaks
from gpubench.runner.process import RunChild
from gpubench.runner.session import Session
from gpubench.suite.precisions import multiplied_in
from gpubench.suite.trial import Case

SOAK_SECONDS = 30.0
"""A cold accelerator has a higher clock than a warm one."""
SOAK_AFTER_SEARCH_SECONDS = 10.0
"""Shorter, because the batch search has warmed the device already."""

PeakKey = tuple[str, str, int]
"""Device, precision and threads."""


class WarmUp:
    """Warms the session's accelerators and measures the peaks of its devices; a quick run does neither."""

    def __init__(self, session: Session, run_child: RunChild, say: Callable[[str], None]) -> None:
        self._session, self._run_child, self._say = session, run_child, say
        self._soaked: set[str] = set()
        self._peaks: dict[PeakKey, measured_peaks.Peak | None] = {}

    def before(self, case: Case, planned: Iterable[Case], *, searched: bool) -> None:
        """Prepare for a trial of `case`: warm the devices of all planned cases and measure the peak.

        `searched`: whether a batch search has just used the device.
        """
        is_warm = searched and len(self._session.devices) == 1
        devices = {device for planned_case in planned for device in planned_case.devices}
        self._soak(devices, SOAK_AFTER_SEARCH_SECONDS if is_warm else SOAK_SECONDS)
        self._find_peak(case)

    def peak_of(self, case: Case) -> measured_peaks.Peak | None:
        """Return the peak of the case's device in its precision, or None."""
        return self._peaks.get(_key(case))

    def _soak(self, devices: set[str], seconds: float) -> None:
        """Warm each device once, all at the same time."""
        options = self._session.options
        names = sorted(device for device in devices - self._soaked if not device.startswith("cpu"))
        self._soaked.update(names)
        if not names or options.mode == "quick" or not options.soak:
            return
        self._say(f"warming {', '.join(names)} for {seconds:.0f} s, untimed")
        self._run_child({"task": "soak", "devices": names, "seconds": seconds}, time_limit_seconds=seconds + 120)

    def _find_peak(self, case: Case) -> None:
        """Read the peak from the cache, or measure it."""
        session, key = self._session, _key(case)
        if not session.suites[case.suite].suite.torch or key in self._peaks:
            return
        name, precision, threads = key
        device, torch = session.devices[name], session.environment.torch
        self._peaks[key] = measured_peaks.stored(device, torch, precision, threads)
        if self._peaks[key] or session.options.mode == "quick" or not session.options.peaks:
            return
        self._say(f"measuring the peak of {name} in {precision} (once per torch version)")
        try:
            soak = measured_peaks.CPU_SOAK_SECONDS  # an accelerator is warm from the soak
            self._peaks[key] = measured_peaks.measure(
                device, torch, precision, threads, soak, self._say, self._run_child
            )
        except UserError as error:
            self._say(f"{error}; rows will lack it")


def _key(case: Case) -> PeakKey:
    return case.device, multiplied_in(case.precision), int(case.params["threads"])
