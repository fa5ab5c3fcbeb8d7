"""Rows to cells and matched comparisons with verdicts; whatever is left out is listed with its reason."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from gpubench.comparing import stats
from gpubench.errors import UserError
from gpubench.loading import load
from gpubench.records import COLUMNS

NOTHING_COMPARABLE = 3

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

FOLLOWS = {
    "torch": {"torchvision", "fastai", "cuda", "cudnn"},
    "mode": {"measured"},
    "batch_size": {"fixed_batch", "batch_policy"},
}
"""Columns that a compared column brings with it."""

TWIN_POLICIES = {"max-fp32": "max", "author-doubled": "author"}
"""Batch policies that hold for mixed precision alone, and the one of the fp32 row to compare with."""

OUTCOMES = [
    "samples_per_second", "accuracy", "loss", "perplexity", "test_perplexity", "data_stall", "peak_memory_bytes",
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


@dataclass(frozen=True)
class Comparison:
    """Seconds of one cell over seconds of another."""

    axis: str
    subject: Cell
    other: Cell
    subject_name: str
    other_name: str
    ratio: stats.Ratio
    """Subject over other."""
    verdict: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mean:
    """Geometric mean of a subject's ratios over the cases that both sides have."""

    axis: str
    subject_name: str
    other_name: str
    value: float | None
    """None under half of the cases."""
    common: int
    all_cases: int


@dataclass(frozen=True)
class Group:
    """Cells of one suite, recipe, data and source, and the comparisons among them."""

    title: str
    cells: list[Cell]
    """At least one trial each."""
    comparisons: list[Comparison] = field(default_factory=list)
    means: list[Mean] = field(default_factory=list)
    holes: list[Cell] = field(default_factory=list)
    """Cases of which no trial is ok."""


@dataclass(frozen=True)
class Result:
    """Everything `compare` shows."""

    groups: list[Group]
    left_out: list[str]
    problems: list[str]

    @property
    def comparisons(self) -> list[Comparison]:
        """All of them; the family for Holm's correction."""
        return [comparison for group in self.groups for comparison in group.comparisons]


def compare_files(
    paths: Sequence[Path],
    by: str | None = None,
    baseline: str | None = None,
    charts: Path | None = None,
) -> int:
    """Print the comparison of all rows in `paths`, draw charts where asked; returns the exit code.

    Raises UserError where no row can be read, or `by` or `baseline` name nothing that is there.
    """
    result = compare(paths, by, baseline)
    from gpubench.comparing.table import print_result

    print_result(result)
    if charts is not None:
        from gpubench.comparing.plot import draw

        for path in draw(result, charts):
            print(path)
    return 0 if result.comparisons else NOTHING_COMPARABLE


def compare(paths: Sequence[Path], by: str | None = None, baseline: str | None = None) -> Result:
    """Load, match and judge."""
    loaded = load(paths)
    if loaded.frame.empty:
        why = "; ".join(loaded.problems) or "the files hold none"
        raise UserError(f"no row to compare: {why}")
    by = {"batch": "batch_size"}.get(by or "", by)
    if by is not None and by not in COLUMNS:
        raise UserError(f"--by {by}: no such column; try card, precision, torch, batch_size or mode")
    left_out: list[str] = []
    frame = _once(_completed(loaded.frame), left_out)
    ok = (frame["status"] == "ok") & (frame["seconds"] > 0)
    _list_bad(frame[~ok], left_out)
    labels = _labels(frame)
    cells, holes = _cells(frame[ok], labels), _holes(frame, ok, labels)
    axes = [by] if by else ["card", "precision"]
    wish = _wished(baseline, axes, cells) if baseline else None
    shared = [column for column in GROUP if column not in {*axes, *FOLLOWS.get(by or "", ())}]
    grouped: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        grouped[_texts(cell, shared)].append(cell)
    groups = []
    for members in grouped.values():
        comparisons: list[Comparison] = []
        for axis in axes:
            comparisons += _compare_along(axis, members, wish, left_out, explicit=by is not None)
        groups.append(Group(_title(members[0]), members, comparisons))
    _place_holes(holes, groups, [column for column in shared if column != "measured"])
    groups = [replace(g, means=_means(g.comparisons, [*g.cells, *g.holes])) for g in groups]
    return Result(_judged(groups), left_out, loaded.problems)


