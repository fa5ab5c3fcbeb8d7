"""Compares trials of the reference suite with published figures. `gpubench run` and `gpubench doctor` use it.

The anchor is timm's published figure of one card: a trial's rate is divided by it. The difference between the suite and
timm on one machine (FROM_TIMM) widens the interval.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gpubench.rows.params import params_of
from gpubench.studies.cards.figures import CLASS_OF, Figure, data_sheets, read_figures, short_name
from gpubench.studies.cards.model import NORMAL_90, Model, SpeedRatio, fitted_model, ratio_of
from gpubench.studies.section import Estimate
from gpubench.studies.words import gain, times

STUDY = "placing"
MODEL, PIXELS = "resnet50", "224"
ANCHOR = ("huggingface/pytorch-image-models", "resnet50-train-224", "pytorch 1.12 timm nhwc")
"""Source, workload and framework of the anchor: channels last, half precision, torch 1.12."""
FROM_TIMM = 0.05
"""Standard deviation of the log ratio of the suite's images/s to timm's, on one machine.

benchmarks/against_timm.py with timm 1.0.31 on two CPU cores that others shared, batch 4, one thread, 12 pairs each, CPU
time: 0.997 (95%: 0.962 to 1.026) in fp32, 0.955 (0.929 to 0.977) in bf16; no card was tried. The ratio itself is
taken as 1.
"""
KIND, FAMILY = "half", ("convolution",)
LEAST_BATCH = 64
"""Published figures use batches that fill the memory; a smaller batch is slower."""
REQUIREMENTS = (
    f"needs unmarked trials of a run without --quick, of {MODEL} on 224 pixels in half precision, on one card, with a"
    f" batch of {LEAST_BATCH} or more; docs/comparing.md"
)


@dataclass(frozen=True)
class ExpectedRate:
    """The rate that published figures predict, and the numbers of its rows."""

    rate: Estimate
    """In samples/s, with its 90% interval."""
    rows: frozenset[int]


def reference_sentences(rows: pd.DataFrame) -> list[str]:
    """Return a sentence for each card, precision and batch: its ratio to the reference, or why it is unranked."""
    cards = _rows_of_study(rows).groupby(["card", "device"], sort=False)
    return [sentence for _, card_rows in cards for sentence in _card_sentences(card_rows)]


def expected_rates(rows: pd.DataFrame) -> dict[tuple[str, float], ExpectedRate]:
    """Return the expected rate of one card by precision and batch, if its speed in half precision is published."""
    rows = _rows_of_study(rows)
    rows = rows[rows["device"] != "cpu"]
    rows = rows[_are_comparable(rows)]
    if rows.empty:
        return {}
    model, base, card = fitted_model(), anchor(), short_name(str(rows["card"].iloc[0]))
    if not model.has_figures(card, KIND):
        return {}
    ratio = model.one_workload(card, base.card, KIND, FAMILY)
    expected = ratio_of(math.log(ratio.value), _joint_deviation(model, ratio))
    rate = expected.scaled(base.speed)
    return {
        (trials["precision"].iloc[0], float(trials["batch_size"].iloc[0])): ExpectedRate(rate, frozenset(trials.index))
        for _, trials in rows.groupby(["precision", "batch_size"])
    }


def _rows_of_study(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of suites that declare the study."""
    return rows[rows["studies"].map(lambda studies: STUDY in str(studies).split()).astype(bool)]


def _are_comparable(rows: pd.DataFrame) -> list[bool]:
    """Return for each row whether it is an unmarked trial of the anchor's workload."""
    return [_is_comparable(row) for _, row in rows.iterrows()]


def _is_comparable(row: "pd.Series[Any]") -> bool:
    kind = CLASS_OF.get(f"amp-{row['precision']}", CLASS_OF.get(row["precision"]))
    return (
        (row["model"], row["status"], row["memory_format"], kind) == (MODEL, "ok", "channels_last", KIND)
        and row["mode"] in {"sampled", "full"}
        and row["processes"] == 1
        and row["batch_size"] >= LEAST_BATCH
        and not str(row["marks"])
        and params_of(row["params"]).get("image_size") == PIXELS
    )


def _card_sentences(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the sentences about the rows of one card."""
    card = str(rows["card"].iloc[0])
    if (rows["device"] == "cpu").any():
        yield f"{card} is a CPU; CPUs are not ranked."
        return
    comparable = rows[_are_comparable(rows)]
    if comparable.empty:
        yield f"{card} is unranked: no comparable run ({REQUIREMENTS})."
    for _, trials in comparable.groupby(["precision", "batch_size"], sort=False):
        rate, batch = float(trials["samples_per_second"].median()), int(trials["batch_size"].iloc[0])
        yield _reference_sentence(card, rate, batch, fitted_model())


def anchor() -> Figure:
    """Return timm's figure."""
    return next(
        figure
        for figure in read_figures()
        if (figure.source, figure.workload, figure.framework) == ANCHOR and CLASS_OF[figure.precision] == KIND
    )


def _reference_sentence(card: str, rate: float, batch: int, model: Model) -> str:
    """Return the ratio of a card to the anchor's, and whether it agrees with the card's published figures."""
    base, name = anchor(), short_name(card)
    log, deviation = math.log(rate / base.speed), anchor_deviation(model)
    ratio = ratio_of(log, deviation)
    start = (
        f"{card} with a batch of {batch} trains {MODEL} {times(ratio.value)} as fast as an {base.card}"
        f" ({ratio.interval_text})"
    )
    caveat = f"The figure of {base.card} is timm's, with another recipe."
    if not model.has_figures(name, KIND):
        sheets = data_sheets()
        same_architecture = name in sheets and sheets[name].architecture == sheets[base.card].architecture
        typical = ratio_of(log, math.hypot(deviation, math.sqrt(model.workload_variance(same_architecture))))
        return (
            f"{start}. It has no published figure in half precision; other models: {gain(typical.low)} to"
            f" {times(typical.high)} as fast, from this figure alone. {caveat}"
        )
    reference = model.one_workload(name, base.card, KIND, FAMILY)
    distance = (log - math.log(reference.value)) / _joint_deviation(model, reference)
    verdict = "like" if abs(distance) < NORMAL_90 else "faster than" if distance > 0 else "slower than"
    return f"{start}, {verdict} its reference: {gain(reference.low)} to {gain(reference.high)}. {caveat}"


def anchor_deviation(model: Model) -> float:
    """Return the standard deviation of the log ratio to the anchor: both hosts, another torch, the suite and timm."""
    spreads = model.spreads
    hosts = spreads.of_source(ANCHOR[0]) ** 2 + spreads.usual_source**2
    return spreads.widening * math.sqrt(hosts + spreads.effects["software"] ** 2 + FROM_TIMM**2)


def _joint_deviation(model: Model, ratio: SpeedRatio) -> float:
    """Return the standard deviation of a trial's log ratio minus the published one."""
    return math.hypot(anchor_deviation(model), math.log(ratio.high / ratio.value) / NORMAL_90)
