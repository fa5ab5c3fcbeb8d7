"""Rows to cells: the trials of one case on one specimen in one session, named, and the cases without any."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gpubench.comparing import stats
from gpubench.records import COLUMNS

GROUP = [
    "suite", "suite_version", "params", "data", "weights", "mode", "measured", "source", "processes",
    "memory_limit_bytes",
]  # fmt: skip
"""The part of the key that a table or chart shares."""

KEY = [*GROUP, "model", "precision", "batch_policy", "fixed_batch"]
"""What must agree for two cells to be compared; the compared column is taken out of it."""

SPECIMEN = ["card", "device_hash", "session"]
"""Trials are pooled only inside one specimen and one session."""

STACK = ["torch", "torchvision", "fastai", "cuda", "cudnn", "threads"]
"""A difference here is worth up to 20% by itself, so it leaves a ratio but takes the verdict away."""

OUTCOMES = ["samples_per_second", "accuracy", "loss", "data_stall", "peak_memory_bytes"]
"""Columns of which a cell shows the median over its trials."""


@dataclass(frozen=True)
class Cell:
    """The trials of one case on one specimen in one session, or what became of it where none is ok."""

    row: Mapping[str, Any]
    """What all its rows have in common (the first one), with medians of its outcomes."""
    seconds: tuple[float, ...]
    label: str
    """The card, with as much as is needed to tell it from others of its name."""
    unsteady: int = 0
    """Trials whose steady state was not found."""

    @property
    def median(self) -> float:
        """Seconds of the whole run: the median over trials."""
        return float(stats.median(self.seconds))

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.seconds)

    def __getattr__(self, name: str) -> Any:
        if name in COLUMNS:
            return self.row[name]
        raise AttributeError(name)


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without the long columns that no comparison needs, and with what the key needs."""
    return frame.drop(columns=["laps", "batch_curve"]).assign(
        fixed_batch=frame["batch_size"].where(frame["batch_policy"] == "fixed").fillna(0),
        memory_limit_bytes=frame["memory_limit_bytes"].fillna(0),
        processes=frame["processes"].fillna(1),
    )


def once(frame: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
    """One row per trial: its ok row, else its last, where a run was resumed or a file was given twice."""
    trial = [c for c in [*KEY, *SPECIMEN, "device", "trial"] if c != "measured"]
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
    frame = frame.assign(
        cell=frame.groupby(columns, sort=False, dropna=False).ngroup(),
        shaky=frame["steady"].str.startswith("unsteady"),
    )
    trials = frame.groupby("cell")
    first = frame.drop_duplicates("cell").set_index("cell").sort_index()
    first[OUTCOMES] = trials[OUTCOMES].median()
    seconds, shaky = trials["seconds"].agg(tuple), trials["shaky"].sum()
    cells = [
        Cell(row, times, labels[texts_of(row, LABELLED)], int(count))
        for row, times, count in zip(_records(first), seconds, shaky, strict=True)
    ]
    return _sorted(cells)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _sorted(cells: Sequence[Cell]) -> list[Cell]:
    order = {model: i for i, model in enumerate(dict.fromkeys(cell.model for cell in cells))}
    return sorted(cells, key=lambda c: (order[c.model], c.label, _precision_rank(c), c.batch_policy))


def holes_of(frame: pd.DataFrame, ok: "pd.Series[bool]", labels: Mapping[tuple[str, ...], str]) -> list[Cell]:
    """One cell without trials for every case of which no row is ok."""
    case = [c for c in [*KEY, *SPECIMEN] if c != "measured"]
    lost = frame[~ok.groupby([frame[c] for c in case], dropna=False).transform("any")]
    found = _records(lost.drop_duplicates(case, keep="last"))
    return _sorted([Cell(row, (), labels[texts_of(row, LABELLED)]) for row in found])


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


LABELLED = [*SPECIMEN, "source"]


def labels_of(frame: pd.DataFrame) -> dict[tuple[str, ...], str]:
    """A name per specimen, session and source: the card, and what sets it apart where that is not enough.

    The session is named only where one specimen ran the same case in several.
    """
    case = [*KEY, "card", "device_hash"]
    sessions = frame.drop_duplicates([*case, "session"])
    again = sessions[sessions.duplicated(case, keep=False)]
    repeated = set(zip(again["card"], again["device_hash"], again["source"], strict=True))
    who = frame[LABELLED].drop_duplicates()
    own = who[who["source"] == ""]
    specimens = own.groupby("card")["device_hash"].nunique()
    sources = who.groupby("card")["source"].nunique()
    labels = {}
    for row in _records(who):
        card, specimen, session, source = key = texts_of(row, LABELLED)
        label = short(card)
        if source and sources[card] > 1:
            label += f" ({source.removeprefix('github.com/').partition('/')[0]})"
        elif not source and specimens[card] > 1:
            label += f" #{specimen[:4]}"
        if (card, specimen, source) in repeated:
            label += f" [{session[:6]}]"
        labels[key] = label
    return labels


def short(card: str) -> str:
    """A card's name without its maker's boilerplate."""
    for word in ("NVIDIA ", "GeForce ", "(R)", "(TM)", " Processor"):
        card = card.replace(word, "")
    return " ".join(card.split())


def title_of(cell: Cell) -> str:
    """What a group of cells has in common, in words."""
    row = cell.row
    parts = [row["suite"], row["params"], f"data={row['data']}" if row["data"] else ""]
    parts += [f"weights={row['weights']}" if row["weights"] else "", row["mode"], row["source"]]
    if row["processes"] > 1:
        parts.append(f"{row['processes']:.0f} processes")
    if row["memory_limit_bytes"]:
        parts.append(f"memory limit {row['memory_limit_bytes'] / 2**30:.3g} GiB")
    return ", ".join(str(part) for part in parts if part)
