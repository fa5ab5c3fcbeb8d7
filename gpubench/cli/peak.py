"""`gpubench peak`: the highest FLOP/s and GB/s of a device, beside the peaks that its maker lists."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.cli.options import Devices, Precisions
from gpubench.errors import UserError
from gpubench.printed import say

if TYPE_CHECKING:
    from gpubench.hardware.environment import Device
    from gpubench.runner.measured_peaks import Peak
    from gpubench.studies.section import Column, Value

EXAMPLES = "Example: `gpubench peak` or `gpubench peak --device cuda:0 --precision fp32,tf32,fp16`"


def peak(
    device: Devices = "auto",
    precision: Precisions = None,
    threads: Annotated[int, typer.Option(min=0, metavar="N", help="CPU threads; 0 is torch's default.")] = 0,
) -> int:
    """Measure this device's highest FLOP/s and GB/s, and store them for `run`. Exit code 4 if a measurement fails."""
    from gpubench.show.terminal import table_lines
    from gpubench.show.wrap import line_width
    from gpubench.studies.section import Table

    peaks = list(measured(device, ",".join(precision or ["all"]), threads))
    devices = {peak_device.device: peak_device for peak_device, _, _ in peaks}.values()
    table = Table.of("peaks", [dict(line_of(*peak)) for peak in peaks])
    say(*table_lines(table, line_width()), "", *map(source, devices))
    return 4 if any(isinstance(result, str) for _, _, result in peaks) else 0


def measured(device_option: str, precision_option: str, threads: int) -> "Iterator[tuple[Device, str, Peak | str]]":
    """Measure every device and precision in turn; yields the peak, or why there is none."""
    from gpubench.hardware.environment import devices_of
    from gpubench.runner.cases import choose_precisions
    from gpubench.runner.devices import choose_devices
    from gpubench.runner.measured_peaks import CPU_SOAK_SECONDS, SOAK_SECONDS, measure
    from gpubench.runner.process import describe
    from gpubench.suite.precisions import multiplied_in

    facts, print_line = describe(), partial(say, err=True)
    for device in choose_devices(device_option, devices_of(facts)):
        seconds = CPU_SOAK_SECONDS if device.kind == "cpu" else SOAK_SECONDS
        for precision in dict.fromkeys(map(multiplied_in, choose_precisions(precision_option, device))):
            if precision in device.unsupported:
                yield device, precision, device.unsupported[precision]
                continue
            print_line(f"measuring {device.device} in {precision}, after {seconds:.0f} s of warm-up")
            try:
                yield device, precision, measure(device, facts["torch"], precision, threads, seconds, print_line)
            except UserError as error:
                yield device, precision, str(error)
            seconds = CPU_SOAK_SECONDS  # warm by now


def source(device: "Device") -> str:
    """Return where the listed peak of a device comes from, or that it is unknown."""
    from gpubench.studies import listed_peaks

    card = listed_peaks.find(device.card, device.memory_bytes)
    where = f"listed for {card.name}: {card.source}" if card else "listed peak: unknown (not in listed_peaks.toml)"
    return f"{device.device} is {device.card}; {where}"


def line_of(device: "Device", precision: str, result: "Peak | str") -> "list[tuple[Column, Value]]":
    """Return the line of a peak in the table; `result` is the reason if it could not be measured."""
    from gpubench.studies import listed_peaks
    from gpubench.studies.section import Column

    card = listed_peaks.find(device.card, device.memory_bytes)
    listed = card.peak(precision) if card else None
    peak = None if isinstance(result, str) else result
    return [
        (Column("device"), device.device),
        (Column("precision"), precision),
        (Column("TFLOP/s", "x"), peak.flops_per_second / 1e12 if peak else None),
        (Column("listed", "x"), listed / 1e12 if listed else None),
        (Column("share", "share", places=0), peak.flops_per_second / listed if peak and listed else None),
        (Column("side", "count"), peak.side if peak else None),
        (Column("GB/s", "x"), peak.bytes_per_second / 1e9 if peak else None),
        (Column("listed GB/s", "x"), card.bytes_per_second / 1e9 if card else None),
        (Column("us per call", "x"), peak.op_seconds * 1e6 if peak else None),
        (Column("notes", note=True), result if isinstance(result, str) else ""),
    ]
