"""Rows to cells: the trials of one case on one specimen in one session, named, and the cases without any."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from gpubench.analysis import stats
from gpubench.rows.alike import CASE, CELL, IDENTITY, OUTCOMES, SPECIMEN, STACK_PARAMS
from gpubench.rows.params import params_of, params_without
from gpubench.rows.read import shown
from gpubench.suite.precisions import PRECISIONS

POWER_SLACK = 0.01
"""Share of its own power limit by which a card's limit may be off without being named."""

PASSING = ("NCCL ", "mostly ", "GPUDirect RDMA ", "each process on the CPUs")
"""How the parts of `interconnect` begin that do not name a link."""

CPU = "CPU "
"""Before the name of a CPU that does not say that it is one."""

MARKS = ("shared", "throttled", "clock_fell", "unsteady", "resumed")
"""What may speak against a trial."""

CONFLICT = "conflict"
"""The status, in memory alone, of rows of one trial that differ in what they say of it."""

WITHOUT_TIME = ("timed_out", "failed", "out_of_memory", CONFLICT)
"""Statuses of trials that tried and have no time: those that have one are then a choice of all."""

UNREAD = ("laps", "precision_proof", "started", "row_digest")
"""Columns that no comparison needs, long or different in every row."""


class Text:
    """A column of a cell's row, as text."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, cell: "Cell", owner: type | None = None) -> str:
        return str(cell.row[self.name])


class Number:
    """A column of a cell's row, NaN where it is empty or not there."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, cell: "Cell", owner: type | None = None) -> float:
        return cell.number(self.name)


@dataclass(frozen=True)
class Cell:
    """The trials of one case on one specimen in one session, or what became of it where none is ok."""

    suite, studies, model, precision, batch_policy = Text(), Text(), Text(), Text(), Text()
    card, device, device_hash, session, source = Text(), Text(), Text(), Text(), Text()
    params, data, mode, measured, status, reason, torch = Text(), Text(), Text(), Text(), Text(), Text(), Text()
    rung, batch_size, processes, epochs, samples_per_second = Number(), Number(), Number(), Number(), Number()
    accuracy, peak_memory_bytes = Number(), Number()

    row: Mapping[str, Any]
    """What all its rows have in common (the first one), with medians of its outcomes."""
    values: tuple[float, ...]
    """What is compared, of each trial: seconds of the whole run, or another metric. Less is better."""
    label: str
    """The card, with as much as is needed to tell it from others of its name."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """How many of its trials have each of MARKS."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Rows of its case that have no time, by status: trials, and those of a conflict."""
    parts: "tuple[Cell, ...]" = ()
    """The cells it combines, where it stands for several specimens; `values` then has one of each."""

    def number(self, column: str) -> float:
        """A figure of its row; NaN where it is empty, or where the row has no such column."""
        value = self.row.get(column)
        return float(value) if isinstance(value, int | float) else math.nan

    @property
    def case(self) -> int:
        """The number of its case, by which its rows are found again."""
        return int(self.row.get("case", -1))

    @property
    def cases(self) -> frozenset[int]:
        """The cases it is made of: its own, or those of its parts."""
        return frozenset(part.case for part in self.parts or (self,))

    @property
    def median(self) -> float:
        """The median over trials, or over specimens."""
        return float(stats.median(self.values))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of the median; None below six values."""
        return stats.median_interval(self.values, self.adaptive)

    @property
    def trials(self) -> int:
        """Number of trials, of all specimens together."""
        return sum(part.trials for part in self.parts) or len(self.values)

    @property
    def adaptive(self) -> bool:
        """Whether its rounds were added until the intervals were tight (`run --until`)."""
        return bool(self.row["until"] > 0) and not self.parts

    @property
    def contradicting(self) -> str:
        """How many rows of its case contradict others of the same trial; empty where none does."""
        count = self.lost.get(CONFLICT)
        return f"{count} rows contradict each other" if count else ""

    @property
    def lost_note(self) -> str:
        """How many trials of its case have no time, and how many rows contradict each other; empty where none."""
        lost = sum(self.lost.values()) - self.lost.get(CONFLICT, 0)
        words = f"{lost} of {lost + self.trials} have no time" if lost else ""
        return "; ".join(filter(None, [words, self.contradicting]))


def only_sums(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Which rows trained nothing: they sum gradients, and what they found is their table, not their seconds."""
    return frame["table"].isin([text for text in frame["table"].unique() if '"busbw"' in str(text)])


