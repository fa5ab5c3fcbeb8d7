"""Figures of a row that can be compared (--metric, --price), and the choice of rows (--where). `compare` calls it."""

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from gpubench.analysis.groups import CPU, CUT_SHORT, numbered, short
from gpubench.analysis.matching import values_named
from gpubench.analysis.stats import Ratio, median
from gpubench.errors import UserError, did_you_mean
from gpubench.rows.alike import TRIAL
from gpubench.rows.read import stored
from gpubench.rows.row import COLUMNS, FLAGS, NUMBERS
from gpubench.rows.table import BROKEN, PLAUSIBLE
from gpubench.suite.trial import TRAINED, counts_by_rate

HOURS_PER_YEAR = 8766
Prices = Path | Mapping[str, Any]
"""Dollars per hour by card, or a TOML file with them: see `read_prices`."""
OTHER_CARD = frozenset({"ti", "super", "xt", "xtx", "d", "max", "q", "laptop", "mobile", "ada", "pro", "mig"})
"""Words that distinguish cards: an RTX 4070 Ti is no RTX 4070."""


@dataclass(frozen=True)
class Metric:
    """A figure to compare. Less is always better: for a rate, its inverse is compared."""

    name: str
    title: str
    """Heading of its column."""
    unit: str
    """Unit of the value that is shown."""
    lacking: str
    """What a row needs to have the figure, for error messages."""
    inverse: bool = False
    words: tuple[str, str] = ("faster", "slower")
    statuses: frozenset[str] = frozenset({"ok"})
    """Statuses of the rows that are compared."""
    by_loss: bool = False
    """Whether the difference from the best is judged, in points (`accuracies_judged`), not the ratio to the slowest."""

    @property
    def gain(self) -> str:
        """Heading of the column with the factor, or the points, by which the subject is better."""
        if self.by_loss:
            return "points"
        return "speedup" if self.words[0] in {"faster", "sooner"} else f"times {self.words[0]}"

    @property
    def gain_unit(self) -> str:
        """Unit of that column, as in `section.Column`."""
        return "points" if self.by_loss else "ratio"

    def gain_of(self, ratio: Ratio) -> Ratio:
        """Return the factor by which the subject is better, from a ratio of compared values (less is better).

        `accuracies_judged` has already replaced its ratios by differences in points (more is better).
        """
        return ratio if self.by_loss else ratio.inverse

    def word_of(self, verdict: str) -> str:
        """Return a verdict in the words of this metric: `cheaper` for `faster`."""
        return dict(zip(("faster", "slower"), self.words, strict=True)).get(verdict, verdict)

    def shown(self, value: float) -> float:
        """Return the value to show, from the value that is compared."""
        return 1 / value if self.inverse else value

    def median_of(self, values: Sequence[float]) -> float:
        """Return the median to show. For an even number of rates it is not the inverse of the median of inverses."""
        return float(median(map(self.shown, values)))


CHEAPER = ("cheaper", "dearer")
SECONDS = Metric("seconds", "seconds", "s", "seconds")
RATE = Metric("rate", "samples/s", "samples/s", "samples_per_second", inverse=True)
METRICS = {
    metric.name: metric
    for metric in (
        SECONDS,
        RATE,
        Metric("energy", "samples/joule", "samples/J", "joules_per_sample (telemetry)", inverse=True,
               words=("thriftier", "hungrier")),
        Metric("cost", "dollars/run", "dollars", "seconds and the card's price (--price), or dollars in the row",
               words=CHEAPER),
        Metric("value", "samples/dollar", "samples/dollar", "a rate and a price (--price)", inverse=True,
               words=CHEAPER),
        Metric("cost-per-million", "dollars/million samples", "dollars", "a rate and a price (--price)", words=CHEAPER),
        Metric("memory", "peak GiB", "GiB", "peak_memory_bytes", words=("smaller", "larger")),
        Metric("batch", "batch size", "count", "batch_size", inverse=True, words=("larger", "smaller")),
        Metric("accuracy", "accuracy", "share", "an accuracy, as full runs have", inverse=True,
               words=("better", "worse"), statuses=TRAINED, by_loss=True),
        Metric("loss", "loss", "loss", "a loss, as full runs have", words=("lower", "higher"), statuses=TRAINED),
        Metric("time-to-goal", "seconds to the goal", "s", "a goal and seconds", words=("sooner", "later"),
               statuses=TRAINED),
    )
}  # fmt: skip


