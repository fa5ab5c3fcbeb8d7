"""Scaling as text and charts: T and e against N, busbw against size; what only the model says is dotted."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import Console
from rich.text import Text

from gpubench.comparing.carrying import Rows
from gpubench.comparing.scaling import Curve, Fit, Held, Sums
from gpubench.errors import UserError
from gpubench.show.style import COLOURS, EDGE, FOOTER_CHARACTERS, WIDTH, plain_numbers, save, shortened, themed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = "osD^vP*X"


def print_scaling(curves: Sequence[Curve], sums: Sequence[Sums], held: Sequence[Held], console: Console) -> None:
    """A line for each number of processes, for each thing summed the fastest way, and accuracy by batch."""
    for recipe in held:
        _say(console, f"accuracy as the batch grows: {recipe.title}", bold=True)
        for size, accuracy, trials in recipe.points:
            change = (accuracy - recipe.points[0][1]) * 100
            _say(console, f"  {size:>7} samples a step   {accuracy:.2%}   {change:+.2f} points   {trials} trial(s)")
        _say(console, "")
    for curve in curves:
        _say(console, f"scaling of {curve.title}", bold=True)
        for point in curve.points:
            kind = "model" if point.model else f"{point.trials} trial(s)"
            _say(
                console,
                f"  N {point.processes:>5}   T {point.rate:>12,.1f} samples/s"
                f"   e {point.efficiency:>6.1%} of N={curve.base}'s   {kind}",
            )
        if curve.fit:
            _say(console, f"  model: {fit_text(curve.fit)}")
        _say(console, "")
    for each in sums:
        _say(console, each.title, bold=True)
        for line in each.best():
            fused = ", fused" if line.fused else ""
            what = size_text(line.bytes) if line.what == "message" else f"{line.what} ({size_text(line.bytes)})"
            _say(
                console,
                f"  N {line.processes:>5}   {what:<24} {line.seconds * 1e3:>12,.3f} ms   busbw {line.busbw:>9.4f} GB/s"
                f"   best: {line.algorithm}{fused}",
            )
        for name, fit in each.fits.items():
            _say(console, f"  model of {name}: {fit_text(fit)}")
            if fit.why:
                _say(console, f"    {fit.why}")
        _say(console, "")


def fit_text(fit: Fit) -> str:
    """Alpha, beta and what they are worth."""
    worth = ", ".join(f"off by up to {error:.0%} on {what}, held out" for what, error in fit.errors.items()) or fit.note
    return f"alpha {fit.alpha:.3g} s, beta {fit.beta:.3g} s/byte; {worth}"


def size_text(size: int) -> str:
    """Bytes as powers of 1024."""
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"


def draw_scaling(
    curves: Sequence[Curve],
    sums: Sequence[Sums],
    held: Sequence[Held],
    folder: Path,
    kinds: Sequence[str] = ("png", "svg"),
    theme: str = "light",
    rows: Rows | None = None,
    origin: str = "gpubench",
) -> list[str]:
    """Write `scaling.*`, `allreduce.*` and `largebatch.*`, where there is anything; returns their paths.

    Each carries the rows that `rows` has, and `origin` at its foot.
    """
    import matplotlib

    lines: list[str] = []
    table = rows.all() if rows and (curves or sums or held) else b""
    figures: list[tuple[str, str, Figure]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(themed(theme)):  # type: ignore[arg-type]
            if curves:
                figures.append(("scaling", "scaling: samples per second and efficiency", scaling_chart(curves)))
            if sums:
                figures.append(("allreduce", "all-reduce: bus bandwidth by size", busbw_chart(sums)))
            if held:
                figures.append(("largebatch", "accuracy as the batch grows", accuracy_chart(held)))
            for name, title, figure in figures:
                _headed(figure, title, origin)
                lines += save(figure, folder / name, table, kinds)
    except OSError as error:
        raise UserError(f"--charts {folder}: cannot write there ({error.strerror})") from None
    return lines


def origin_of(frame: pd.DataFrame) -> str:
    """Cards and torch of the rows that were measured, for the foot of a chart."""
    measured = frame[(frame["status"] == "ok") & (frame["mode"] != "published")]
    cards, stacks = (
        [shortened(str(name), 40) for name in measured[column].unique() if name] for column in ("card", "torch")
    )
    return "; ".join(
        [*([", ".join(cards)] if len(cards) < 4 else []), *(f"torch {name}" for name in stacks), "gpubench"]
    )


def _headed(figure: "Figure", title: str, origin: str) -> None:
    """A title at the top left and the origin at the foot, as every other chart has them."""
    import matplotlib

    style = {"x": EDGE / WIDTH, "ha": "left"}
    figure.suptitle(title, fontsize=15, fontweight="bold", **style)
    lines = "\n".join(textwrap.wrap(origin, FOOTER_CHARACTERS))
    figure.supxlabel(lines, fontsize=11, color=matplotlib.rcParams["axes.edgecolor"], **style)


def scaling_chart(curves: Sequence[Curve]) -> "Figure":
    """Samples per second and efficiency against N; dotted with a band as wide as the model's held-out error."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 7.5), layout="constrained")
    rates, shares = figure.subplots(2, 1, sharex=True)
    counts = sorted({point.processes for curve in curves for point in curve.points})
    for number, curve in enumerate(curves):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        measured = [point for point in curve.points if not point.model]
        beyond = [measured[-1], *(point for point in curve.points if point.model)]
        for axes, value in ((rates, "rate"), (shares, "efficiency")):
            x = [point.processes for point in measured]
            axes.plot(x, [getattr(p, value) for p in measured], color=colour, marker=mark, label=curve.title)
            if len(beyond) > 1:
                x, y = [p.processes for p in beyond], [getattr(p, value) for p in beyond]
                axes.plot(
                    x, y, color=colour, linestyle=":", label=f"model of it: {fit_text(curve.fit)}" if curve.fit else ""
                )
                band = curve.fit.band if curve.fit else 0.0
                if band:
                    axes.fill_between(
                        x, [v / (1 + band) for v in y], [v * (1 + band) for v in y], color=colour, alpha=0.15
                    )
    for axes in (rates, shares):
        axes.grid(True, axis="both")
    rates.set_yscale("log")
    plain_numbers(rates.yaxis)
    rates.set_ylabel("T: samples per second")
    shares.set_ylabel("e: share of perfect scaling")
    shares.set_ylim(bottom=0)
    shares.axhline(1, color=matplotlib.rcParams["text.color"], linewidth=1)
    shares.set_xscale("log", base=2)
    shares.set_xticks(counts, [str(count) for count in counts])
    shares.set_xlabel("N: processes (dotted: model, not measured)")
    handles, labels = rates.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", frameon=False, fontsize=9)
    return figure


