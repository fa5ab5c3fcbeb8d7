"""What is asked of the rows: which ones (--where), and which figure of them (--metric, with --price)."""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gpubench.analysis.cells import CPU, short
from gpubench.analysis.stats import Ratio
from gpubench.analysis.time_to_goal import success_of
from gpubench.errors import UserError
from gpubench.rows.row import COLUMNS, FLAGS, NUMBERS
from gpubench.rows.table import BROKEN, PLAUSIBLE
from gpubench.suite.trial import TRAINED

HOURS_PER_YEAR = 8766
Prices = Path | Mapping[str, Any]
"""A TOML file, or what such a file holds: by words of the card's name dollars per hour, or a table."""
SOME = 12
"""Values that a message can name."""
OTHER_CARD = frozenset({"ti", "super", "xt", "xtx", "d", "max", "q", "laptop", "mobile", "ada", "pro", "mig"})
"""Words of a name that make it another card's: an RTX 4070 is no RTX 4070 Ti."""


@dataclass(frozen=True)
class Metric:
    """A figure to compare. Inside, less is always better: of a rate the inverse is compared."""

    name: str
    title: str
    """Heading of its column."""
    unit: str
    """Of the figure that is shown, as faces read it."""
    lacking: str
    """What a row needs that has no value."""
    inverse: bool = False
    words: tuple[str, str] = ("faster", "slower")
    statuses: frozenset[str] = frozenset({"ok"})
    """Of the rows that count."""
    by_loss: bool = False
    """Judged by the difference from the best, not by a ratio to the worst (see `accuracies_judged`)."""

    @property
    def gain(self) -> str:
        """Heading of how many times better one is than the other."""
        if self.by_loss:
            return "ratio"
        return "speedup" if self.words[0] in {"faster", "sooner"} else f"times {self.words[0]}"

    def gain_of(self, ratio: Ratio) -> Ratio:
        """How many times better the subject is: of a ratio of the values that are compared, of which less is better.

        Ratios of accuracies come back from their judge as those of the accuracies themselves.
        """
        return ratio if self.by_loss else ratio.inverse

    def word_of(self, verdict: str) -> str:
        """A verdict in the words of this metric: `cheaper` for `faster`."""
        return dict(zip(("faster", "slower"), self.words, strict=True)).get(verdict, verdict)

    def shown(self, value: float) -> float:
        """The figure a reader expects, from the one that is compared."""
        return 1 / value if self.inverse else value


SECONDS = Metric("seconds", "seconds", "s", "seconds")
METRICS = {
    metric.name: metric
    for metric in (
        SECONDS,
        Metric("rate", "samples/s", "samples/s", "samples_per_second", inverse=True),
        Metric(
            "energy",
            "samples/joule",
            "samples/J",
            "joules_per_sample (telemetry)",
            inverse=True,
            words=("thriftier", "hungrier"),
        ),
        Metric(
            "cost",
            "dollars/run",
            "dollars",
            "seconds, and the card a price (--price); or stated dollars",
            words=("cheaper", "dearer"),
        ),
        Metric(
            "value",
            "samples/dollar",
            "samples/dollar",
            "a rate and a price (--price)",
            inverse=True,
            words=("cheaper", "dearer"),
        ),
        Metric(
            "cost-per-epoch", "dollars/epoch", "dollars", "seconds, epochs and a price", words=("cheaper", "dearer")
        ),
        Metric("memory", "peak GiB", "GiB", "peak_memory_bytes", words=("smaller", "larger")),
        Metric("batch", "batch size", "count", "batch_size", inverse=True, words=("larger", "smaller")),
        Metric(
            "accuracy",
            "accuracy",
            "share",
            "accuracy: full runs only",
            inverse=True,
            words=("better", "worse"),
            statuses=TRAINED,
            by_loss=True,
        ),
        Metric(
            "time-to-goal",
            "seconds to the goal",
            "s",
            "a goal and seconds",
            words=("sooner", "later"),
            statuses=TRAINED,
        ),
    )
}


def metric_named(name: str) -> Metric:
    """Raises UserError."""
    if name not in METRICS:
        raise UserError(f"--metric {name}: there is {', '.join(METRICS)}")
    return METRICS[name]


def valued(frame: pd.DataFrame, metric: Metric, prices: Prices | None) -> pd.DataFrame:
    """The frame with a column `value`, of which less is better; NaN where a row has none.

    Of `time-to-goal` they are those of a run: how many reach the goal is a matter of the whole case, and of
    `goal.expected`. Raises UserError where a price is needed and not given.
    """
    nothing = pd.Series(math.nan, index=frame.index)
    seconds = frame["seconds"]
    values: Mapping[str, Callable[[], pd.Series]] = {
        "seconds": lambda: seconds,
        "rate": lambda: 1 / frame["samples_per_second"].where(frame["samples_per_second"] > 0),
        "energy": lambda: frame.get("joules_per_sample", nothing),
        "cost": lambda: _dollars(frame, prices),
        "cost-per-epoch": lambda: _dollars(frame, prices) / frame["epochs"].where(frame["epochs"] > 0),
        "value": lambda: (
            _hourly(frame, prices) / 3600 / frame["samples_per_second"].where(frame["samples_per_second"] > 0)
        ),
        "memory": lambda: frame["peak_memory_bytes"] / 2**30,
        "batch": lambda: 1 / frame["batch_size"].where(frame["batch_size"] > 0),
        "accuracy": lambda: 1 / frame["accuracy"].where(frame["accuracy"] > 0),
        "time-to-goal": lambda: seconds.where(success_of(frame).notna()),
    }
    return frame.assign(value=values[metric.name]())


