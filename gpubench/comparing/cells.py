"""Rows to cells: the trials of one case on one specimen in one session, named, and the cases without any."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from gpubench.comparing import stats
from gpubench.records import COLUMNS

GROUP = ["suite", "suite_version", "params", "data", "weights", "mode", "measured", "source", "processes"]
"""The part of the key that a table or chart shares."""

KEY = [*GROUP, "model", "precision", "batch_policy", "fixed_batch"]
"""What must agree for two cells to be compared; the compared column is taken out of it."""

SPECIMEN = ["card", "device_hash", "session"]
"""Trials are pooled only inside one specimen and one session."""

STACK = [
    "torch", "torchvision", "fastai", "cuda", "cudnn", "threads", "cudnn_benchmark", "memory_limit_bytes", "power_cap",
]  # fmt: skip
"""A difference here is worth up to 20% by itself, so it leaves a ratio but takes the verdict away."""

STACK_PARAMS = ("threads", "cudnn_benchmark")
"""Parameters that every suite has and that belong to the stack, not to the recipe."""

POWER_SLACK = 0.01
"""Share of its own power limit by which a card's limit may be off without being named."""

OUTCOMES = [
    "samples_per_second", "accuracy", "loss", "perplexity", "test_perplexity", "data_stall", "peak_memory_bytes",
    "resident_samples_per_second", "flops_per_sample", "bytes_per_sample", "ops_per_step", "measured_peak_flops",
    "measured_bandwidth_bytes_per_second", "op_overhead_seconds", "loader_wait", "valid_seconds", "epochs",
]  # fmt: skip
"""Columns of which a cell shows the median over its trials."""


@dataclass(frozen=True)
class Cell:
    """The trials of one case on one specimen in one session, or what became of it where none is ok."""

    row: Mapping[str, Any]
    """What all its rows have in common (the first one), with medians of its outcomes."""
    seconds: tuple[float, ...]
    label: str
    """The card, with as much as is needed to tell it from others of its name."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """Trials that are unsteady, throttled or shared: how many of each."""
    parts: "tuple[Cell, ...]" = ()
    """The cells it combines, where it stands for several specimens; `seconds` then has one value of each."""

    @property
    def median(self) -> float:
        """Seconds of the whole run: the median over trials, or over specimens."""
        return float(stats.median(self.seconds))

    @property
    def trials(self) -> int:
        """Number of trials, of all specimens together."""
        return sum(part.trials for part in self.parts) or len(self.seconds)

    @property
    def adaptive(self) -> bool:
        """Whether its rounds were added until the intervals were tight (`run --until`)."""
        return bool(self.row["until"] > 0) and not self.parts

    def __getattr__(self, name: str) -> Any:
        if name in COLUMNS:
            return self.row[name]
        raise AttributeError(name)


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without the long columns that no comparison needs, and with what the key and the stack need.

    Threads and cuDNN's setting leave `params`; `power_cap` names a power limit that is not the card's own.
    """
    done = frame.drop(columns=["laps", "batch_curve"]).assign(
        fixed_batch=frame["batch_size"].where(frame["batch_policy"] == "fixed").fillna(0),
        memory_limit_bytes=frame["memory_limit_bytes"].fillna(0),
        processes=frame["processes"].fillna(1),
        cudnn_benchmark=frame["params"].str.extract(r"\bcudnn_benchmark=(\S+)", expand=False).fillna(""),
        params=frame["params"].str.replace(rf" ?\b({'|'.join(STACK_PARAMS)})=\S+", "", regex=True).str.strip(),
        power_cap="",
    )
    if {"power_limit_watts", "default_power_limit_watts"} <= set(frame):
        watts, usual = frame["power_limit_watts"], frame["default_power_limit_watts"]
        capped = (watts - usual).abs() > usual * POWER_SLACK
        done.loc[capped, "power_cap"] = watts[capped].map("{:.0f} W".format)
    return done


