"""Rows to cells and matched comparisons with verdicts; whatever is left out is listed with its reason."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from gpubench.comparing import stats
from gpubench.errors import UserError
from gpubench.loading import load
from gpubench.records import COLUMNS

NOTHING_COMPARABLE = 3

KEY = (
    "suite suite_version params data weights mode measured source processes memory_limit_bytes"
    " model precision batch_policy fixed_batch"
).split()
"""What must agree for two cells to be compared; the compared column is taken out of it."""

GROUP = "suite suite_version params data weights mode measured source processes memory_limit_bytes".split()
"""The part of the key that a table or chart shares."""

SPECIMEN = ["card", "device_hash", "session"]
"""Trials are pooled only inside one specimen and one session."""

STACK = "torch cuda cudnn driver threads".split()
"""A difference here is worth up to 20% by itself, so it leaves a ratio but takes the verdict away."""

TWIN_POLICIES = {"max": ("max", "max-fp32"), "author": ("author", "author-doubled")}
"""Batch policies whose mixed precision is compared with fp32 at the policy named first."""


@dataclass(frozen=True)
class Cell:
    """The trials of one case on one specimen in one session."""

    row: pd.Series
    """What all its rows have in common (the first one)."""
    seconds: tuple[float, ...]
    label: str
    """The card, with as much as is needed to tell it from others of its name."""

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
    comparisons: list[Comparison] = field(default_factory=list)
    means: list[Mean] = field(default_factory=list)


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
    frame, problems = loaded.frame, loaded.problems
    if frame.empty:
        why = "; ".join(problems) or "the files hold none"
        raise UserError(f"no row to compare: {why}")
    by = {"batch": "batch_size"}.get(by or "", by)
    if by is not None and by not in COLUMNS:
        raise UserError(f"--by {by}: no such column; try card, precision, torch, batch_size or mode")
    left_out: list[str] = []
    good = _usable(frame, left_out)
    cells = _cells(good)
    axes = [by] if by else ["card", "precision"]
    groups = []
    for _, members in _grouped(cells, [c for c in GROUP if c not in axes]):
        comparisons: list[Comparison] = []
        for axis in axes:
            comparisons += _compare_along(axis, members, baseline, left_out, explicit=by is not None)
        groups.append(Group(_title(members), members, comparisons, _means(comparisons, members)))
    if baseline and not any(group.comparisons for group in groups):
        names = sorted({_axis_value(cell, axes[0]) for cell in cells})
        if not _match(baseline, names):
            raise UserError(f"--baseline {baseline}: there is {', '.join(names) or 'none'}")
    return Result(_judged(groups), left_out, problems)


def _usable(frame: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
    """The ok rows with a time; the others are counted by status and reason."""
    retried = frame[frame["status"] == "ok"].set_index(["session", *_case_columns(), "trial"]).index
    ok = (frame["status"] == "ok") & (frame["seconds"] > 0)
    bad = frame[~ok]
    if not bad.empty:
        again = bad.set_index(["session", *_case_columns(), "trial"]).index.isin(retried)
        for keys, rows in bad.groupby([*_case_columns(), "card", "status", "reason"], sort=False):
            model, precision = rows["model"].iloc[0], rows["precision"].iloc[0]
            status, reason = str(keys[-2]), str(keys[-1])
            done_later = again[bad.index.get_indexer(rows.index)].all()
            later = " (ran later)" if done_later else ""
            left_out.append(
                f"{rows['suite'].iloc[0]} {model} {precision} on {short(str(keys[-3]))}:"
                f" {len(rows)} x {status}{f', {reason}' if reason else ''}{later}"
            )
    return frame[ok]


def _case_columns() -> list[str]:
    return ["suite", "model", "precision", "batch_policy", "device"]


def _cells(frame: pd.DataFrame) -> list[Cell]:
    frame = frame.assign(fixed_batch=frame["batch_size"].where(frame["batch_policy"] == "fixed", 0))
    frame = frame.assign(memory_limit_bytes=frame["memory_limit_bytes"].fillna(0))
    frame = frame.assign(processes=frame["processes"].fillna(1))
    labels = _labels(frame)
    cells = []
    for keys, rows in frame.groupby([*KEY, *SPECIMEN, "batch_size", *STACK], sort=False, dropna=False):
        specimen = tuple(keys[len(KEY) : len(KEY) + len(SPECIMEN)])
        source = keys[KEY.index("source")]
        cells.append(Cell(rows.iloc[0], tuple(rows["seconds"]), labels[(*specimen, source)]))
    order = {model: i for i, model in enumerate(dict.fromkeys(cell.model for cell in cells))}
    return sorted(cells, key=lambda c: (order[c.model], c.label, _precision_rank(c), c.batch_policy))


def _precision_rank(cell: Cell) -> int:
    names = ["fp32", "tf32", "bf16", "fp16", "fp16-master", "fp16-pure"]
    return names.index(cell.precision) if cell.precision in names else len(names)


def _labels(frame: pd.DataFrame) -> dict[tuple[str, ...], str]:
    """A name per specimen, session and source: the card, and what sets it apart where that is not enough."""
    who = frame.drop_duplicates([*SPECIMEN, "source"])
    keys = [tuple(row) for row in who[[*SPECIMEN, "source"]].itertuples(index=False)]
    labels = {}
    for key in keys:
        card, device, session, source = key
        alike = [other for other in keys if other[0] == card and other != key]
        label = short(card)
        if alike and source:
            label += f" ({source.removeprefix('github.com/').partition('/')[0]})"
        elif alike and any(other[1] != device and not other[3] for other in alike):
            label += f" #{device[:4]}"
        if any(other[1] == device and other[3] == source for other in alike):
            label += f" [{session[:6]}]"
        labels[key] = label
    return labels


def short(card: str) -> str:
    """A card's name without its maker's boilerplate."""
    for word in ("NVIDIA ", "GeForce ", "(R)", "(TM)", " Processor"):
        card = card.replace(word, "")
    return " ".join(card.split())


def _grouped(cells: list[Cell], columns: list[str]) -> list[tuple[tuple[Any, ...], list[Cell]]]:
    def key(cell: Cell) -> tuple[str, ...]:
        return tuple(str(cell.row[column]) for column in columns)

    return [(k, list(v)) for k, v in groupby(sorted(cells, key=key), key=key)]


def _title(cells: list[Cell]) -> str:
    row = cells[0].row
    parts = [row["suite"], row["params"], f"data={row['data']}" if row["data"] else ""]
    parts += [f"weights={row['weights']}" if row["weights"] else "", row["mode"], row["source"]]
    if row["memory_limit_bytes"]:
        parts.append(f"memory limit {row['memory_limit_bytes'] / 2**30:.3g} GiB")
    return ", ".join(str(part) for part in parts if part)


def _axis_value(cell: Cell, axis: str) -> str:
    if axis == "card":
        return cell.label
    value = cell.row[axis]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _compare_along(
    axis: str, cells: list[Cell], baseline: str | None, left_out: list[str], *, explicit: bool
) -> list[Comparison]:
    """Every other value of `axis` against the baseline, wherever the rest of the key agrees."""
    values = list(dict.fromkeys(_axis_value(cell, axis) for cell in cells))
    if len(values) < 2:
        return []
    base = _choose_baseline(axis, values, cells, baseline)
    if base is None:
        return []
    found = []
    for cell in cells:
        if _axis_value(cell, axis) == base:
            continue
        partners = [c for c in cells if _axis_value(c, axis) == base and _matches(cell, c, axis)]
        if not partners:
            if explicit or axis == "card":
                left_out.append(
                    f"{cell.suite} {cell.model} {cell.precision} {_batch(cell)} on {cell.label}:"
                    f" {base} has no row of the same kind"
                )
            continue
        found.append(_comparison(axis, cell, partners[0]))
    return found


def _batch(cell: Cell) -> str:
    return f"batch {cell.batch_policy}" if cell.batch_policy != "fixed" else f"batch {cell.batch_size:.0f}"


def _choose_baseline(axis: str, values: list[str], cells: list[Cell], wish: str | None) -> str | None:
    if wish:
        matched = _match(wish, values)
        return matched[0] if matched else None
    if axis == "precision":
        return "fp32" if "fp32" in values else values[0]
    # The value that is fastest over the cases that all values have, else over its own.
    times: dict[str, dict[tuple[str, ...], float]] = {value: {} for value in values}
    for cell in cells:
        case = (cell.model, cell.precision, cell.batch_policy)
        times[_axis_value(cell, axis)][case] = cell.median
    common = set.intersection(*(set(t) for t in times.values()))
    return min(
        values,
        key=lambda v: stats.geometric_mean([s for case, s in times[v].items() if not common or case in common]),
    )


def _match(wish: str, values: Sequence[str]) -> list[str]:
    exact = [value for value in values if value.lower() == wish.lower()]
    return exact or [value for value in values if wish.lower() in value.lower()]


def _matches(a: Cell, b: Cell, axis: str) -> bool:
    """Whether two cells differ in nothing of the key but the axis."""
    free = {axis}
    if axis == "batch_size":
        free |= {"fixed_batch", "batch_policy"}
    if axis == "precision":
        free.add("batch_policy")
        if a.batch_policy not in TWIN_POLICIES.get(b.batch_policy, (b.batch_policy,)):
            return False
    if axis != "card" and a.label != b.label and axis not in {"session", "device_hash", *STACK}:
        return False
    return all(str(a.row[k]) == str(b.row[k]) for k in KEY if k not in free)


def _comparison(axis: str, subject: Cell, other: Cell) -> Comparison:
    same_session = subject.session == other.session and not subject.source
    ratio = stats.ratio(subject.seconds, other.seconds, same_session=same_session)
    notes = []
    differing = [c for c in STACK if c != axis and _minor(subject.row[c], c) != _minor(other.row[c], c)]
    if ratio.specimens:
        notes.append("one specimen each")
    if differing:
        notes.append(f"differs in {', '.join(differing)}")
    if subject.suite_digest != other.suite_digest:
        notes.append("the suite's file was edited in between")
    if axis == "precision" and subject.batch_policy != "fixed":
        notes.append(_batch_note(subject, other))
    verdict = "card + stack" if differing else ""
    return Comparison(
        axis, subject, other, _axis_value(subject, axis), _axis_value(other, axis), ratio, verdict, tuple(notes)
    )


def _batch_note(subject: Cell, other: Cell) -> str:
    if pd.isna(subject.batch_size) or pd.isna(other.batch_size):
        return ""
    times = subject.batch_size / other.batch_size
    return "same batch" if times == 1 else f"batch {times:.2g} x"


def _minor(value: Any, column: str) -> str:
    """A version's first two numbers (cuDNN writes 91002 for 9.10.2); other facts as they are."""
    text = "" if pd.isna(value) else str(value)
    if column == "cudnn" and text.isdigit():
        return text[:-2]
    return ".".join(text.partition("+")[0].split(".")[:2]) if column in {"torch", "cuda", "cudnn"} else text


