"""The end of `gpubench run --quick`: both rates, their ratio, the card beside estimates of others, and one chart."""

from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len

from gpubench.show.numbers import significant
from gpubench.show.terminal import table_lines
from gpubench.show.wrap import line_width, wrapped
from gpubench.studies.cards.figures import short_name
from gpubench.studies.cards.ranked_rates import (
    KIND,
    MODEL,
    PIXELS,
    anchor,
    expected_of,
    expected_sentence,
    why_not_ranked,
)
from gpubench.studies.cards.ranking import WELL_KNOWN
from gpubench.studies.cards.ratio import published_speeds
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Table
from gpubench.studies.words import gain, marked, times
from gpubench.suite.trial import RATE_STUDY

if TYPE_CHECKING:
    import pandas as pd

NEIGHBOURS = 2
"""Number of other cards that are shown above this card, and below it."""
FOR_SCALE = ("RTX 3090", "RTX 4090")
"""Cards whose rates are printed below the rates of a CPU."""
OTHERS = "estimated from published figures"
"""Name of the bars of other cards in a chart."""
SETUP = ["device", "processes"]
"""Columns that the trials of a ratio or a rank share. The lines are about the setup of the first good trial."""
LEAST_BAR, MOST_BAR, REST_OF_LINE = 4, 32, 24
"""Least and most characters of the longest bar in the terminal, and width of the other columns without the name."""


def quick_lines(rows: "pd.DataFrame", path: Path) -> tuple[list[str], bool]:
    """Return a quick run's lines on ResNet-50 (or none) and whether they rank a card; draw a chart beside `path`."""
    rows = rows.sort_values("status", key=lambda status: status != "ok", kind="stable")  # a failed one may run again
    is_reference = rows["studies"].str.contains(RATE_STUDY) & rows["params"].str.contains(f"image_size={PIXELS} ")
    tried = rows[(rows["model"] == MODEL) & (rows["mode"] == "quick") & is_reference]
    setups = tried[SETUP].drop_duplicates()
    tried = tried[(tried[SETUP] == tried[SETUP].head(1).squeeze()).all(axis=1)].drop_duplicates("precision")
    trials = tried[tried["status"] == "ok"].set_index("precision")
    if trials.empty:
        return [], False
    rates = {str(precision): float(rate) for precision, rate in trials["samples_per_second"].items()}
    rates = dict(sorted(rates.items(), key=lambda item: item[0] != "fp32"))
    first = trials.iloc[0]
    on_cpu, name = first["device"] == "cpu", str(first["card"])
    card = name if on_cpu else short_name(name)
    batches, source = trials["batch_size"], f"torch {first['torch']}, {datetime.now(UTC):%Y-%m-%d}"
    marks = Counter(mark for text in trials["marks"] for mark in str(text).split())
    caveats = [f"1 run{' each' * (len(rates) > 1)}: rough", *marked(marks, len(trials), "runs ")]
    lines = [f"  {name:<12}{significant(rate):>8} images/s   batch {batches[name]:.0f}" for name, rate in rates.items()]
    lines[:0] = [f"{card} ({first['device']}, processes={first['processes']:.0f}):"] * (len(setups) > 1)
    title = f"ResNet-50 on {card}"
    mixed = next((name for name in ("fp16", "bf16") if name in rates), "")
    if mixed and "fp32" in rates:
        speedup = times(rates[mixed] / rates["fp32"])
        title = f"{mixed} is {speedup} as fast as fp32 on this {'CPU' if on_cpu else card} ({', '.join(caveats)})"
        lines += wrapped(f"{title}.")
    elif marks:
        lines += wrapped(f"Caveats: {', '.join(caveats)}.")
    impossible = tried[tried["status"] == "unsupported"].set_index("precision")["reason"]
    lines += [line for name, why in impossible.items() for line in wrapped(f"{name} cannot run: {why}.")]
    if on_cpu and "bf16" in impossible and "fp16" not in set(tried["precision"]):
        lines.append("So mixed precision gains nothing here: fp16 can run, but is usually far slower.")
    why = why_not_ranked(trials.loc[[mixed] if mixed else []].reset_index(), ("quick",))
    is_ranked = not on_cpu and not why
    own = {f"{card}, {name}": rate for name, rate in rates.items()}
    shown = dict(own)
    if is_ranked:
        own, shown = {card: rates[mixed]}, neighbours(card, rates[mixed])
        lines += ["", *table_lines(table_of(shown, card), line_width())]
        lines += wrapped(expected_sentence(card, rates[mixed]))
        title = f"{card}: {significant(rates[mixed])} images/s of ResNet-50 in mixed precision"
    elif on_cpu:
        cards = {name: figure.value for name in FOR_SCALE if (figure := expected_of(name))}
        shown |= {f"{name}, mixed": rate for name, rate in cards.items()}
        figures = ", ".join(f"{name} {rate:,.0f}" for name, rate in cards.items())
        source_of = f"estimated from timm's rate of an {anchor().card} and published ratios to it"
        lines += wrapped(f"CPUs are not ranked. Cards in mixed precision, {source_of}: {figures} images/s.")
        if len(own) == 1:
            title += "".join(f": {significant(rate)} images/s in {name}" for name, rate in rates.items())
    else:
        lines += wrapped(why)
    if len(shown) > 1:
        chart = bars_of(shown, own, card, title, path.stem, "; ".join([source, *caveats]))
        lines.append(f"chart: {drawn(chart, path)}")
    return lines, is_ranked


