"""Compares trials of the reference suite with published figures. `gpubench run` and `gpubench doctor` use it.

The anchor is timm's published figure of one card. The expected rate of another card is that figure times the ratio of
the two cards.
"""

from collections.abc import Collection, Iterator
from typing import Any

import pandas as pd

from gpubench.rows.params import params_of
from gpubench.studies.cards.figures import CLASS_OF, Figure, data_sheets, published, read_figures, short_name
from gpubench.studies.cards.ratio import SpeedRatio, Speeds, measured_cards
from gpubench.studies.section import Estimate
from gpubench.studies.words import times

STUDY = "placing"
MODEL, PIXELS = "resnet50", "224"
ANCHOR = ("huggingface/pytorch-image-models", "resnet50-train-224", "pytorch 1.12 timm nhwc")
"""Source, workload and framework of the anchor: channels last, half precision, torch 1.12."""
KIND, FAMILY = "half", "convolution"
LEAST_BATCH = 64
"""Published figures use batches that fill the memory; a smaller batch is slower."""
REQUIREMENTS = (
    f"needs unmarked trials of a run without --quick, of {MODEL} on 224 pixels in half precision, on one card, with a"
    f" batch of {LEAST_BATCH} or more; docs/comparing.md"
)


def reference_sentences(rows: pd.DataFrame) -> list[str]:
    """Return a sentence for each card, precision and batch: its ratio to the reference, or why it is unranked."""
    cards = _rows_of_study(rows).groupby(["card", "device"], sort=False)
    return [sentence for _, card_rows in cards for sentence in _card_sentences(card_rows)]


def expected_rate(trials: pd.DataFrame) -> Estimate | None:
    """Return the samples/s that published figures predict for the trials of a case, with the 90% interval.

    None if they are no comparable trials of a card with published figures in half precision.
    """
    trials = _rows_of_study(trials)
    if not any(are_comparable(trials[trials["device"] != "cpu"])):
        return None
    return expected_of(short_name(str(trials["card"].iloc[0])))


def expected_of(card: str) -> SpeedRatio | None:
    """Return the images/s that published figures predict for a card, with the 90% interval; None without figures."""
    ratio = reference_ratio(card)
    return ratio.scaled(anchor().speed) if ratio else None


def _rows_of_study(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of suites that declare the study."""
    return rows[rows["studies"].map(lambda studies: STUDY in str(studies).split()).astype(bool)]


def are_comparable(rows: pd.DataFrame, modes: Collection[str] = ("sampled", "full")) -> list[bool]:
    """Return for each row whether it is an unmarked trial of the anchor's workload, in one of these modes."""
    return [_is_comparable(row, modes) for _, row in rows.iterrows()]


def _is_comparable(row: "pd.Series[Any]", modes: Collection[str]) -> bool:
    kind = CLASS_OF.get(f"amp-{row['precision']}", CLASS_OF.get(row["precision"]))
    return (
        (row["model"], row["status"], row["memory_format"], kind) == (MODEL, "ok", "channels_last", KIND)
        and row["mode"] in modes
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
    comparable = rows[are_comparable(rows)]
    if comparable.empty:
        yield f"{card} is unranked: no comparable run ({REQUIREMENTS})."
    for _, trials in comparable.groupby(["precision", "batch_size"], sort=False):
        rate, batch = float(trials["samples_per_second"].median()), int(trials["batch_size"].iloc[0])
        yield _reference_sentence(card, rate, batch)


def anchor() -> Figure:
    """Return timm's figure."""
    return next(
        figure
        for figure in read_figures()
        if (figure.source, figure.workload, figure.framework) == ANCHOR and CLASS_OF[figure.precision] == KIND
    )


def reference_ratio(card: str) -> SpeedRatio | None:
    """Return the ratio of a card to the anchor's by published figures of convolutional models in half precision.

    None for a card without any.
    """
    groups = [group for group in published().groups if group.family == FAMILY]
    if card not in measured_cards(groups)[KIND] or card not in data_sheets():
        return None
    return Speeds(groups, KIND).ratio(card, anchor().card)


def _reference_sentence(card: str, rate: float, batch: int) -> str:
    """Return the rate of a card relative to the anchor, and whether it agrees with the card's published figures."""
    base = anchor()
    start = (
        f"{card} with a batch of {batch} trains {MODEL} at {rate:,.0f} images/s, {times(rate / base.speed)} as fast as"
        f" an {base.card} (timm: {base.figure:,.0f})"
    )
    expected = expected_of(short_name(card))
    if expected is None:
        return f"{start}. This card has no published figure in half precision."
    verdict = (
        "like" if expected.low <= rate <= expected.high else "faster than" if rate > expected.high else "slower than"
    )
    return f"{start}, {verdict} its reference: {expected.low:,.0f} to {expected.high:,.0f} (90% of workloads)."
