"""Pools rows into groups (trials of one case, specimen and session); shortens names of cards. `compare` calls it."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from gpubench.analysis import stats
from gpubench.printed import shown
from gpubench.rows.alike import CASE, GROUP, OUTCOMES, READ_IDENTITY, SPECIMEN, STACK_PARAMS
from gpubench.rows.params import params_of, params_without
from gpubench.rows.read import stored
from gpubench.suite.precisions import PRECISIONS

POWER_SLACK = 0.01
"""A power limit within this share of the card's default counts as the default, because drivers round."""
IGNORED_PREFIXES = ("NCCL ", "mostly ", "GPUDirect RDMA ", "each process on the CPUs")
"""Prefixes of the parts of `interconnect` that are ignored when links are compared. `mostly ` is in older rows."""
CPU = "CPU "
"""Prefix that is added to a CPU's name if the name lacks this word."""
MARKS = ("shared", "throttled", "clock_fell", "unsteady", "resumed")
"""Words of the column `marks` that results show as caveats."""
CONFLICT = "conflict"
"""Status of rows of one trial that contradict each other; only in memory, never in files."""
DIVERGED = "diverged"
"""Status of failed trainings whose `reason` begins with this word, or with a process and this word; only in memory."""
CUT_SHORT = ("timed_out", DIVERGED)
"""Statuses of trainings that missed their goal without an accuracy."""
UNREAD = ("laps", "precision_proof", "row_digest")
"""Columns that comparisons do not use. They are not read, to save memory."""


class Text:
    """An attribute of a group: the column of its row with the same name, as text."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, group: "Group", owner: type | None = None) -> str:
        return str(group.row[self.name])


class Number:
    """An attribute of a group: the column of its row with the same name, as a number; NaN if empty or missing."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, group: "Group", owner: type | None = None) -> float:
        return group.number(self.name)


@dataclass(frozen=True)
class Group:
    """The usable trials of one case, specimen and session. A hole is a group without values."""

    suite, studies, model, precision, batch_policy = Text(), Text(), Text(), Text(), Text()
    card, device, device_hash, session, source = Text(), Text(), Text(), Text(), Text()
    params, data, mode, measured, status, reason = Text(), Text(), Text(), Text(), Text(), Text()
    rung, batch_size, processes, epochs, samples_per_second = Number(), Number(), Number(), Number(), Number()
    accuracy, peak_memory_bytes = Number(), Number()

    row: Mapping[str, Any]
    """The first row of the group, with the medians of outcomes (measured columns) and the remarks of all its trials."""
    values: tuple[float, ...]
    """The compared value of each trial: seconds of the whole run, or another metric. Less is better."""
    label: str
    """The card, and what distinguishes it from others with the same name."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """Number of its trials with each of MARKS."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Number of trials of its case without a time, by status; for conflicts, the number of rows."""
    parts: "tuple[Group, ...]" = ()
    """The groups that were combined into this one. `values` then has one value per specimen or session."""
    numbers: tuple[float, ...] = ()
    """The round of each trial in its session."""
    starts: tuple[str, ...] = ()
    """When each trial started, in ISO 8601; empty where unknown."""

    def number(self, column: str) -> float:
        """Return a number of its row; NaN where it is empty or missing."""
        value = self.row.get(column)
        return float(value) if isinstance(value, int | float) else math.nan

    @property
    def case(self) -> int:
        """The number of its case, as in the column `case` of the rows."""
        return int(self.row.get("case", -1))

    @property
    def cases(self) -> frozenset[int]:
        """The numbers of all cases in it: its own, or those of its parts."""
        return frozenset(part.case for part in self.parts or (self,))

    @property
    def rounds(self) -> dict[float, float]:
        """The value of each trial by its round, or by its position if a round is unknown or occurs twice."""
        is_known = len({*self.numbers}) == len(self.values) and not any(map(math.isnan, self.numbers))
        numbers = self.numbers if is_known else range(len(self.values))
        return dict(zip(numbers, self.values, strict=True))

    @cached_property
    def median(self) -> float:
        """The median of its values."""
        return float(stats.median(self.values))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of the median; None below six values."""
        return stats.median_interval(self.values, self.adaptive)

    @cached_property
    def trials(self) -> int:
        """Number of trials, of all parts together."""
        return sum(part.trials for part in self.parts) or len(self.values)

    @property
    def adaptive(self) -> bool:
        """Whether rounds were added until the intervals were narrow (`run --until`); False for a combined group."""
        return bool(self.row["until"] > 0) and not self.parts

    @property
    def contradicting(self) -> str:
        """Note on the rows of its case that contradict other rows of the same trial; empty if there are none."""
        count = self.lost.get(CONFLICT)
        return f"{count} rows contradict each other" if count else ""

    @property
    def lost_note(self) -> str:
        """Note on the trials of its case without a time and on contradicting rows; empty where there are none."""
        lost = sum(self.lost.values()) - self.lost.get(CONFLICT, 0)
        words = f"{lost} of {lost + self.trials} trials have no result" if lost else ""
        return "; ".join(filter(None, [words, self.contradicting]))


def only_sums(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Return which rows measure all-reduces. Their figures are in `table`, not in `seconds`."""
    return _map_texts(frame["table"], lambda text: '"busbw"' in text).astype(bool)