def metric_named(name: str) -> Metric:
    """Return the metric of this name. Raises UserError."""
    if name not in METRICS:
        raise UserError(f"--metric {name}: there are {', '.join(METRICS)}")
    return METRICS[name]


def valued(frame: pd.DataFrame, metric: Metric, prices: Prices | None) -> pd.DataFrame:
    """Return the frame with a column `value`: the compared figure (less is better), NaN where a row lacks it.

    The value of `time-to-goal` is the time of one run; `expected_time` divides it by the share of runs that reach the
    goal. Raises UserError if a price is needed and not given.
    """
    sample_seconds = 1 / frame["samples_per_second"].where(frame["samples_per_second"] > 0)
    values: Mapping[str, Callable[[], pd.Series]] = {
        "seconds": lambda: _comparable_seconds(frame),
        "rate": lambda: sample_seconds,
        "energy": lambda: frame["joules_per_sample"],
        "cost": lambda: _dollars(frame, prices),
        "value": lambda: _hourly(frame, prices) / 3600 * sample_seconds,
        "cost-per-million": lambda: _hourly(frame, prices) / 3600 * sample_seconds * 1e6,
        "memory": lambda: frame["peak_memory_bytes"] / 2**30,
        "batch": lambda: 1 / frame["batch_size"].where(frame["batch_size"] > 0),
        "accuracy": lambda: 1 / frame["accuracy"].where(frame["accuracy"] > 0),
        "loss": lambda: frame["loss"],
        "time-to-goal": lambda: frame["seconds"].where(success_of(frame).notna()),
    }
    return frame.assign(value=values[metric.name]())


