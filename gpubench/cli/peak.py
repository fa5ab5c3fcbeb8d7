"""`gpubench peak`: the highest rates of a device, beside those that its maker lists."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.cli.options import Devices, Precisions
from gpubench.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from gpubench.hardware.environment import Device
    from gpubench.runner.measured_peaks import Peak

EXAMPLES = "Example: `gpubench peak` or `gpubench peak --device cuda:0 --precision fp32,tf32,fp16`"
SOME_FAILED = 4
"""Exit code."""
NUMBERS = ("TFLOP/s", "listed", "share", "matrix side", "GB/s", "listed GB/s", "us per call")


def peak(
    device: Devices = "auto",
    precision: Precisions = "all",
    threads: Annotated[int, typer.Option(min=0, metavar="N", help="CPU threads; 0 is torch's default.")] = 0,
) -> int:
    """Measure the highest rate of this device, and store it for `run`. Exit code 4 if any measurement fails."""
    from gpubench.console import Screen

    peaks = list(measured(device, precision, threads))
    console = Screen()
    console.print(table(peaks))
    for measured_device in {peak_device.device: peak_device for peak_device, _, _ in peaks}.values():
        console.print(source(measured_device), markup=False, soft_wrap=True)
    return SOME_FAILED if any(isinstance(result, str) for _, _, result in peaks) else 0


def measured(device_option: str, precision_option: str, threads: int) -> "Iterator[tuple[Device, str, Peak | str]]":
    """Measure every device and precision in turn; yields the peak, or why there is none."""
    from gpubench.console import Screen
    from gpubench.hardware.environment import devices_of
    from gpubench.runner.cases import choose_precisions
    from gpubench.runner.devices import choose_devices
    from gpubench.runner.measured_peaks import CPU_SOAK_SECONDS, measure
    from gpubench.runner.process import describe
    from gpubench.runner.warm_up import SOAK_SECONDS
    from gpubench.suite.precisions import multiplied_in

    console = Screen(stderr=True)
    facts = describe()
    for device in choose_devices(device_option, devices_of(facts)):
        seconds = CPU_SOAK_SECONDS if device.kind == "cpu" else SOAK_SECONDS
        for precision in dict.fromkeys(map(multiplied_in, choose_precisions(precision_option, device))):
            if precision in device.unsupported:
                yield device, precision, device.unsupported[precision]
                continue
            console.print(f"measuring {device.device} in {precision}, after {seconds:.0f} s of warm-up", markup=False)
            try:
                yield device, precision, measure(device, facts["torch"], precision, threads, seconds, console.print)
            except UserError as error:
                yield device, precision, str(error)
            seconds = CPU_SOAK_SECONDS  # warm by now


def table(peaks: "list[tuple[Device, str, Peak | str]]") -> "Table":
    """Return a table with a line for each device and precision, without columns that are empty."""
    from rich.table import Table

    lines = [_line(device, precision, result) for device, precision, result in peaks]
    result = Table(box=None, pad_edge=False)
    names = [name for name in lines[0] if any(line[name] for line in lines)]
    for name in names:
        result.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=name in NUMBERS)
    for line in lines:
        result.add_row(*(line[name] for name in names))
    return result


def source(device: "Device") -> str:
    """Return where the listed peak of a device comes from, or that it is unknown."""
    from gpubench.studies import listed_peaks

    card = listed_peaks.find(device.card, device.memory_bytes)
    where = f"listed for {card.name}: {card.source}" if card else "peak: unknown (not in listed_peaks.toml)"
    return f"{device.device} is {device.card}; {where}"


def _line(device: "Device", precision: str, measured: "Peak | str") -> dict[str, str]:
    from gpubench.studies import listed_peaks

    card = listed_peaks.find(device.card, device.memory_bytes)
    listed = card.peak(precision) if card else None
    line = {"device": device.device, "precision": precision} | dict.fromkeys(NUMBERS, "")
    line["listed"] = f"{listed / 1e12:.4g}" if listed else ""
    line["listed GB/s"] = f"{card.bytes_per_second / 1e9:.4g}" if card else ""
    line["notes"] = measured if isinstance(measured, str) else ""
    if not isinstance(measured, str):
        line["TFLOP/s"] = f"{measured.flops_per_second / 1e12:.4g}"
        line["share"] = f"{measured.flops_per_second / listed:.0%}" if listed else ""
        line["matrix side"] = str(measured.side)
        line["GB/s"] = f"{measured.bytes_per_second / 1e9:.4g}"
        line["us per call"] = f"{measured.op_seconds * 1e6:.3g}"
    return line