def _judged(groups: list[Group]) -> list[Group]:
    """Verdicts, with p values adjusted over every ratio that is shown."""
    family = [c for g in groups for c in g.comparisons if c.ratio.p is not None and not c.verdict]
    adjusted = dict(zip(map(id, family), stats.holm([c.ratio.p or 0.0 for c in family]), strict=True))
    return [
        Group(g.title, g.cells, [_judge(c, adjusted.get(id(c))) for c in g.comparisons], g.means)
        for g in groups
    ]


def _judge(c: Comparison, adjusted_p: float | None) -> Comparison:
    trials = min(c.subject.trials, c.other.trials)
    verdict: str = c.verdict or stats.verdict(c.ratio, adjusted_p, trials)
    notes = c.notes
    if verdict in {"unsure", "few trials"}:
        more = stats.trials_to_decide(c.subject.seconds, c.other.seconds) - trials
        notes += (f"about {max(1, more)} more trials a side would decide",) if not c.ratio.specimens else ()
    return Comparison(
        c.axis, c.subject, c.other, c.subject_name, c.other_name, c.ratio, verdict, tuple(n for n in notes if n)
    )


def _means(comparisons: list[Comparison], cells: list[Cell]) -> list[Mean]:
    """One per pair of cards that was compared in at least two cases."""
    means = []
    pairs = dict.fromkeys((c.subject_name, c.other_name) for c in comparisons if c.axis == "card")
    for subject, other in pairs:
        ratios = [
            c.ratio.value
            for c in comparisons
            if c.axis == "card" and (c.subject_name, c.other_name) == (subject, other)
        ]
        cases = {
            (c.model, c.precision, c.batch_policy) for c in cells if c.label in (subject, other)
        }
        if len(cases) < 2:
            continue
        enough = len(ratios) * 2 >= len(cases)
        value = stats.geometric_mean(ratios) if enough else None
        means.append(Mean("card", subject, other, value, len(ratios), len(cases)))
    return means
