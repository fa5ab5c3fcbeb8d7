"""Makes the row of a trial: copies columns from their sources, and computes those that depend on several sources."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.hardware.environment import Device, Environment, without_names
from gpubench.hardware.state import CardState
from gpubench.rows.column import DIGITS, breaks, in_words
from gpubench.rows.params import params_text
from gpubench.rows.row import ABOUT, COLUMNS, INTEGERS, NUMBERS, QUALITIES, Row
from gpubench.runner.measured_peaks import Peak
from gpubench.suite.trial import TRAINED, Lap, Measurement, Trial


@dataclass(frozen=True)
class Setting:
    """What the trials of a case share besides the case: machine and session."""

    device: Device
    card: CardState
    environment: Environment
    session: str
    until: float | None = None
    projection_range: tuple[float, float] | None = None
    """Range of projected / measured seconds that was seen for the suite."""
    peak: Peak | None = None
    """Highest rates of the device in the case's precision."""


def row_of(trial: Trial, measurement: Measurement, setting: Setting, *, started: str) -> Row:
    """Return the row of one trial."""
    case = trial.case
    sources = {
        "case": case, "trial": trial, "run": setting,
        "device": setting.device, "card": setting.card, "environment": setting.environment, "peak": setting.peak,
        "measurement": measurement, "telemetry": measurement.telemetry,
        # Sampled or synthetic trials have no meaningful quality.
        "quality": {name: value for name, value in measurement.quality.items() if _is_figure(value) and trial.teaches},
    }  # fmt: skip
    values = {
        **copied(COLUMNS, sources),
        **_of_time(measurement, setting.projection_range),
        "studies": " ".join(case.studies),
        "batch_capped": case.batch_capped if case.batch_policy != "fixed" else None,
        "batch_curve": _json(case.batch_curve),
        "params": params_text(case.params),
        "started": started,
        "reason": "; ".join(map(without_names, filter(None, [measurement.reason, *_left_out(measurement.quality)]))),
        "marks": _marks(measurement, setting.peak),
        "allocator_retries": measurement.allocator_retries if setting.device.kind == "cuda" else None,
        "laps": _json([_lap_list(lap) for lap in measurement.laps]),
        "table": _table(measurement.table),
    }
    written: dict[str, Any] = {name: _rounded(value, ABOUT[name].digits) for name, value in values.items()}
    for name in NUMBERS:
        allowed, whole = ABOUT[name].allowed, name in INTEGERS
        if written.get(name) is not None and breaks(written[name], allowed, whole=whole):
            why = f"{name} was {written[name]}, not {in_words(allowed, whole=whole)}: left out"
            written |= {name: None, "reason": "; ".join(filter(None, [written["reason"], why]))}
    return Row(**written)


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _left_out(quality: Mapping[str, object]) -> Iterator[str]:
    """Yield a reason for each quality of the suite that has no column or is no finite number."""
    for name, value in quality.items():
        if name not in QUALITIES:
            yield f"{name}: no such column; qualities are {', '.join(QUALITIES)}"
        elif not _is_figure(value):
            yield f"{name} was {value!r}, not a finite number: left out"


def copied(columns: Iterable[str], sources: Mapping[str, object]) -> dict[str, object]:
    """Return the values of the columns that come from these sources, by column; None if the source is None."""
    values: dict[str, object] = {}
    for name in columns:
        source_name, _, other_name = ABOUT[name].source.partition(".")
        if source_name in sources:
            source, field = sources[source_name], other_name or name
            if isinstance(source, Mapping):
                values[name] = source.get(field)
            else:
                values[name] = None if source is None else getattr(source, field)
    return values


def _of_time(measurement: Measurement, projection_range: tuple[float, float] | None) -> dict[str, object]:
    """Return the seconds of a completed training, measured or projected, and the range of a projection."""
    seconds = measurement.seconds if measurement.status in TRAINED else None
    if seconds is None or measurement.measured:
        return {"seconds": seconds, "measured": "" if seconds is None else "measured"}
    projected: dict[str, object] = {"seconds": seconds, "measured": "projected"}
    later = measurement.later_ratio
    if seconds and (projection_range or later != 1):
        least, most = projection_range or (1.0, 1.0)
        projected |= {"seconds_low": seconds / most * min(1, later), "seconds_high": seconds / least * max(1, later)}
    return projected


def _marks(measurement: Measurement, peak: Peak | None) -> str:
    marks = ["unsteady"] * measurement.unsteady + ["resumed"] * bool(measurement.resumed)
    marks += ["shared_peak"] * bool(peak and peak.shared)
    return " ".join([*measurement.telemetry.marks.split(), *marks])


def _json(values: Sequence[object]) -> str:
    return json.dumps(values, separators=(",", ":")) if values else ""


def _table(lines: Sequence[Mapping[str, str | int | float]]) -> str:
    """Return the lines as a JSON list of lists; the first has the names."""
    values = [[_rounded(v, DIGITS) if isinstance(v, float) else v for v in line.values()] for line in lines]
    return _json([list(lines[0]), *values] if lines else [])


def _lap_list(lap: Lap) -> list[str | int | float]:
    seconds, wait = round(lap.seconds, 6), round(lap.wait_seconds, 6)
    return [lap.phase, lap.epoch, lap.kind, lap.steps, lap.samples, seconds, wait]


def _rounded(value: object, digits: int | None) -> object:
    """Return a number with `digits` significant digits, or None if not finite. Other values stay the same."""
    if digits is None or not isinstance(value, int | float):
        return value
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