def without_time(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Which published rows state an accuracy or a gain and never meant to have a time."""
    told = (frame["mode"] == "published") & (frame["status"] == "ok")
    return told & frame["seconds"].isna() & frame["samples_per_second"].isna()


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without the long columns that no comparison needs, and with what the key and the stack need.

    Threads and cuDNN's setting leave `params`; `threads_asked` says that somebody chose the threads; `power_cap` names
    a power limit that is not the card's own; rows of one `identity` agree in all that tells cases, specimens and
    stacks apart, and rows of one `case` in all of CASE.
    """
    done = as_compared(frame.drop(columns=list(UNREAD), errors="ignore")).assign(
        cudnn_benchmark=_each(frame["params"], lambda text: params_of(text).get("cudnn_benchmark", "")),
        threads_asked=_each(frame["params"], lambda text: params_of(text).get("threads", "").lstrip("0")),
        params=recipe_of(frame["params"]),
    )
    if "identity" not in frame:
        done = done.assign(identity=done.groupby(IDENTITY, sort=False, dropna=False).ngroup())
    return done.assign(case=numbered(done, CASE))


def as_compared(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with the columns of `rows.alike.AS_COMPARED`; empty numbers of processes, nodes and bytes are the usual."""
    done = frame.assign(
        fixed_batch=frame["batch_size"].where(frame["batch_policy"] == "fixed").fillna(0),
        memory_limit_bytes=frame["memory_limit_bytes"].fillna(0),
        processes=frame["processes"].fillna(1),
        nodes=frame["nodes"].fillna(1),
        basis=frame["measured"].where(frame["mode"] != "sampled", ""),
        unknown_device=frame["device"].where(frame["device_hash"] == "", ""),
        link=_each(frame["interconnect"], link_of),
        power_cap="",
    )
    if {"power_limit_watts", "default_power_limit_watts"} <= set(frame):
        watts, usual = frame["power_limit_watts"], frame["default_power_limit_watts"]
        capped = (watts - usual).abs() > usual * POWER_SLACK
        done.loc[capped, "power_cap"] = watts[capped].map("{:.0f} W".format)
    return done


def link_of(interconnect: str) -> str:
    """What joins the processes, without how they were bound and what NCCL told, which varies between equal runs."""
    parts = [part for part in interconnect.split("; ") if not part.startswith(PASSING)]
    return "; ".join(parts)


def named_cpus(frame: pd.DataFrame) -> "pd.Series[str]":
    """The cards, each CPU called one."""
    cards = frame["card"]
    unnamed = (frame["device"] == "cpu") & ~cards.isin([card for card in cards.unique() if "CPU" in str(card)])
    return cards.mask(unnamed, CPU + cards.astype(str)) if unnamed.any() else cards


def recipe_of(params: "pd.Series[str]") -> "pd.Series[str]":
    """`params` without what belongs to the stack."""
    return _each(params, lambda text: params_without(text, STACK_PARAMS))


def _each(texts: "pd.Series[str]", change: Callable[[str], str]) -> "pd.Series[str]":
    """Each text changed, of which there are few different ones."""
    return texts.map({text: change(str(text)) for text in texts.unique()})


def numbered(frame: pd.DataFrame, columns: Sequence[str]) -> "pd.Series[int]":
    """One number per row, the same where `columns`, which the identity decides, agree."""
    each = frame.drop_duplicates("identity")
    numbers = each.groupby(list(columns), sort=False, dropna=False).ngroup()
    by_identity = np.zeros(frame["identity"].max() + 1 if len(frame) else 0, np.int64)
    by_identity[each["identity"]] = numbers
    return pd.Series(by_identity[frame["identity"].to_numpy()], index=frame.index, dtype="int64")


def list_bad(bad: pd.DataFrame, left_out: list[str], figure: str) -> None:
    """The rows that are not ok or have no `figure`, counted by case, status and reason."""
    columns = ["suite", "model", "precision", "batch_policy", "card", "status", "reason"]
    for key, count in bad.groupby(columns, sort=False).size().items():
        suite, model, precision, _, card, status, reason = (shown(str(part)) for part in key)  # type: ignore[attr-defined]
        why = f"ok, but without {figure}" if status == "ok" else status
        why += f", {reason}" if reason else ""
        left_out.append(f"{suite} {model} {precision} on {short(card)}: {count} x {why}")


def cells_of(frame: pd.DataFrame, ok: "pd.Series[bool]", labels: Mapping[tuple[str, ...], str]) -> list[Cell]:
    """The trials that are ok, pooled inside one specimen and session, and how many of each case have no time."""
    lost = {} if ok.all() else _lost(frame, ok)
    frame = frame if ok.all() else frame[ok]
    # Rows written by hand, or before there were marks, still say that they are unsteady.
    unmarked = (frame["marks"] == "") & np.array(
        [str(text).startswith("unsteady") for text in frame["steady"]], dtype=bool
    )
    marked = {mark: _has(frame["marks"], mark) for mark in MARKS}
    marked["unsteady"] |= unmarked
    frame = frame.assign(
        cell=numbered(frame, CELL),
        **{f"is_{mark}": hit for mark, hit in marked.items()},
    )
    trials = frame.groupby("cell")
    first = frame.drop_duplicates("cell").set_index("cell").sort_index()
    first[OUTCOMES] = pd.DataFrame({name: trials[name].median() for name in OUTCOMES})  # at once takes twice the memory
    first.loc[frame.loc[frame["measured"] == "projected", "cell"].unique(), "measured"] = "projected"
    values, counts = trials["value"].agg(tuple), trials[[f"is_{mark}" for mark in MARKS]].sum()
    cells = [
        Cell(
            row,
            times,
            labels[texts_of(row, LABELLED)],
            +Counter(dict(zip(MARKS, map(int, hits), strict=True))),
            lost.get(row["identity"], {}),
        )
        for row, times, hits in zip(dicts_of(first), values, counts.to_numpy(), strict=True)
    ]
    return in_order(cells)


def marks_in(rows: pd.DataFrame) -> Counter[str]:
    """How many of the rows have each mark."""
    return Counter(mark for text in rows["marks"] for mark in shown(str(text)).split())


def _lost(frame: pd.DataFrame, ok: "pd.Series[bool]") -> dict[int, Counter[str]]:
    """By identity of ok rows: the trials of their case that have no time, by status."""
    numbers = frame["case"]
    without = ~ok & frame["status"].isin(WITHOUT_TIME)
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for number, status in zip(numbers[without], frame.loc[without, "status"], strict=True):
        counts[number][status] += 1
    found = frame.loc[ok, ["identity"]].assign(number=numbers[ok]).drop_duplicates()
    return {one: counts[number] for one, number in found.itertuples(index=False) if number in counts}


def _has(texts: "pd.Series[Any]", word: str) -> "pd.Series[bool]":
    """Whether each text begins with `word` or holds it among its words; looks at each different text once."""
    hits = [text for text in texts.unique() if word in re.split(r"\W+", str(text))]
    return texts.isin(hits)


def dicts_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A dict per row, its texts as they may be shown."""
    names = [str(name) for name in frame]
    columns = [_values(column) for _, column in frame.items()]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: "pd.Series[Any]") -> list[Any]:
    """A column's values, its texts as they may be shown; looks at each different text once."""
    values = column.tolist()
    if column.dtype.kind in "biuf":
        return values
    known = {value: shown(value) for value in set(values) if isinstance(value, str)}
    return [known.get(value, value) for value in values]


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """By suite as they came, model, card, precision and batch policy.

    Models go by their rungs, else by their names with numbers as such; without a number they stay as they came.
    """
    suites = list(dict.fromkeys(cell.suite for cell in cells))
    came = {model: at for at, model in enumerate(dict.fromkeys(cell.model for cell in cells))}

    def place(cell: Cell) -> tuple[object, ...]:
        rung = math.inf if math.isnan(cell.rung) else cell.rung
        name = re.sub(r"\d+", lambda digits: digits[0].zfill(12), cell.model) if re.search(r"\d", cell.model) else ""
        rest = cell.label, _precision_rank(cell), cell.batch_policy
        return suites.index(cell.suite), rung, name, came[cell.model], *rest

    return sorted(cells, key=place)


def holes_of(frame: pd.DataFrame, ok: "pd.Series[bool]", labels: Mapping[tuple[str, ...], str]) -> list[Cell]:
    """One cell without trials for every case of which no row is ok."""
    lost = frame[~ok.groupby(frame["case"]).transform("any")]
    # What came to an end says more than what was stopped after it.
    lost = lost.sort_values("status", key=lambda status: status != "interrupted", kind="stable")
    found = dicts_of(lost.drop_duplicates("case", keep="last").sort_index())
    return in_order([Cell(row, (), labels[texts_of(row, LABELLED)]) for row in found])


def _precision_rank(cell: Cell) -> int:
    names = list(PRECISIONS)
    return names.index(cell.precision) if cell.precision in names else len(names)


def text_of(value: object) -> str:
    """A cell of the table as text: 64 for 64.0, empty for NaN."""
    if isinstance(value, float):
        return "" if value != value else f"{value + 0.0:.15g}"  # -0.0 is no other 0
    return str(value)


def texts_of(row: Cell | Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Several columns of a cell or row as texts."""
    values = row.row if isinstance(row, Cell) else row
    return tuple(text_of(values[column]) for column in columns)


LABELLED = [*SPECIMEN, "source", "power_cap", "memory_limit_bytes"]


def circumstanced(card: str, power_cap: str, memory_limit_bytes: str) -> str:
    """A card's short name with what makes it another card: its power limit, a limit of its memory."""
    power = f" @ {power_cap}" if power_cap else ""
    memory = f" (limit {float(memory_limit_bytes) / 2**30:.3g} GiB)" if float(memory_limit_bytes or 0) else ""
    return f"{short(card)}{power}{memory}"


def short(card: str) -> str:
    """A card's name without its maker's boilerplate."""
    for word in ("NVIDIA ", "GeForce ", "(R)", "(TM)", " Processor"):
        card = card.replace(word, "")
    return " ".join(card.split())