def without_time(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Return which published rows have neither a time nor a rate, only an accuracy or a speedup."""
    published = frame["mode"].isin(["published"]) & frame["status"].isin(["ok"])  # == takes three times as long
    return published & frame["seconds"].isna() & frame["samples_per_second"].isna()


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the columns that the key and the stack need, and without the columns UNREAD.

    The parameter `cudnn_benchmark` becomes a column, and `threads` the column `threads_asked` (empty unless the user
    chose a number). Rows of one `identity` agree in the columns IDENTITY, rows of one `case` in the columns CASE.
    """
    rows = frame.drop(columns=list(UNREAD), errors="ignore")
    if "identity" not in frame:
        rows = rows.assign(identity=rows.groupby(READ_IDENTITY, sort=False, dropna=False).ngroup())
    firsts = rows.drop_duplicates("identity")
    params = firsts["params"].astype(str)
    columns = as_compared(firsts) | {
        "cudnn_benchmark": params.map(lambda text: params_of(text).get("cudnn_benchmark", "")),
        "threads_asked": params.map(lambda text: params_of(text).get("threads", "").lstrip("0")),
        "params": params.map(lambda text: params_without(text, STACK_PARAMS)),
    }
    rows = rows.assign(**{name: _of_identities(rows, values) for name, values in columns.items()})
    reasons = rows.loc[rows["status"].isin(["failed"]), "reason"]
    diverged = rows.index.isin(reasons.index[reasons.str.match(rf"(rank \d+: )?{DIVERGED}")])
    return rows.assign(case=numbered(rows, CASE), status=rows["status"].mask(diverged, DIVERGED))


def as_compared(frame: pd.DataFrame) -> "dict[str, pd.Series[Any]]":
    """Return the columns of `rows.alike.AS_COMPARED`, and others whose empty cells get a default.

    `power_cap` is empty at the default limit.
    """
    watts, usual = frame["power_limit_watts"], frame["default_power_limit_watts"]
    capped = (watts - usual).abs() > POWER_SLACK * usual
    return {
        "fixed_batch": frame["batch_size"].where(frame["batch_policy"] == "fixed").fillna(0),
        "memory_limit_bytes": frame["memory_limit_bytes"].fillna(0),
        "processes": frame["processes"].fillna(1),
        "nodes": frame["nodes"].fillna(1),
        "basis": frame["measured"].where(frame["mode"] != "sampled", ""),
        "unknown_device": frame["device"].where(frame["device_hash"] == "", ""),
        "link": _map_texts(frame["interconnect"], link_of),
        "start": frame["start"].replace("", "fresh"),
        "clocks_policy": frame["clocks_policy"].replace("", "default"),
        "power_cap": watts.map("{:.0f} W".format).where(capped, ""),
    }


def link_of(interconnect: str) -> str:
    """Return what connects the processes, without CPU binding and NCCL's report, which vary between equal runs."""
    parts = [part for part in interconnect.split("; ") if not part.startswith(IGNORED_PREFIXES)]
    return "; ".join(parts)


def named_cpus(frame: pd.DataFrame) -> "pd.Series[str]":
    """Return the names of the cards, with CPU in the name of each CPU."""
    cards = frame["card"]
    if "cpu" not in stored(frame["device"]):
        return cards
    unnamed = (frame["device"] == "cpu") & ~cards.isin([card for card in cards.unique() if "CPU" in str(card)])
    return cards.mask(unnamed, CPU + cards.astype(str)) if unnamed.any() else cards


def _map_texts(texts: "pd.Series[str]", change: Callable[[str], Any]) -> "pd.Series[Any]":
    """Return a column with each text changed; computed once per different text, because many rows repeat it."""
    return texts.map({text: change(str(text)) for text in set(stored(texts))})


def numbered(frame: pd.DataFrame, columns: Sequence[str]) -> "pd.Series[int]":
    """Return a number for each row, equal for rows that agree in `columns`. Rows of one identity must agree in them."""
    first_rows = frame.drop_duplicates("identity")
    return _of_identities(frame, first_rows.groupby(list(columns), sort=False, dropna=False).ngroup())


def _of_identities(frame: pd.DataFrame, values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a value for each row, from the values of the first row of each identity."""
    identities, different = frame["identity"], values.unique()
    if len(different) == 1:
        return pd.Series(np.broadcast_to(values.to_numpy()[:1], len(frame)), frame.index, copy=False)
    by_identity = np.empty(identities.max() + 1 if len(frame) else 0, values.to_numpy().dtype)
    by_identity[identities[values.index]] = values
    return pd.Series(by_identity[identities.to_numpy()], frame.index, by_identity.dtype)


def list_without_value(bad: pd.DataFrame, left_out: list[str], figure: str) -> None:
    """Add to `left_out` how many rows of each case are not ok or have no `figure`, with their status and reason."""
    columns = ["suite", "model", "precision", "batch_policy", "card", "status", "reason"]
    for key, count in bad.groupby(columns, sort=False).size().items():
        suite, model, precision, _, card, status, reason = (shown(str(part)) for part in key)  # type: ignore[attr-defined]
        why = "missed the goal" if status == "goal_missed" else status.replace("_", " ")
        why += f", but without {figure}" if status == "ok" else ""
        why += f" ({reason.replace(f'{DIVERGED}: ', '')})" if reason else ""
        left_out.append(f"{suite} {model} {precision} on {short(card)}: {count} run{'s' * (count > 1)} {why}")


def groups_of(frame: pd.DataFrame, ok: "pd.Series[bool]", labels: Mapping[tuple[str, ...], str]) -> list[Group]:
    """Return the groups of the usable trials; each has the number of its case's trials without a time."""
    lost = {} if ok.all() else _lost(frame, ok)
    frame = frame if ok.all() else frame[ok]
    frame = frame.assign(group=numbered(frame, GROUP))
    trials = frame.groupby("group")
    first = frame.drop_duplicates("group").set_index("group").sort_index()
    outcomes = [name for name in OUTCOMES if frame[name].notna().any()]
    first[outcomes] = pd.DataFrame({name: trials[name].median() for name in outcomes})  # one by one: less memory
    remarks = frame[frame["status"].isin(["ok"]) & ~frame["reason"].isin([""])].groupby("group")["reason"].agg(distinct)
    first.loc[remarks.index, "reason"] = remarks
    first.loc[frame.loc[frame["measured"].isin(["projected"]), "group"].unique(), "measured"] = "projected"
    marks = _marks_of(frame)
    groups = [
        Group(
            row,
            values,
            labels[texts_of(row, LABELLED)],
            marks.get(number, {}),
            lost.get(row["identity"], {}),
            numbers=numbers,
            starts=starts,
        )
        for number, (row, values, numbers, starts) in enumerate(
            zip(dicts_of(first), *_by_group(frame, "value", "trial", "started"), strict=True)
        )
    ]
    return in_order(groups)


def distinct(reasons: Iterable[str]) -> str:
    """Return the distinct remarks of several rows; of those that differ only in numbers the first."""
    remarks: dict[str, str] = {}
    for remark in filter(None, "; ".join(reasons).split("; ")):
        remarks.setdefault(re.sub(r"[\d.]+", "", remark), remark)
    return "; ".join(remarks.values())


def _by_group(frame: pd.DataFrame, *columns: str) -> list[list[tuple[Any, ...]]]:
    """Return for each column the values of each group; the index is the group's number."""
    groups = frame["group"].to_numpy()
    order, ends = np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups)).tolist()
    lists = [frame[column].to_numpy()[order].tolist() for column in columns]
    return [[tuple(values[start:end]) for start, end in pairwise([0, *ends])] for values in lists]


