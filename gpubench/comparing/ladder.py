"""The steps of a ladder: what each rung takes, gains over the one before, and leaves to the compute limit."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpubench.analysis import peaks, stats
from gpubench.analysis.cells import GROUP, LABELLED, SPECIMEN, texts_of
from gpubench.rows.read import shown
from gpubench.show.numbers import rate_text, seconds_text
from gpubench.show.style import COLOURS, EDGE, LINE, WIDTH
from gpubench.studies.bound import limit_seconds
from gpubench.trial import TRAINED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR = 0.29
"""Inches of a bar with its gap."""
COMMON = 5.0
"""Panels whose longest bars differ by no more than this factor have one axis."""
LIMIT_COLOURS = {"listed": COLOURS[5], "measured": COLOURS[2]}


@dataclass(frozen=True)
class Rung:
    """All trials of one rung."""

    number: int
    model: str
    batch: int | None
    epochs: int | None
    seconds: tuple[float, ...]
    accuracy: float | None
    """Mean over the trials that have one."""
    success_rate: float | None
    """Share of the runs that reached the goal."""
    one_run_each: bool
    """Whether each trial was one run."""
    rate: float
    """Samples a second, the median; NaN where it is not known."""
    interval: tuple[float, float] | None
    """The 95% interval of the median; None below six trials."""
    notes: str
    """What speaks against some of its trials, and what the rows say about the others."""
    limits: Mapping[str, float]
    """Seconds of its training at 100% of the dense peak: the `listed` and the `measured` one, as far as known."""

    @property
    def median(self) -> float:
        """Seconds of a run, whether or not it reached the goal."""
        return stats.median(self.seconds)

    @property
    def expected_seconds(self) -> float | None:
        """Seconds until a run reaches the goal, tried again until one does; None where none did."""
        return self.median / self.success_rate if self.success_rate else None


@dataclass(frozen=True)
class Ladder:
    """The rungs of a suite on one specimen in one precision, lowest first."""

    suite: str
    recipe: str
    """The suite with its parameters and data."""
    name: str
    """Card and precision, and whose figures they are."""
    kind: str
    """What the figures are: measured or projected, trials, source."""
    settings: str
    """Its parameters that are on, or not 0: epochs or images that somebody chose among them."""
    rungs: list[Rung]

    def gains(self) -> list[float | None]:
        """For each rung, seconds of the one before it that ran / its own."""
        times = [rung.median for rung in self.rungs]
        return [None, *(before / now for before, now in pairwise(times))]

    def gain_texts(self) -> list[str]:
        """The same in words, which say from where it is where rungs in between are missing."""
        since = [
            f" since {before.model}" if rung.number - before.number > 1 else "" for before, rung in pairwise(self.rungs)
        ]
        found = [f"{gain:.2f}x" if gain else "" for gain in self.gains()]
        return [text + where for text, where in zip(found, ["", *since], strict=True)]


def ladders_of(frame: pd.DataFrame, labels: Mapping[tuple[str, ...], str]) -> list[Ladder]:
    """Every ladder that the rows hold; `labels` names specimens."""
    rows = frame[frame["rung"].notna() & frame["status"].isin(TRAINED) & (frame["seconds"] > 0)]
    found = []
    for _, own in rows.groupby([*GROUP, *SPECIMEN, "precision", "batch_policy"], sort=False, dropna=False):
        first: dict[str, Any] = {str(name): value for name, value in own.iloc[0].items()}
        sizes = own.groupby(["rung", "model", "batch_size"], dropna=False, sort=True)
        rungs = [_rung(part) for _, part in sizes]
        # Of a rung that was run with several batches, the one with most trials.
        best: dict[str, Rung] = {}
        for rung in rungs:
            if rung.model not in best or len(rung.seconds) > len(best[rung.model].seconds):
                best[rung.model] = rung
        label = labels[texts_of(first, LABELLED)]
        name = f"{label} {first['precision']}"
        found.append(
            Ladder(str(first["suite"]), _recipe(first), name, _kind(own), _settings(first), list(best.values()))
        )
    return found


def _rung(rows: pd.DataFrame) -> Rung:
    first = rows.iloc[0]
    limits = {}
    # Without dropna pandas before 3 warns of a median where nothing is known.
    flops, samples = rows["flops_per_sample"].dropna().median(), rows["run_samples"].dropna().median()
    card = peaks.find(str(first["card"]), _known(first["card_memory_bytes"]))
    tops = {
        "listed": card.peak(str(first["precision"])) if card else None,
        "measured": _known(rows["measured_peak_flops"].dropna().median()),
    }
    for name, top in tops.items():
        if top and flops > 0 and samples > 0:
            limits[name] = limit_seconds(float(flops), float(samples), top * float(first["processes"]))
    return Rung(
        number=int(first["rung"]),
        model=str(first["model"]),
        batch=None if pd.isna(first["batch_size"]) else int(first["batch_size"]),
        epochs=None if pd.isna(first["epochs"]) else int(first["epochs"]),
        seconds=tuple(rows["seconds"]),
        accuracy=_known(rows["accuracy"].mean()),
        success_rate=_known(rows["success_rate"].mean()),
        one_run_each=bool(rows["success_rate"].dropna().isin([0.0, 1.0]).all()),
        rate=float(rows["samples_per_second"].dropna().median()),
        interval=stats.median_interval(tuple(rows["seconds"]), bool((rows["until"] > 0).any())),
        notes=_notes(rows),
        limits=limits,
    )


def _notes(rows: pd.DataFrame) -> str:
    marks = Counter(mark for text in rows["marks"] for mark in shown(str(text)).split())
    notes = [f"{count} of {len(rows)} {mark}" for mark, count in sorted(marks.items())]
    return "; ".join([*notes, *dict.fromkeys(shown(str(why)) for why in rows["reason"][rows["status"] == "ok"] if why)])


def _known(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _recipe(row: Mapping[str, Any]) -> str:
    """Without parameters that only repeat the mode, as in published rows."""
    parts = [row["suite"], row["params"] if row["params"] != row["mode"] else ""]
    parts += [f"{name}={row[name]}" if row[name] else "" for name in ("data", "weights")]
    return ", ".join(shown(str(part)) for part in parts if part)


def _settings(row: Mapping[str, Any]) -> str:
    on = [part for part in str(row["params"]).split() if part.partition("=")[2] not in {"", "0", "0.0", "false"}]
    return shown(" ".join(on))


def _kind(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    measured = "projected" if (rows["measured"] == "projected").any() else first["measured"]
    return ", ".join(str(part) for part in (measured, first["mode"], first["source"]) if part)


def _half(rung: Rung) -> float | None:
    """Half the width of its interval, which is never 0."""
    return ((rung.interval[1] - rung.interval[0]) / 2 or None) if rung.interval else None


def _limit(rung: Rung, name: str) -> str:
    limit = rung.limits.get(name)
    return f"{seconds_text(limit)} s ({limit / rung.median:.0%})" if limit else ""


def lines(ladder: Ladder) -> list[dict[str, str]]:
    """The ladder as lines of a table."""
    found = []
    for rung, gain in zip(ladder.rungs, ladder.gain_texts(), strict=True):
        half = _half(rung)
        found.append(
            {
                "model": rung.model,
                "epochs": str(rung.epochs or ""),
                "batch": str(rung.batch or ""),
                "seconds": seconds_text(rung.median, half),
                "95%": " to ".join(seconds_text(end, half) for end in rung.interval or ()),
                "gain": gain,
                "samples/s": rate_text(rung.rate),
                "trials": str(len(rung.seconds)),
                "mean accuracy": f"{rung.accuracy:.2%}" if rung.accuracy is not None else "",
                "reached the goal": _reached(rung),
                "to a success": f"{seconds_text(rung.expected_seconds)} s" if rung.expected_seconds else "",
                **{f"limit, {name} peak": _limit(rung, name) for name in LIMIT_COLOURS},
                "notes": rung.notes,
            }
        )
    return found


def _reached(rung: Rung) -> str:
    """How many trials did; of trials with several runs, the share of runs."""
    if rung.success_rate is None:
        return ""
    many = rung.success_rate * len(rung.seconds)
    return f"{many:.0f} of {len(rung.seconds)}" if rung.one_run_each else f"{rung.success_rate:.0%} of the runs"


def side_by_side(ladders: Sequence[Ladder]) -> list[dict[str, str]]:
    """A line per rung that some ladder has, with each ladder's seconds; empty where there is but one ladder."""
    if len(ladders) < 2:
        return []
    names, seen = [], Counter[str]()
    for ladder in ladders:
        seen[ladder.name] += 1
        names.append(f"{ladder.name} ({seen[ladder.name]})" if seen[ladder.name] > 1 else ladder.name)
    places = {rung.model: rung.number for ladder in ladders for rung in ladder.rungs}
    times = [{rung.model: seconds_text(rung.median, _half(rung)) for rung in ladder.rungs} for ladder in ladders]
    return [
        {"model": model} | {name: own.get(model, "") for name, own in zip(names, times, strict=True)}
        for model in sorted(places, key=places.__getitem__)
    ]


