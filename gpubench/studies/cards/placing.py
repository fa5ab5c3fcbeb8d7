"""Where a card that was measured here stands among published ones.

The bridge is timm's own program: its published figure of one card is what a figure of the suite `reference` is divided
by, and how far that suite is from timm on one machine widens the interval.
"""

import math
from typing import Any

import pandas as pd

from gpubench.studies.cards.boards import boards
from gpubench.studies.cards.figures import CLASS_OF, Figure, read_figures, short_name
from gpubench.studies.cards.model import NORMAL_90, Model, fitted_model, ratio_of
from gpubench.studies.words import gain, times

STUDY = "placing"
MODEL, PIXELS = "resnet50", "image_size=224"
ANCHOR = ("huggingface/pytorch-image-models", "resnet50-train-224", "pytorch 1.12 timm nhwc")
"""Source, workload and framework of the figure: channels last, in half precision, with torch 1.12."""
FROM_TIMM = 0.05
"""Standard deviation of the logarithm of images/s of the suite over timm's, both on one machine.

benchmarks/against_timm.py with timm 1.0.31 on two CPU cores that others shared, batch 4, one thread, 12 pairs each, CPU
time: 0.997 (95%: 0.962 to 1.026) in fp32, 0.955 (0.929 to 0.977) in bf16; no card was tried. The ratio itself is
taken as 1.
"""
KIND, FAMILY = "half", ("convolution",)


def placed(rows: pd.DataFrame) -> list[str]:
    """A sentence for each card of these rows that can be placed; of a CPU, why it cannot."""
    own = rows[[_has_a_place(row) for _, row in rows.iterrows()]]
    said: list[str] = []
    if own.empty:
        return said
    for (card, device), trials in own.groupby(["card", "device"], sort=False):
        rate = float(trials["samples_per_second"].median())
        said.append(on_cpu(str(card), rate) if device == "cpu" else on_card(str(card), rate, fitted_model()))
    return said


def _has_a_place(row: "pd.Series[Any]") -> bool:
    """Whether it is an ok trial of what the anchor measures."""
    kind = CLASS_OF.get(f"amp-{row['precision']}", CLASS_OF.get(row["precision"]))
    return (
        STUDY in str(row["studies"]).split()
        and (row["model"], row["status"], row["memory_format"], kind) == (MODEL, "ok", "channels_last", KIND)
        and row["mode"] in {"sampled", "full"}
        and PIXELS in str(row["params"]).split()
    )


def anchor() -> Figure:
    """timm's figure."""
    return next(
        each
        for each in read_figures()
        if (each.source, each.workload, each.framework) == ANCHOR and CLASS_OF[each.precision] == KIND
    )


def on_cpu(card: str, rate: float) -> str:
    """Published speeds are of GPUs."""
    base = anchor()
    return (
        f"{card} is a CPU and has no place among published cards; it trains {MODEL} {times(rate / base.speed)} as fast"
        f" as timm's program trained it on an {base.card}."
    )


def on_card(card: str, rate: float, model: Model) -> str:
    """The card over the anchor's, and whether others of its kind are like that."""
    base, short = anchor(), short_name(card)
    log, deviation = math.log(rate / base.speed), own_deviation(model)
    own = ratio_of(log, deviation)
    said = (
        f"{card} trains {MODEL} {times(own.value)} as fast as an {base.card} (90%: {gain(own.low)} to {gain(own.high)})"
    )
    recipe = "The figure of that one is timm's, which is another recipe."
    if not any(cell.card == short and cell.kind == KIND for cell in model.cells):
        alike = short in boards() and boards()[short].architecture == boards()[base.card].architecture
        typical = ratio_of(log, math.hypot(deviation, math.sqrt(model.elsewhere(alike))))
        return (
            f"{said}. Nobody published its speed in half precision; by this one figure it is typically"
            f" {gain(typical.low)} to {times(typical.high)} as fast. {recipe}"
        )
    kind = model.one_workload(short, base.card, KIND, FAMILY)
    apart = (log - math.log(kind.value)) / math.hypot(deviation, math.log(kind.high / kind.value) / NORMAL_90)
    word = "as" if abs(apart) < NORMAL_90 else "faster than" if apart > 0 else "slower than"
    return f"{said}, {word} others of its kind: {gain(kind.low)} to {gain(kind.high)}. {recipe}"


def own_deviation(model: Model) -> float:
    """Of the log ratio to the anchor: both hosts, another torch, and how far the suite is from timm."""
    spreads = model.spreads
    hosts = spreads.of_source(ANCHOR[0]) ** 2 + spreads.usual_source**2
    return spreads.widening * math.sqrt(hosts + spreads.effects["software"] ** 2 + FROM_TIMM**2)
