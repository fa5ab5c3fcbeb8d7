"""`gpubench peak`: what the device reaches, beside what its maker lists.

It needs the measuring and the comparing side, which do not import each other; so it is part of neither.
"""

from rich.table import Table

from gpubench.console import Screen
from gpubench.hardware.environment import Device
from gpubench.runner import measured_peaks
from gpubench.runner.measured_peaks import Peak
from gpubench.studies import listed_peaks
from gpubench.studies.listed_peaks import ListedCard

SOME_FAILED = 4
NUMBERS = ("TFLOP/s", "listed", "share", "matrix side", "GB/s", "listed GB/s", "us per call")


def run_peak(devices: str, precisions: str, threads: int) -> int:
    """Measure, remember and print; the exit code is 4 where any could not be measured."""
    found = list(measured_peaks.report(devices, precisions, threads))
    console = Screen()
    console.print(table(found))
    for device in dict.fromkeys(device.device for device, _, _ in found):
        console.print(source(next(each for each, _, _ in found if each.device == device)), markup=False, soft_wrap=True)
    return 0 if all(isinstance(each, Peak) for _, _, each in found) else SOME_FAILED


def table(found: list[tuple[Device, str, Peak | str]]) -> Table:
    """A line per device and precision; a column that has nothing to say is left out."""
    lines = [_line(device, precision, measured) for device, precision, measured in found]
    shown = Table(box=None, pad_edge=False)
    names = [name for name in lines[0] if any(line[name] for line in lines)]
    for name in names:
        shown.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=name in NUMBERS)
    for line in lines:
        shown.add_row(*(line[name] for name in names))
    return shown


def source(device: Device) -> str:
    """Where the listed peak of a device comes from, or that there is none."""
    card = _listed(device)
    where = (
        f"listed for {card.name}: {card.source}" if card else "peak: unknown (listed_peaks.toml has none of this name)"
    )
    return f"{device.device} is {device.card}; {where}"


def _listed(device: Device) -> ListedCard | None:
    return listed_peaks.find(device.card, device.memory_bytes)


def _line(device: Device, precision: str, measured: Peak | str) -> dict[str, str]:
    card = _listed(device)
    listed = card.peak(precision) if card else None
    line = {"device": device.device, "precision": precision} | dict.fromkeys(NUMBERS, "")
    line["listed"] = f"{listed / 1e12:.4g}" if listed else ""
    line["listed GB/s"] = f"{card.bytes_per_second / 1e9:.4g}" if card else ""
    line["notes"] = measured if isinstance(measured, str) else ""
    if isinstance(measured, Peak):
        line["TFLOP/s"] = f"{measured.flops_per_second / 1e12:.4g}"
        line["share"] = f"{measured.flops_per_second / listed:.0%}" if listed else ""
        line["matrix side"] = str(measured.side)
        line["GB/s"] = f"{measured.bytes_per_second / 1e9:.4g}" if measured.bytes_per_second else ""
        line["us per call"] = f"{measured.op_seconds * 1e6:.3g}" if measured.op_seconds else ""
    return line