def _comparable_seconds(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return the seconds to compare: for a trial that counts by its rate, the samples of a run / rate.

    They exclude the start, in which cuDNN tries algorithms: on an H100 for 47 s in fp32 and for 7 s in fp16.
    """
    seconds = frame["seconds"]
    pairs = product(set(stored(frame["studies"])), set(stored(frame["mode"])))
    counted = {pair for pair in pairs if counts_by_rate(*pair)}
    if not counted:
        return seconds
    by_rate = [pair in counted for pair in zip(frame["studies"], frame["mode"], strict=True)]
    at_rate = frame["run_samples"] / frame["samples_per_second"].where(frame["samples_per_second"] > 0)
    return at_rate.where(pd.Series(by_rate, frame.index) & at_rate.notna() & seconds.notna(), seconds)


def goals_of(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return the goal among each row's parameters; NaN where there is none."""
    return pd.to_numeric(frame["params"].str.extract(r"(?:^| )goal=(\S+)", expand=False), errors="coerce")


def success_of(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return the share of each row's trainings that reached the goal; NaN without a goal, and for other failures.

    If an old or published row lacks the `success_rate`, the share follows from its status. It is 0 if the training
    diverged or reached the time limit.
    """
    trained = frame["mode"].isin(["full", "published"]) & (frame["data"] != "synthetic")
    from_status = (frame["status"] == "ok").astype(float).where(trained & (goals_of(frame) > 0))
    return frame["success_rate"].fillna(from_status).where(frame["status"].isin([*TRAINED, *CUT_SHORT]))


def expected_time(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows with `value` divided by `success`, the share of the group's trainings that reached the goal.

    The quotient is the average time until a training reaches the goal; NaN if none did.
    """
    # The rows of failed trials lack some columns of GROUP.
    by_group = success_of(frame).groupby(numbered(frame, [*TRIAL, "batch_size"]))
    share = by_group.transform("mean").where(frame["status"].isin(TRAINED))
    texts = share.map("{:.0%} of the runs reached the goal".format)
    some = (share > 0) & (share < 1)
    return frame.assign(
        value=frame["value"] / share.where(share > 0), success=share, reason=frame["reason"].where(~some, texts)
    )


def _dollars(frame: pd.DataFrame, prices: Prices | None) -> "pd.Series[float]":
    """Return the dollars of each whole run: those in its row, else its hours times the hourly price."""
    stated = frame["dollars"]
    if prices is None and stated.notna().any():
        return stated
    return stated.fillna(_comparable_seconds(frame) / 3600 * _hourly(frame, prices))


def _hourly(frame: pd.DataFrame, prices: Prices | None) -> "pd.Series[float]":
    """Return the dollars per hour of all processes of each row."""
    if prices is None:
        raise UserError("a cost needs the cards' prices: --price prices.toml (docs/comparing.md shows one)")
    table = read_prices(prices) if isinstance(prices, Path) else hourly_prices(prices, "prices")
    by_card = {card: price_of(str(card), table) for card in frame["card"].unique()}
    return frame["card"].map(by_card).astype(float) * frame["processes"].fillna(1)


def price_of(card: str, table: Mapping[str, float]) -> float:
    """Return a card's dollars per hour, from the longest name in the table that matches it; NaN without a match."""
    fitting = [name for name in table if means(name, card)]
    return table[max(fitting, key=len)] if fitting else math.nan


def means(name: str, card: str) -> bool:
    """Return whether a name means a card: the card has all words of the name, and no further word of OTHER_CARD."""
    name_words, card_words = words_of(name), words_of(card)
    return bool(name_words) and name_words <= card_words and not OTHER_CARD & (card_words - name_words)


def words_of(name: str) -> set[str]:
    """Return the words of a name, in lower case and without punctuation."""
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def read_prices(path: Path) -> dict[str, float]:
    """Return dollars per hour by card, from `hourly`, or `price`, `years` and `use` (a share). Raises UserError."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--price {path}: cannot be read ({error})") from None
    return hourly_prices(table, f"--price {path}")


def hourly_prices(table: Mapping[str, Any], source: str) -> dict[str, float]:
    """Return dollars per hour by card, from the content of a price file, or from numbers. Raises UserError."""
    hourly = {}
    for card, entry in table.items():
        try:
            entry = entry if isinstance(entry, Mapping) else {"hourly": entry}
            hours = HOURS_PER_YEAR * float(entry.get("years", 0)) * float(entry.get("use", 1))
            value = float(entry["hourly"]) if "hourly" in entry else float(entry["price"]) / hours
        except BROKEN:
            value = math.nan
        if not PLAUSIBLE[0] < value < PLAUSIBLE[1]:
            raise UserError(f'{source}: ["{card}"] needs hourly = 1.20, or price = 2000 and years = 3')
        hourly[card] = value
    return hourly


def filtered(frame: pd.DataFrame, wheres: Sequence[str]) -> pd.DataFrame:
    """Return the rows that match every `column=value` (or `column!=value`), ignoring case. Raises UserError.

    A part of a text is enough if only one value of the column contains it. A card may be given by its short name.
    """
    for where in wheres:
        column, equals, value = where.partition("=")
        negated = column.endswith("!")
        column = column.rstrip("!").strip()
        if not equals:
            raise UserError(f"--where {where}: write it as column=value; `gpubench columns` lists the columns")
        if column not in COLUMNS:
            meant = did_you_mean(column, COLUMNS) or "; `gpubench columns` lists them"
            raise UserError(f"--where {where}: no column {column}{meant}")
        if column not in frame:
            raise UserError(f"--where {where}: comparisons do not read {column}; choose the rows by another column")
        texts = _texts_of(frame, column)
        labels = {text: short(text) if column == "card" else text for text in texts.unique()}
        is_text = column not in NUMBERS and column not in FLAGS
        matches = [label for text, label in labels.items() if _bare(value) in {_bare(text), _bare(label)}]
        matches = list(dict.fromkeys(matches)) or (values_named(value, labels.values()) if is_text else [])
        fits = texts.isin([text for text, label in labels.items() if label in matches])
        kept = frame[~fits if negated else fits]
        choices = sorted({*labels.values()} - {""})
        if is_text and len(matches) > 1:
            raise UserError(f"--where {where}: it could be {', '.join(sorted(matches))}")
        if kept.empty:
            some = f"; there is {', '.join(choices)}" if len(choices) <= 12 else ""
            meant = "" if negated else did_you_mean(value.strip(), choices)
            raise UserError(f"--where {where}: no row is left{meant or some}")
        frame = kept
    return frame


def _bare(name: str) -> str:
    """Return a name in lower case, without the prefix of `named_cpus`."""
    return name.strip().lower().removeprefix(CPU.lower())


def _texts_of(frame: pd.DataFrame, column: str) -> "pd.Series[str]":
    """Return the cells of a column as --where compares them: numbers with 15 digits, empty flags as False."""
    texts = frame[column]
    if column in NUMBERS:
        texts = pd.to_numeric(texts, errors="coerce").map(lambda x: "" if x != x else f"{x:.15g}")
    elif column in FLAGS:
        texts = (texts.astype(str).str.lower() == "true").astype(str)
    return texts.astype(str)
