"""Where a card that was measured here stands among published ones.

The bridge is timm's own program: its published figure of one card is what a figure of the suite `reference` is divided
by, and how far that suite is from timm on one machine widens the interval.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gpubench.studies.cards.boards import boards
from gpubench.studies.cards.figures import CLASS_OF, Figure, read_figures, short_name
from gpubench.studies.cards.model import NORMAL_90, Model, fitted_model, ratio_of
from gpubench.studies.section import Estimate
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
LEAST_BATCH = 64
"""Published figures are of batches that fill the memory; a smaller one is slower than the card."""
WHAT_IT_TAKES = (
    f"it takes unmarked trials of a run without --quick, of {MODEL} on 224 pixels in half precision, on one card, with"
    f" a batch of {LEAST_BATCH} or more"
)


def placed(rows: pd.DataFrame) -> list[str]:
    """A sentence for each card, precision and batch that can be placed; of other cards, why they cannot."""
    about = rows[rows["studies"].map(lambda studies: STUDY in str(studies).split()).astype(bool)]
    return [line for _, own in about.groupby(["card", "device"], sort=False) for line in _said(own)]


def _said(rows: pd.DataFrame) -> Iterator[str]:
    """Of the rows of one card."""
    card = str(rows["card"].iloc[0])
    if (rows["device"] == "cpu").any():
        yield f"{card} is a CPU and has no place among published cards."
        return
    own = rows[[_has_a_place(row) for _, row in rows.iterrows()]]
    if own.empty:
        yield f"{card} gets no place among published cards by these rows: {WHAT_IT_TAKES} (docs/cards.md)."
    for _, trials in own.groupby(["precision", "batch_size"], sort=False):
        rate, batch = float(trials["samples_per_second"].median()), int(trials["batch_size"].iloc[0])
        yield on_card(card, rate, batch, fitted_model())


def _has_a_place(row: "pd.Series[Any]") -> bool:
    """Whether it is a trial of what the anchor measures, against which nothing speaks."""
    kind = CLASS_OF.get(f"amp-{row['precision']}", CLASS_OF.get(row["precision"]))
    return (
        (row["model"], row["status"], row["memory_format"], kind) == (MODEL, "ok", "channels_last", KIND)
        and row["mode"] in {"sampled", "full"}
        and row["processes"] == 1
        and row["batch_size"] >= LEAST_BATCH
        and not str(row["marks"])
        and PIXELS in str(row["params"]).split()
    )


@dataclass(frozen=True)
class ExpectedRate:
    """What published figures of a card lead to, and the numbers of the rows that it is about."""

    rate: Estimate
    """In samples/s, with its 90% interval."""
    rows: frozenset[int]


def expected_rates(rows: pd.DataFrame) -> dict[tuple[str, float], ExpectedRate]:
    """Return the expected rate of one card by precision and batch, where its speed in half precision is published."""
    is_about = rows["studies"].map(lambda studies: STUDY in str(studies).split()).astype(bool)
    rows = rows[is_about & (rows["device"] != "cpu")]
    rows = rows[[_has_a_place(row) for _, row in rows.iterrows()]]
    if rows.empty:
        return {}
    model, base, card = fitted_model(), anchor(), short_name(str(rows["card"].iloc[0]))
    if not any(cell.card == card and cell.kind == KIND for cell in model.cells):
        return {}
    ratio = model.one_workload(card, base.card, KIND, FAMILY)
    deviation = math.hypot(own_deviation(model), math.log(ratio.high / ratio.value) / NORMAL_90)
    expected = ratio_of(math.log(ratio.value), deviation)
    rate = Estimate(base.speed * expected.value, base.speed * expected.low, base.speed * expected.high)
    groups = rows.groupby(["precision", "batch_size"])
    return {
        (trials["precision"].iloc[0], float(trials["batch_size"].iloc[0])): ExpectedRate(rate, frozenset(trials.index))
        for _, trials in groups
    }


def anchor() -> Figure:
    """timm's figure."""
    return next(
        each
        for each in read_figures()
        if (each.source, each.workload, each.framework) == ANCHOR and CLASS_OF[each.precision] == KIND
    )


def on_card(card: str, rate: float, batch: int, model: Model) -> str:
    """The card over the anchor's, and whether others of its kind are like that."""
    base, short = anchor(), short_name(card)
    log, deviation = math.log(rate / base.speed), own_deviation(model)
    own = ratio_of(log, deviation)
    said = (
        f"{card} with a batch of {batch} trains {MODEL} {times(own.value)} as fast as an {base.card}"
        f" (90%: {gain(own.low)} to {gain(own.high)})"
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