def once(frame: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
    """One row per trial: its ok row, else its last, where a run was resumed or a file was given twice."""
    trial = [c for c in [*KEY, *SPECIMEN, "memory_limit_bytes", "device", "trial"] if c != "measured"]
    known = frame["trial"].notna() & (frame["session"] != "")
    ordered = frame.assign(done=frame["status"] == "ok").sort_values("done", kind="stable")
    superseded = (ordered.duplicated(trial, keep="last") & known).reindex(frame.index)
    for again, what in (
        (superseded & (frame["status"] != "ok"), "trial(s) without a result that ran again later"),
        (superseded & (frame["status"] == "ok"), "row(s) of trials that are here twice"),
    ):
        if again.any():
            left_out.append(f"{int(again.sum())} {what}")
    return frame[~superseded]


def list_bad(bad: pd.DataFrame, left_out: list[str]) -> None:
    """The rows that are not ok, counted by case, status and reason."""
    columns = ["suite", "model", "precision", "batch_policy", "card", "status", "reason"]
    for key, count in bad.groupby(columns, sort=False).size().items():
        suite, model, precision, _, card, status, reason = map(str, key)  # type: ignore[call-overload]
        why = "ok, but without seconds" if status == "ok" else status
        why += f", {reason}" if reason else ""
        left_out.append(f"{suite} {model} {precision} on {short(card)}: {count} x {why}")


def cells_of(frame: pd.DataFrame, labels: Mapping[tuple[str, ...], str]) -> list[Cell]:
    """The trials that are ok, pooled inside one specimen and session."""
    columns = [*KEY, *SPECIMEN, "batch_size", *STACK]
    # Rows written by hand, or before there were marks, still say that they are unsteady.
    unsteady = frame["steady"].str.extract("^(unsteady)", expand=False).fillna("")
    frame = frame.assign(
        cell=frame.groupby(columns, sort=False, dropna=False).ngroup(),
        marks=frame["marks"].where(frame["marks"] != "", unsteady),
    )
    trials = frame.groupby("cell")
    first = frame.drop_duplicates("cell").set_index("cell").sort_index()
    first[OUTCOMES] = trials[OUTCOMES].median()
    seconds, marks = trials["seconds"].agg(tuple), trials["marks"].agg(" ".join)
    cells = [
        Cell(row, times, labels[texts_of(row, LABELLED)], Counter(words.split()))
        for row, times, words in zip(_records(first), seconds, marks, strict=True)
    ]
    return in_order(cells)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """By model as they came, card, precision and batch policy."""
    order = {model: i for i, model in enumerate(dict.fromkeys(cell.model for cell in cells))}
    return sorted(cells, key=lambda c: (order[c.model], c.label, _precision_rank(c), c.batch_policy))


def holes_of(frame: pd.DataFrame, ok: "pd.Series[bool]", labels: Mapping[tuple[str, ...], str]) -> list[Cell]:
    """One cell without trials for every case of which no row is ok."""
    case = [c for c in [*KEY, *SPECIMEN] if c != "measured"]
    lost = frame[~ok.groupby([frame[c] for c in case], dropna=False).transform("any")]
    found = _records(lost.drop_duplicates(case, keep="last"))
    return in_order([Cell(row, (), labels[texts_of(row, LABELLED)]) for row in found])


def _precision_rank(cell: Cell) -> int:
    names = ["fp32", "tf32", "bf16", "fp16", "fp16-master", "fp16-pure"]
    return names.index(cell.precision) if cell.precision in names else len(names)


def text_of(value: object) -> str:
    """A cell of the table as text: 64 for 64.0, empty for NaN."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.15g}"
    return str(value)


def texts_of(row: Cell | Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Several columns of a cell or row as texts."""
    values = row.row if isinstance(row, Cell) else row
    return tuple(text_of(values[column]) for column in columns)


LABELLED = [*SPECIMEN, "source", "power_cap", "memory_limit_bytes"]


def labels_of(frame: pd.DataFrame) -> dict[tuple[str, ...], str]:
    """A name per specimen, session and source: the card, and what sets it apart where that is not enough.

    The session is named only where one specimen ran the same case in several.
    """
    case = [*KEY, "card", "device_hash", "power_cap", "memory_limit_bytes"]
    sessions = frame.drop_duplicates([*case, "session"])
    again = sessions[sessions.duplicated(case, keep=False)]
    repeated = {_texts_without_session(row) for row in _records(again[LABELLED])}
    who = frame[LABELLED].drop_duplicates()
    own = who[who["source"] == ""]
    specimens = own.groupby("card")["device_hash"].nunique()
    sources = who.groupby("card")["source"].nunique()
    labels = {}
    for row in _records(who):
        card, specimen, session, source, power, memory = key = texts_of(row, LABELLED)
        label = circumstanced(card, power, memory)
        if source and sources[card] > 1:
            label += f" ({source.removeprefix('github.com/').partition('/')[0]})"
        elif not source and specimens[card] > 1:
            label += f" #{specimen[:4]}"
        if _texts_without_session(row) in repeated:
            label += f" [{session[:6]}]"
        labels[key] = label
    return labels


def _texts_without_session(row: Mapping[str, Any]) -> tuple[str, ...]:
    return texts_of(row, [column for column in LABELLED if column != "session"])


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


def title_of(cells: Sequence[Cell]) -> str:
    """What a group of cells has in common, in words."""

    def common(column: str) -> str:
        values = {text_of(cell.row[column]) for cell in cells}
        return values.pop() if len(values) == 1 else ""

    parts = [common("suite"), common("params")]
    parts += [f"{name}={common(name)}" for name in ("data", "weights") if common(name)]
    parts += [common("mode"), common("source")]
    if common("processes") not in {"", "1"}:
        parts.append(f"{common('processes')} processes")
    return ", ".join(part for part in parts if part)