def busbw_chart(sums: Sequence[Sums]) -> "Figure":
    """Bus bandwidth of messages against their size, a line for each algorithm and number of processes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6 * len(sums) + 0.6), layout="constrained")
    for axes, each in zip(figure.subplots(len(sums), 1, squeeze=False)[:, 0], sums, strict=True):
        counts = sorted({line.processes for line in each.lines})
        for number, name in enumerate(dict.fromkeys(line.algorithm for line in each.lines)):
            for index, count in enumerate(counts):
                lines = sorted(
                    (line.bytes, line.busbw)
                    for line in each.lines
                    if (line.algorithm, line.processes, line.what) == (name, count, "message")
                )
                if lines:
                    axes.plot(
                        *zip(*lines, strict=True), label=f"{name}, N={count}", color=COLOURS[number % len(COLOURS)],
                        marker=MARKS[index % len(MARKS)],
                    )  # fmt: skip
        sizes = sorted({line.bytes for line in each.lines if line.what == "message"})
        axes.grid(True, axis="both")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        plain_numbers(axes.yaxis)
        axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=30)
        axes.set_title(each.title, loc="left", fontsize=10)
        axes.set_ylabel("busbw, GB/s")
        axes.legend(frameon=False, fontsize=9)
    axes.set_xlabel("bytes summed")
    return figure


def accuracy_chart(held: Sequence[Held]) -> "Figure":
    """Accuracy against the samples of a step, a line for each optimizer and precision."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.grid(True, axis="both")
    for number, line in enumerate(held):
        sizes, values = [size for size, *_ in line.points], [value for _, value, _ in line.points]
        style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)]}
        axes.plot(sizes, values, label=line.title, **style)  # type: ignore[arg-type]
    every = sorted({size for line in held for size, *_ in line.points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(every, [str(size) for size in every])
    axes.set_xlabel("samples of a step")
    axes.set_ylabel("accuracy on the test images")
    axes.legend(frameon=False)
    return figure


def _say(console: Console, line: str, bold: bool = False) -> None:
    console.print(Text(line, style="bold" if bold else ""), soft_wrap=True)