def neighbours(card: str, rate: float) -> dict[str, float]:
    """Return the images/s of this card and estimates for the nearest well-known cards, the fastest first."""
    known = published_speeds(KIND).cards & set(WELL_KNOWN) - {card}
    expected = {name: value for name in known if (value := expected_of(name))}
    rates = sorted(((value.value, name) for name, value in expected.items()), reverse=True)
    above = [pair for pair in rates if pair[0] > rate][-NEIGHBOURS:]
    below = [pair for pair in rates if pair[0] <= rate][:NEIGHBOURS]
    return {name: value for value, name in (*above, (rate, card), *below)}


def table_of(rates: dict[str, float], card: str) -> Table:
    """Return a table with a bar for each card, and how many times as fast it is as `card`."""
    room = line_width() - max(map(cell_len, rates)) - REST_OF_LINE
    longest = max(LEAST_BAR, min(MOST_BAR, room)) / max(rates.values())
    columns = (Column("card"), Column(""), Column("images/s", "count"), Column("ratio"))
    lines = [
        (name, "#" * max(1, round(longest * rate)), rate, "yours" if name == card else f"{gain(rate / rates[card])}x")
        for name, rate in rates.items()
    ]
    return Table("ResNet-50, mixed precision; other cards are estimated from published figures", columns, tuple(lines))


def bars_of(rates: dict[str, float], own: Collection[str], card: str, title: str, name: str, source: str) -> Bars:
    """Return the chart of these rates. Beside other cards, only bars in `own` are coloured. `source` is the foot."""
    others = set(rates) - set(own)
    names = {key: OTHERS if key in others else card if others else key for key in rates}
    bars = tuple(BarGroup(key, (Bar(names[key], rate),)) for key, rate in rates.items())
    subtitle = "ResNet-50, 224 pixels: training images per second; higher is better"
    return Bars(name, title, subtitle, bars, "images/s", winner=card if others else "", foot=source)


def drawn(chart: Bars, path: Path) -> str:
    """Draw the chart beside the CSV file `path`, with the rows of that file inside; returns its path."""
    from gpubench.show.charts import figure_of
    from gpubench.show.style import save, style

    with style("light"):
        (written,) = save(figure_of(chart), path.with_suffix(""), path.read_bytes(), ("png",))
    return written