def _completed(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without the long columns that no comparison needs, and with what the key needs."""
    return frame.drop(columns=["laps", "batch_curve"]).assign(
        fixed_batch=frame["batch_size"].where(frame["batch_policy"] == "fixed").fillna(0),
        memory_limit_bytes=frame["memory_limit_bytes"].fillna(0),
        processes=frame["processes"].fillna(1),
    )


def _once(frame: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
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


def _list_bad(bad: pd.DataFrame, left_out: list[str]) -> None:
    """The rows that are not ok, counted by case, status and reason."""
    columns = ["suite", "model", "precision", "batch_policy", "card", "status", "reason"]
    for key, count in bad.groupby(columns, sort=False).size().items():
        suite, model, precision, _, card, status, reason = map(str, key)  # type: ignore[call-overload]
        why = "ok, but without seconds" if status == "ok" else status
        why += f", {reason}" if reason else ""
        left_out.append(f"{suite} {model} {precision} on {short(card)}: {count} x {why}")


def _cells(frame: pd.DataFrame, labels: Mapping[tuple[str, ...], str]) -> list[Cell]:
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
        Cell(row, times, labels[_texts(row, LABELLED)], int(count))
        for row, times, count in zip(_records(first), seconds, shaky, strict=True)
    ]
    return _sorted(cells)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _sorted(cells: Sequence[Cell]) -> list[Cell]:
    order = {model: i for i, model in enumerate(dict.fromkeys(cell.model for cell in cells))}
    return sorted(cells, key=lambda c: (order[c.model], c.label, _precision_rank(c), c.batch_policy))


def _holes(frame: pd.DataFrame, ok: "pd.Series[bool]", labels: Mapping[tuple[str, ...], str]) -> list[Cell]:
    """One cell without trials for every case of which no row is ok."""
    case = [c for c in [*KEY, *SPECIMEN] if c != "measured"]
    lost = frame[~ok.groupby([frame[c] for c in case], dropna=False).transform("any")]
    found = _records(lost.drop_duplicates(case, keep="last"))
    return _sorted([Cell(row, (), labels[_texts(row, LABELLED)]) for row in found])


def _place_holes(holes: Sequence[Cell], groups: list[Group], shared: Sequence[str]) -> None:
    """Each hole goes to the first group of its kind, or to one of its own."""
    places = {_texts(group.cells[0], shared): group for group in reversed(groups)}
    for hole in holes:
        key = _texts(hole, shared)
        if key not in places:
            places[key] = Group(_title(hole), [])
            groups.append(places[key])
        places[key].holes.append(hole)


def _precision_rank(cell: Cell) -> int:
    names = ["fp32", "tf32", "bf16", "fp16", "fp16-master", "fp16-pure"]
    return names.index(cell.precision) if cell.precision in names else len(names)


def _text(value: object) -> str:
    """A cell of the table as text: 64 for 64.0, empty for NaN."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.15g}"
    return str(value)


def _texts(row: Cell | Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    values = row.row if isinstance(row, Cell) else row
    return tuple(_text(values[column]) for column in columns)


LABELLED = [*SPECIMEN, "source"]


def _labels(frame: pd.DataFrame) -> dict[tuple[str, ...], str]:
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
        card, specimen, session, source = key = _texts(row, LABELLED)
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


def _title(cell: Cell) -> str:
    row = cell.row
    parts = [row["suite"], row["params"], f"data={row['data']}" if row["data"] else ""]
    parts += [f"weights={row['weights']}" if row["weights"] else "", row["mode"], row["source"]]
    if row["processes"] > 1:
        parts.append(f"{row['processes']:.0f} processes")
    if row["memory_limit_bytes"]:
        parts.append(f"memory limit {row['memory_limit_bytes'] / 2**30:.3g} GiB")
    return ", ".join(str(part) for part in parts if part)


def _axis_value(cell: Cell, axis: str) -> str:
    return cell.label if axis == "card" else _text(cell.row[axis])


def _wished(wish: str, axes: Sequence[str], cells: Sequence[Cell]) -> tuple[str, str]:
    """(axis, value) that --baseline names: a value or an unmistakable part of one."""
    there = {(axis, _axis_value(cell, axis)) for cell in cells for axis in axes}
    exact = [pair for pair in there if pair[1].lower() == wish.lower()]
    matched = exact or [pair for pair in there if wish.lower() in pair[1].lower()]
    if len(matched) != 1:
        names = sorted({value for axis, value in matched or there if matched or axis == axes[0]})
        what = "it could be" if matched else "there is"
        raise UserError(f"--baseline {wish}: {what} {', '.join(names) or 'nothing to compare'}")
    return matched[0]


def _compare_along(
    axis: str, cells: list[Cell], wish: tuple[str, str] | None, left_out: list[str], *, explicit: bool
) -> list[Comparison]:
    """Every other value of `axis` against the baseline, wherever the rest of the key agrees."""
    values = list(dict.fromkeys(_axis_value(cell, axis) for cell in cells))
    if len(values) < 2:
        return []
    base = wish[1] if wish and wish[0] == axis else _fastest(axis, cells)
    if base not in values:
        left_out.append(f"{_title(cells[0])}: {base} has no row here, so nothing is compared along {axis}")
        return []
    buckets: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        buckets[_bucket(cell, axis)].append(cell)
    found = []
    for cell in cells:
        bucket = buckets[_bucket(cell, axis)]
        local = base
        if axis == "batch_size" and not wish:  # under `max` it differs from model to model
            local = _axis_value(min(bucket, key=lambda c: c.median), axis)
        if _axis_value(cell, axis) == local:
            continue
        partners = [c for c in bucket if _axis_value(c, axis) == local]
        if partners:
            found.append(_comparison(axis, cell, max(partners, key=lambda c: _closeness(cell, c))))
        elif explicit or axis == "card":
            left_out.append(
                f"{cell.suite} {cell.model} {cell.precision} {_batch(cell)} on {cell.label}:"
                f" {local} has no row of the same kind"
            )
    return found


def _bucket(cell: Cell, axis: str) -> tuple[str, ...]:
    """What must agree with the other side: the key without the axis, and outside the card axis the card."""
    free = {axis, *FOLLOWS.get(axis, ())}
    columns = [column for column in KEY if column not in free and column != "batch_policy"]
    if axis != "card":
        columns.append("card")
    if axis in {"precision", "batch_size"}:
        columns.append("device_hash")
    policy = cell.batch_policy
    if axis == "precision":
        policy = TWIN_POLICIES.get(policy, policy)
    return (*_texts(cell, columns), "" if "batch_policy" in free else str(policy))


def _closeness(subject: Cell, other: Cell) -> tuple[bool, bool, bool, int]:
    """Of several partners the one that shares most circumstances."""
    return (
        subject.batch_policy == other.batch_policy,
        subject.session == other.session,
        subject.device_hash == other.device_hash,
        other.trials,
    )


def _batch(cell: Cell) -> str:
    return f"batch {cell.batch_policy}" if cell.batch_policy != "fixed" else f"batch {cell.batch_size:.0f}"


def _fastest(axis: str, cells: Sequence[Cell]) -> str:
    """fp32 among precisions, else the value that is fastest over the cases that all values have."""
    times: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for cell in cells:
        times[_axis_value(cell, axis)][_bucket(cell, axis)] = cell.median
    if axis == "precision" and "fp32" in times:
        return "fp32"
    common = set.intersection(*map(set, times.values()))

    def speed(value: str) -> float:
        own = times[value]
        return stats.geometric_mean([own[case] for case in common or own])

    return min(times, key=speed)


def _comparison(axis: str, subject: Cell, other: Cell) -> Comparison:
    one_specimen = (subject.session, subject.device_hash) == (other.session, other.device_hash)
    ratio = stats.ratio(subject.seconds, other.seconds, same_session=one_specimen and not subject.source)
    notes = ["one specimen each"] if ratio.specimens else []
    stack = [column for column in STACK if column != axis and not _excused(column, subject, other)]
    differing = [c for c in stack if _minor(subject.row[c], c) != _minor(other.row[c], c)]
    if differing:
        notes.append(f"differs in {', '.join(differing)}")
    notes += [f"another {c}" for c in ("cpu", "driver") if str(subject.row[c]) != str(other.row[c]) and c != axis]
    if subject.suite_digest != other.suite_digest:
        notes.append("the suite's file was edited in between")
    if axis == "precision" and subject.batch_policy != "fixed":
        notes.append(_batch_note(subject, other))
    verdict = ""
    if set(differing) - FOLLOWS.get(axis, set()):
        verdict = f"{axis} + stack"
    elif subject.measured != other.measured:
        verdict, notes = "not judged", [*notes, f"{subject.measured} / {other.measured}"]
    names = _axis_value(subject, axis), _axis_value(other, axis)
    return Comparison(axis, subject, other, *names, ratio, verdict, tuple(note for note in notes if note))


def _excused(column: str, subject: Cell, other: Cell) -> bool:
    """Threads are part of the card itself where a CPU is what is measured."""
    return column == "threads" and subject.device == other.device == "cpu"


def _batch_note(subject: Cell, other: Cell) -> str:
    if pd.isna(subject.batch_size) or pd.isna(other.batch_size):
        return ""
    times = subject.batch_size / other.batch_size
    return "same batch" if times == 1 else f"batch {times:.2g} x"


def _minor(value: Any, column: str) -> str:
    """A version's first two numbers (cuDNN writes 91002 for 9.10.2); other facts as they are."""
    text = _text(value)
    if column in {"threads", "cpu"}:
        return text
    if column == "cudnn" and text.isdigit():
        return text[:-2]
    return ".".join(text.partition("+")[0].split(".")[:2])


def _judged(groups: list[Group]) -> list[Group]:
    """Verdicts, with p values adjusted over every ratio that is shown."""
    shown = [c for group in groups for c in group.comparisons]
    family = [c for c in shown if c.ratio.p is not None and not c.verdict]
    adjusted = dict(zip(map(id, family), stats.holm([c.ratio.p or 0.0 for c in family]), strict=True))
    return [
        replace(g, comparisons=[_judge(c, adjusted.get(id(c)), len(family)) for c in g.comparisons]) for g in groups
    ]


def _judge(c: Comparison, adjusted_p: float | None, family: int) -> Comparison:
    if c.verdict:
        return c
    trials = min(c.subject.trials, c.other.trials)
    verdict = stats.verdict(c.ratio, adjusted_p, trials)
    advice = ""
    if verdict == "few trials" or (verdict == "unsure" and not c.ratio.specimens):
        more = stats.trials_to_decide(c.subject.seconds, c.other.seconds, family) - trials
        advice = f"about {max(1, more)} more trials a side would decide"
    elif verdict == "unsure":
        advice = "no more than two specimens of one card may differ by"
    return replace(c, verdict=verdict, notes=(*c.notes, advice) if advice else c.notes)


def _means(comparisons: Sequence[Comparison], cells: Sequence[Cell]) -> list[Mean]:
    """One per card against the baseline, over the cases that every compared card has."""
    cards = [c for c in comparisons if c.axis == "card"]
    sides = {c.other_name for c in cards} | {c.subject_name for c in cards}
    cases = {_bucket(cell, "card") for cell in cells if cell.label in sides}
    if len(cases) < 2:
        return []
    ratios: dict[tuple[str, str], dict[tuple[str, ...], float]] = defaultdict(dict)
    for c in cards:
        ratios[c.subject_name, c.other_name][_bucket(c.subject, "card")] = c.ratio.value
    common = set.intersection(*map(set, ratios.values()))
    enough = len(common) * 2 >= len(cases)
    means = []
    for (subject, other), by_case in ratios.items():
        value = stats.geometric_mean([by_case[case] for case in common]) if enough else None
        means.append(Mean("card", subject, other, value, len(common), len(cases)))
    return means