def _dollars(frame: pd.DataFrame, prices: Prices | None) -> "pd.Series[float]":
    """Of the whole run: what its row states, else what its seconds cost."""
    stated = frame["dollars"]
    if prices is None and stated.notna().any():
        return stated
    return stated.where(stated.notna(), frame["seconds"] / 3600 * _hourly(frame, prices))


def _hourly(frame: pd.DataFrame, prices: Prices | None) -> "pd.Series[float]":
    if prices is None:
        raise UserError("a cost needs the cards' prices: --price prices.toml (docs/comparing.md shows one)")
    table = read_prices(prices) if isinstance(prices, Path) else hourly_prices(prices, "prices")
    each = {card: price_of(str(card), table) for card in frame["card"].unique()}
    return frame["card"].map(each).astype(float) * frame["processes"].fillna(1)


def price_of(card: str, table: Mapping[str, float]) -> float:
    """Of several entries that mean the card the longest."""
    fitting = [name for name in table if means(name, card)]
    return table[max(fitting, key=len)] if fitting else math.nan


def means(name: str, card: str) -> bool:
    """Whether a name means a card: it has all words of the name, and none beside them that makes it another card."""
    wished, own = words_of(name), words_of(card)
    return bool(wished) and wished <= own and not OTHER_CARD & (own - wished)


def words_of(name: str) -> set[str]:
    """Letters and digits of a name, word by word."""
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def read_prices(path: Path) -> dict[str, float]:
    """Dollars per hour by card: `hourly`, or `price` over `years` of use (`use` is the share of hours, 1 if absent).

    Raises UserError.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--price {path}: cannot be read ({error})") from None
    except RecursionError:
        raise UserError(f"--price {path}: cannot be read (nested too deep)") from None
    return hourly_prices(table, f"--price {path}")


def hourly_prices(table: Mapping[str, Any], whence: str) -> dict[str, float]:
    """Dollars per hour by card, of a table as `read_prices` reads one, or of plain numbers. Raises UserError."""
    hourly = {}
    for card, entry in table.items():
        try:
            entry = entry if isinstance(entry, Mapping) else {"hourly": entry}
            hours = HOURS_PER_YEAR * float(entry.get("years", 0)) * float(entry.get("use", 1))
            value = float(entry["hourly"]) if "hourly" in entry else float(entry["price"]) / hours
        except BROKEN:
            value = math.nan
        if not PLAUSIBLE[0] < value < PLAUSIBLE[1]:
            raise UserError(f'{whence}: ["{card}"] needs hourly = 1.20, or price = 2000 and years = 3')
        hourly[card] = value
    return hourly


def did_you_mean(wrong: str, there: Iterable[str]) -> str:
    """The nearest of what is there, as the end of a sentence; empty where nothing is near."""
    names = {name.lower(): name for name in there}
    nearest = difflib.get_close_matches(wrong.lower(), names, n=1)
    return f"; did you mean {names[nearest[0]]}?" if nearest else ""


def filtered(frame: pd.DataFrame, wheres: Sequence[str]) -> pd.DataFrame:
    """Rows that fulfil every `column=value` (or `column!=value`), as texts without regard to case; UserError."""
    for where in wheres:
        column, equals, value = where.partition("=")
        negated = column.endswith("!")
        column = column.rstrip("!").strip()
        if not equals or column not in COLUMNS:
            meant = did_you_mean(column, COLUMNS) if equals else ""
            raise UserError(f"--where {where}: write it as column=value; `gpubench columns` lists the columns{meant}")
        if column not in frame:
            raise UserError(f"--where {where}: {column} is not read to compare; choose the rows by another column")
        texts = frame[column]
        if column in NUMBERS:
            texts = pd.to_numeric(texts, errors="coerce").map(lambda x: "" if x != x else f"{x:.15g}")
        elif column in FLAGS:  # an empty one is false
            texts = (texts.astype(str).str.lower() == "true").astype(str)
        texts, wanted = texts.astype(str), value.strip().lower()
        fits = texts.str.lower() == wanted
        if column == "card":  # or as the tables call it
            called = {name: short(name).lower() for name in texts.unique()}
            fits |= texts.map({name: wanted.removeprefix(CPU.lower()) == text for name, text in called.items()})
        left = frame[~fits if negated else fits]
        if left.empty:
            there = sorted({short(text) if column == "card" else text for text in texts.unique()} - {""})
            some = f"; there is {', '.join(there)}" if len(there) <= SOME else ""
            raise UserError(f"--where {where}: no row is left{did_you_mean(value.strip(), there) or some}")
        frame = left
    return frame