def figures(ladders: Sequence[Ladder]) -> Iterator[tuple[str, "Figure"]]:
    """(suite, chart) for each suite that has a ladder of two rungs or more; all its ladders are in one chart."""
    for suite in dict.fromkeys(ladder.suite for ladder in ladders):
        drawn = [ladder for ladder in ladders if ladder.suite == suite]
        if any(len(ladder.rungs) > 1 for ladder in drawn):
            yield suite, figure_of(suite, sorted(drawn, key=lambda ladder: -len(ladder.rungs)))


def figure_of(suite: str, ladders: Sequence[Ladder]) -> "Figure":
    """A panel per ladder: a bar per rung with its seconds and its gain, and the compute limit as a line."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    soft = matplotlib.rcParams["axes.edgecolor"]
    below, above = 0.5, 0.65
    heights = [BAR * len(ladder.rungs) for ladder in ladders]
    known = [name for name in LIMIT_COLOURS if any(name in rung.limits for ladder in ladders for rung in ladder.rungs)]
    footer = LINE * (len(known) + 1)
    height = sum(heights) + (below + above) * len(ladders) + 0.45 + footer + 2 * EDGE
    figure = Figure(figsize=(WIDTH, height))
    longest = max(len(rung.model) for ladder in ladders for rung in ladder.rungs)
    left = (0.3 + 0.09 * longest) / WIDTH
    top = height - 0.45
    ends = [max(rung.median for rung in ladder.rungs) for ladder in ladders]
    # On one axis where the bars can be told apart: a laptop's hours would leave a card's seconds no width.
    common = max(ends) if max(ends) <= COMMON * min(ends) else None
    for ladder, inches, own in zip(ladders, heights, ends, strict=True):
        bottom = top - above - inches
        axes = figure.add_axes((left, bottom / height, 1 - left - 2 * EDGE / WIDTH, inches / height))
        _draw(axes, ladder, common or own)
        start = EDGE / WIDTH
        figure.text(start, (top - 0.1) / height, ladder.name, va="top", weight="bold")
        about = ", ".join(filter(None, [ladder.kind, ladder.settings]))
        figure.text(start, (top - 0.32) / height, about, va="top", fontsize=9, color=soft)
        top = bottom - below
    figure.text(EDGE / WIDTH, 1 - 0.12 / height, f"{suite}: seconds per rung", va="top", fontsize=15, weight="bold")
    marks = [Line2D([], [], color=LIMIT_COLOURS[name], linewidth=2, label=_limit_text(name)) for name in known]
    if marks:
        figure.legend(
            handles=marks,
            loc="lower left",
            frameon=False,
            borderpad=0,
            bbox_to_anchor=(EDGE / WIDTH, (EDGE + LINE) / height),
        )
    text = "in brackets: seconds of the rung above / of this one; gpubench"
    figure.text(EDGE / WIDTH, EDGE / height, text, va="bottom", color=soft, fontsize=9)
    return figure


def _limit_text(name: str) -> str:
    return f"compute limit: the training at 100% of the {name} peak"


def _draw(axes: "Axes", ladder: Ladder, end: float) -> None:
    times = [rung.median for rung in ladder.rungs]
    for y, (rung, gain) in enumerate(zip(ladder.rungs, ladder.gain_texts(), strict=True)):
        axes.barh(y, rung.median, height=0.8, color=COLOURS[0])
        missed = rung.success_rate is not None and rung.success_rate < 1
        parts = [f"({gain})" if gain else "", f"{_reached(rung)} reached the goal" if missed else ""]
        text = "  ".join(filter(None, [seconds_text(rung.median, _half(rung)), *parts]))
        axes.annotate(text, (rung.median, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=10)
    for name, colour in LIMIT_COLOURS.items():
        for y, rung in enumerate(ladder.rungs):  # one line down the rungs, broken where it is not known
            if name in rung.limits:
                axes.plot([rung.limits[name]] * 2, [y - 0.5, y + 0.5], color=colour, linewidth=2)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, end * 1.25)
    axes.set_ylim(len(times) - 0.5, -0.5)
    axes.set_yticks(range(len(times)), [rung.model for rung in ladder.rungs])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("seconds")