def _marks_of(frame: pd.DataFrame) -> dict[int, Counter[str]]:
    """Return how many trials of each group have each of MARKS, by the group's number."""
    marked = frame[["group", "marks"]][~frame["marks"].isin([""])]
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for group, text, count in marked.value_counts(sort=False).reset_index().itertuples(index=False):
        words = re.split(r"\W+", text)
        counts[group].update({mark: count for mark in MARKS if mark in words})
    return counts


def marks_in(rows: pd.DataFrame) -> Counter[str]:
    """Return the number of rows with each mark."""
    return Counter(mark for text in rows["marks"] for mark in shown(str(text)).split())


def _lost(frame: pd.DataFrame, ok: "pd.Series[bool]") -> dict[int, Counter[str]]:
    """Return for each identity of an ok row how many trials of its case have no time, by status."""
    numbers = frame["case"]
    without = ~ok & frame["status"].isin([*CUT_SHORT, "failed", "out_of_memory", CONFLICT])
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for number, status in zip(numbers[without], frame.loc[without, "status"], strict=True):
        counts[number][status] += 1
    identities = frame.loc[ok, ["identity"]].assign(number=numbers[ok]).drop_duplicates()
    return {identity: counts[number] for identity, number in identities.itertuples(index=False) if number in counts}


