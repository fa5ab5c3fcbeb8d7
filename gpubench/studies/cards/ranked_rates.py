"""Ranks rates of the suite `reference` among published figures. `gpubench run` and `gpubench doctor` call it.

The anchor is timm's published rate of one card. The expected rate of another card is the anchor times the speed ratio
of the two cards.
"""

from collections.abc import Collection
from functools import cache

import pandas as pd

from gpubench.rows.params import params_of
from gpubench.studies.cards.figures import CLASS_OF, Figure, published, short_name
from gpubench.studies.cards.ratio import SpeedRatio, Speeds
from gpubench.studies.section import Estimate
from gpubench.studies.words import times
from gpubench.suite.trial import RATE_STUDY

MODEL, PIXELS = "resnet50", "224"
ANCHOR = ("huggingface/pytorch-image-models", "resnet50-train-224", "pytorch 1.12 timm nhwc")
"""Source, workload and framework of the anchor: channels last, half precision, torch 1.12."""
KIND, FAMILY = "half", "convolution"
SLOW_MODES = ("sampled", "full")
LEAST_BATCH = 64
"""Smallest batch that is ranked. Published figures use batches that fill the memory; a smaller batch is slower."""


def reference_sentences(rows: pd.DataFrame) -> list[str]:
    """Return a sentence for each card, precision and batch: the ratio to the anchor, or why the card is not ranked."""
    sentences = []
    for (card, device), card_rows in _rows_of_study(rows).groupby(["card", "device"], sort=False):
        if device == "cpu":
            sentences.append(f"{card} is a CPU; CPUs are not ranked.")
            continue
        comparable = card_rows[are_comparable(card_rows)]
        if comparable.empty:
            sentences.append(f"{card}: {why_not_ranked(card_rows)}")
        for (precision, batch), trials in comparable.groupby(["precision", "batch_size"], sort=False):
            rate, base = float(trials["samples_per_second"].median()), anchor()
            claim = f"{card} with a batch of {batch:.0f} trains {MODEL} at {rate:,.0f} images/s in {precision}"
            claim += f", {times(rate / base.speed)} as fast as an {base.card} (timm: {base.figure:,.0f})"
            sentences.append(f"{claim}. {expected_sentence(short_name(str(card)), rate)}")
    return sentences


def expected_sentence(card: str, rate: float) -> str:
    """Return a sentence: whether a rate in images/s is below, above or in the range of the card's published figures."""
    expected = expected_of(card)
    if expected is None:
        return f"Published rates of convolutional models on {card} are not in our data."
    word = "Below" if rate < expected.low else "Above" if rate > expected.high else "Within"
    low, high = f"{expected.low:,.0f}", f"{expected.high:,.0f}"
    return f"{word} the range that published figures predict for 90% of workloads: {low} to {high} images/s."


def expected_rate(trials: pd.DataFrame) -> Estimate | None:
    """Return the samples/s that published figures predict for the trials of a case, with the 90% interval.

    None if no trial is comparable, or if their card has no published figures in half precision.
    """
    trials = _rows_of_study(trials)
    if not any(are_comparable(trials[trials["device"] != "cpu"])):
        return None
    return expected_of(short_name(str(trials["card"].iloc[0])))


def expected_of(card: str) -> SpeedRatio | None:
    """Return the images/s that published figures of convolutional models predict for a card, with the 90% interval.

    None for a card without such figures in half precision.
    """
    speeds, base = _speeds(), anchor()
    return speeds.ratio(card, base.card).scaled(base.speed) if card in speeds.cards else None


@cache
def _speeds() -> Speeds:
    return Speeds([group for group in published().groups if group.family == FAMILY], KIND)


def _rows_of_study(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["studies"].map(lambda studies: RATE_STUDY in str(studies).split()).astype(bool)]


def are_comparable(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Return for each row whether it is an unmarked trial of the anchor's workload, in one of SLOW_MODES."""
    return pd.DataFrame(_conditions(rows, SLOW_MODES)).all(axis=1)


def why_not_ranked(rows: pd.DataFrame, modes: Collection[str] = SLOW_MODES) -> str:
    """Return, as a sentence, the first condition that no row fulfils together with all conditions before it."""
    left = pd.Series(True, rows.index)
    for condition, fulfilled in _conditions(rows, modes).items():
        left &= fulfilled
        if not left.any():
            return f"Not ranked: a rank needs {condition}."
    return ""


def _conditions(rows: pd.DataFrame, modes: Collection[str]) -> "dict[str, pd.Series[bool]]":
    """Return for each condition of ranking, in words, which rows fulfil it."""
    kinds = rows["precision"].map(lambda name: CLASS_OF.get(f"amp-{name}", CLASS_OF.get(name)))
    pixels = rows["params"].map(lambda text: params_of(text).get("image_size"))
    layouts = rows["params"].map(lambda text: params_of(text).get("memory_format"))
    workload = f"a trial of {MODEL} on {PIXELS} pixels in mixed precision"
    return {
        workload: (rows["model"] == MODEL) & (kinds == KIND) & (pixels == PIXELS),
        f"a {' or '.join(modes)} run": rows["mode"].isin(modes),
        "one card": rows["processes"] == 1,
        "memory_format=auto or channels_last": (layouts == "auto") | (rows["memory_format"] == "channels_last"),
        f"a batch of {LEAST_BATCH} or more, because published figures fill the memory": (
            rows["batch_size"] >= LEAST_BATCH
        ),
        "a trial that ended well, without a mark of other programs, heat or unsteady steps": (
            (rows["status"] == "ok") & (rows["marks"] == "")
        ),
    }


def anchor() -> Figure:
    """Return the anchor: timm's published rate of one card."""
    return next(
        figure
        for figure in published().figures
        if (figure.source, figure.workload, figure.framework) == ANCHOR and CLASS_OF[figure.precision] == KIND
    )