def dicts_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a dict per row, with texts that are safe to print."""
    names = [str(name) for name in frame]
    columns = [_values(column) for _, column in frame.items()]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: "pd.Series[Any]") -> list[Any]:
    """Return a column's values, with texts that are safe to print; computed once per different text."""
    values = column.tolist()
    if column.dtype.kind in "biuf":
        return values
    printable = {value: shown(value) for value in set(values) if isinstance(value, str)}
    return [printable.get(value, value) for value in values]


def in_order(groups: Sequence[Group]) -> list[Group]:
    """Return the groups sorted by suite (in the order given), model, card, precision and batch policy.

    Models are sorted by step of a ladder, else by name (resnet18 before resnet101). Names without digits are first.
    """
    suites = list(dict.fromkeys(group.suite for group in groups))
    model_order = {model: at for at, model in enumerate(dict.fromkeys(group.model for group in groups))}
    precisions = {precision: at for at, precision in enumerate(PRECISIONS)}

    def sort_key(group: Group) -> tuple[object, ...]:
        rung = math.inf if math.isnan(group.rung) else group.rung
        name = re.sub(r"\d+", lambda digits: digits[0].zfill(12), group.model) if re.search(r"\d", group.model) else ""
        rest = group.label, precisions.get(group.precision, len(precisions)), group.batch_policy
        return suites.index(group.suite), rung, name, model_order[group.model], *rest

    return sorted(groups, key=sort_key)


def holes_of(frame: pd.DataFrame, ok: "pd.Series[bool]", labels: Mapping[tuple[str, ...], str]) -> list[Group]:
    """Return a group without trials for each case that has no ok row."""
    lost = frame[~ok.groupby(frame["case"]).transform("any")]
    # Keep the last row of each case; an interrupted row only if the case has no other.
    lost = lost.sort_values("status", key=lambda status: status != "interrupted", kind="stable")
    rows = dicts_of(lost.drop_duplicates("case", keep="last").sort_index())
    return in_order([Group(row, (), labels[texts_of(row, LABELLED)]) for row in rows])


def text_of(value: object) -> str:
    """Return a value as text: 64 for 64.0, empty for NaN."""
    if isinstance(value, float):
        return "" if value != value else f"{value + 0.0:.15g}"  # -0.0 becomes 0
    return str(value)


def texts_of(row: Group | Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Return several columns of a group or row as texts."""
    values = row.row if isinstance(row, Group) else row
    return tuple(text_of(values[column]) for column in columns)


LABELLED = [*SPECIMEN, "source", "power_cap", "memory_limit_bytes"]
"""Columns that the label of a group depends on."""


def card_label(card: str, power_cap: str, memory_limit_bytes: str) -> str:
    """Return a card's short name with its power limit and memory limit, if it has them."""
    power = f" @ {power_cap}" if power_cap else ""
    memory = f" (limit {float(memory_limit_bytes) / 2**30:.3g} GiB)" if float(memory_limit_bytes or 0) else ""
    return f"{short(card)}{power}{memory}"


def short(card: str) -> str:
    """Return a card's name without words such as `NVIDIA` and `(TM)`."""
    for word in ("NVIDIA ", "GeForce ", "(R)", "(TM)", " Processor"):
        card = card.replace(word, "")
    return " ".join(card.split())
