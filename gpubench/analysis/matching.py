"""Which cell is compared with which: buckets of like cells, the baseline, the closest partner."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from gpubench.analysis import stats
from gpubench.analysis.cells import Cell, text_of, texts_of
from gpubench.errors import UserError
from gpubench.rows.alike import KEY, LINK, SOFTWARE, SPECIMEN, STACK
from gpubench.rows.params import params_of, params_without
from gpubench.suite.precisions import FULL as FULL

FOLLOWS = {
    "torch": {"torchvision", "fastai", "cuda", "cudnn"},
    "mode": {"basis"},
    "measured": {"basis"},
    "batch_size": {"fixed_batch", "batch_policy"},
    "power_limit_watts": {"power_cap"},
    "interconnect": {"link"},
    "nodes": {"link"},
    "processes": {"nodes", *LINK},
}
"""Columns that a compared column brings with it."""

TWIN_POLICIES = {"max-fp32": "max", "author-doubled": "author"}
"""Batch policies that hold for mixed precision alone, and the one of the fp32 row to compare with."""


PLAIN = "plain"
"""The model of an ablation that has no change."""
TOGETHER = [*SPECIMEN, "batch_policy", "fixed_batch", "basis"]
"""What a change and the plain model it is held against agree in, beside what their group shares."""


def axis_value(cell: Cell, axis: str) -> str:
    """What a cell is called along `axis`."""
    return cell.label if axis == "card" else text_of(cell.row[axis])


def wished(wish: str, axes: Sequence[str], cells: Sequence[Cell]) -> tuple[str, str]:
    """(axis, value) that --baseline names: a value or an unmistakable part of one."""
    there = {(axis, axis_value(cell, axis)) for cell in cells for axis in axes}
    exact = [pair for pair in there if pair[1].lower() == wish.lower()]
    matched = exact or [pair for pair in there if wish.lower() in pair[1].lower()]
    if len(matched) != 1:
        names = sorted({value for axis, value in matched or there if matched or axis == axes[0]})
        what = "it could be" if matched else "there is"
        raise UserError(f"--baseline {wish}: {what} {', '.join(names) or 'nothing to compare'}")
    return matched[0]


def pairs_along(
    axis: str,
    cells: Sequence[Cell],
    wish: tuple[str, str] | None,
    left_out: list[str],
    *,
    explicit: bool,
    allow_mismatch: bool = False,
    best_is_base: bool = False,
) -> list[tuple[Cell, Cell]]:
    """(subject, other): every other value of `axis` against the baseline, wherever the rest of the key agrees.

    With `allow_mismatch`, a cell without such a partner gets the one of its suite and model that is most alike. The
    baseline that nobody named is the worst, so that ratios are gains; with `best_is_base` the best, so that they are
    losses.
    """
    values = list(dict.fromkeys(axis_value(cell, axis) for cell in cells))
    if len(values) < 2:
        return []
    base = wish[1] if wish and wish[0] == axis else _own_base(axis, cells, best=best_is_base)
    own_local = axis == "batch_size" and not wish  # under `max` it differs from model to model
    if base not in values:
        left_out.append(f"{cells[0].suite}: {base} has no row here, so nothing is compared along {axis}")
        return []
    buckets: dict[tuple[str, ...], dict[str, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        buckets[bucket_of(cell, axis)][axis_value(cell, axis)].append(cell)
    found = []
    for cell in cells:
        bucket = buckets[bucket_of(cell, axis)]
        local = base
        if own_local:
            every = [c for own in bucket.values() for c in own]
            local = axis_value((min if best_is_base else max)(every, key=lambda c: c.median), axis)
        if axis_value(cell, axis) == local:
            lone = len(bucket) == 1 and not (own_local or allow_mismatch)
            if lone and (explicit or axis == "card"):
                left_out.append(f"{_case(cell)}: not compared along {axis}, no other {axis} has a row of the same kind")
            continue
        partners = bucket.get(local, [])
        if allow_mismatch and not partners:
            partners = _most_alike(axis, cell, [c for c in cells if axis_value(c, axis) == local])
        if partners:
            found.append((cell, max(partners, key=lambda c: _closeness(axis, cell, c))))
        elif explicit or axis == "card":
            left_out.append(f"{_case(cell)}: {local} has no row of the same kind")
    return found


def _most_alike(axis: str, cell: Cell, others: Sequence[Cell]) -> list[Cell]:
    """Those of its suite, model and card, in full or in mixed precision as it is, that differ in the fewest keys."""
    free = {axis, *FOLLOWS.get(axis, ())}

    def kind(c: Cell) -> tuple[str, ...]:
        full = str(c.precision in FULL)
        return tuple(
            value
            for column, value in (("suite", c.suite), ("model", c.model), ("card", str(c.card)), ("precision", full))
            if column not in free
        )

    alike = [c for c in others if kind(c) == kind(cell)]
    fewest = min((len(mismatch(axis, cell, c)) for c in alike), default=0)
    return [c for c in alike if len(mismatch(axis, cell, c)) == fewest]


def mismatch(axis: str, subject: Cell, other: Cell) -> list[str]:
    """Each part of the key in which two cells differ although it was not to be compared, with both values."""
    free = {axis, *FOLLOWS.get(axis, ())}
    if axis == "precision" and TWIN_POLICIES.get(subject.batch_policy) == other.batch_policy:
        free.add("batch_policy")
    if subject.mode != other.mode:
        free.add("basis")
    if subject.processes != other.processes:
        free.add("nodes")
    found = []
    for column in KEY:
        one, two = text_of(subject.row[column]), text_of(other.row[column])
        if column == "fixed_batch" and one != two:  # which is 0 where another policy chose it
            one, two = text_of(subject.row["batch_size"]), text_of(other.row["batch_size"])
        if column in free or one == two:
            continue
        if column == "params":
            ours, theirs = set(one.split()), set(two.split())
            one, two = " ".join(sorted(ours - theirs)), " ".join(sorted(theirs - ours))
        name = {"fixed_batch": "batch", "basis": "measured"}.get(column, column)
        found.append(f"{name} ({one or 'none'} / {two or 'none'})")
    return found


def bucket_of(cell: Cell, axis: str) -> tuple[str, ...]:
    """What must agree with the other side: the key without the axis, and outside the card axis the card."""
    free = {axis, *FOLLOWS.get(axis, ())}
    columns = [column for column in KEY if column not in free and column != "batch_policy"]
    if axis != "card":
        columns.append("card")
    if axis in {"precision", "batch_size"}:
        columns += ["device_hash", "unknown_device"]
    policy = cell.batch_policy
    if axis == "precision":
        policy = TWIN_POLICIES.get(policy, policy)
    return (*texts_of(cell, columns), "" if "batch_policy" in free else str(policy))


def other_stack(axis: str, subject: Cell, other: Cell) -> list[str]:
    """The columns of the stack in which two cells differ although they were not to be compared."""
    columns = [column for column in STACK if column != axis and not _excused(column, axis, subject, other)]
    return [column for column in columns if _minor(subject.row[column], column) != _minor(other.row[column], column)]


def _excused(column: str, axis: str, subject: Cell, other: Cell) -> bool:
    """Whether two cells may differ in a column of the stack.

    A CPU's own number of threads, that nobody asked for, is part of it where it is compared with another CPU.
    """
    if column in LINK:
        return not (subject.row[column] and other.row[column])
    if column != "threads" or axis != "card" or not subject.device == other.device == "cpu":
        return False
    asked = subject.row["threads_asked"] or other.row["threads_asked"]
    return not asked and (subject.card, subject.device_hash) != (other.card, other.device_hash)


def _minor(value: Any, column: str) -> str:
    """A version's first two numbers (cuDNN writes 91002 for 9.10.2); other facts as they are."""
    text = text_of(value)
    if column not in SOFTWARE:
        return text
    if column == "cudnn" and text.isdigit():
        return text[:-2]
    return ".".join(text.partition("+")[0].split(".")[:2])


def _closeness(axis: str, subject: Cell, other: Cell) -> tuple[bool, int, bool, bool, bool, int]:
    """Of several partners the one that shares most circumstances."""
    return (
        subject.batch_policy == other.batch_policy,
        -len(other_stack(axis, subject, other)),
        subject.row["suite_digest"] == other.row["suite_digest"],
        subject.session == other.session,
        subject.device_hash == other.device_hash,
        other.trials,
    )


def _case(cell: Cell) -> str:
    batch = cell.batch_policy if cell.batch_policy != "fixed" else f"{cell.batch_size:.0f}"
    return f"{cell.suite} {cell.model} {cell.precision} batch {batch} on {cell.label}"


def _own_base(axis: str, cells: Sequence[Cell], *, best: bool) -> str:
    """fp32 among precisions, else of the values with most cases to compare the slowest, or the best.

    Those that are slowest of all often lack the cases that are too much for them; with such a baseline the other
    values would not be compared there at all.
    """
    times: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for cell in cells:
        times[axis_value(cell, axis)][bucket_of(cell, axis)] = cell.median
    if axis == "precision" and "fp32" in times:
        return "fp32"
    owners = Counter(case for own in times.values() for case in own)
    shared = {value: sum(owners[case] > 1 for case in own) for value, own in times.items()}
    widest = [value for value in times if shared[value] == max(shared.values())]
    common = set.intersection(*(set(times[value]) for value in widest))

    def slowness(value: str) -> float:
        own = times[value]
        return stats.geometric_mean([own[case] for case in common or own])

    return (min if best else max)(widest, key=slowness)


def is_ablation(cell: Cell) -> bool:
    """Whether its suite's models are `plain` with a change each."""
    return "ablation" in cell.studies.split()


def switches_of(cells: Sequence[Cell]) -> frozenset[str]:
    """The parameters that changes of ablations set: those in which the models of one session differ."""
    values: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for cell in cells:
        for part in cell.parts or (cell,):
            if is_ablation(part) and part.session:
                for name, value in params_of(part.params).items():
                    values[part.suite, part.session, part.card][name].add(value)
    return frozenset(name for own in values.values() for name, found in own.items() if len(found) > 1)


def kind_of(cell: Cell, shared: Sequence[str], switches: Collection[str]) -> tuple[str, ...]:
    """What the cells of one group agree in: `shared`; of an ablation without what its changes set."""
    if not is_ablation(cell) or "params" not in shared:
        return texts_of(cell, shared)
    rest = [column for column in shared if column not in {"params", "processes"}]
    return (*texts_of(cell, rest), params_without(cell.params, switches))


def against_plain(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """(change, plain) for each change of an ablation that ran beside `plain`."""
    own = [cell for cell in cells if is_ablation(cell) and not cell.parts]
    found = []
    for cell in own:
        beside = [c for c in own if c.model == PLAIN and texts_of(c, TOGETHER) == texts_of(cell, TOGETHER)]
        # A change may be the precision itself; else its own plain is the one of its precision.
        alike = [c for c in beside if c.precision == cell.precision]
        found += [(cell, plain) for plain in alike or beside[:1] if cell.model != PLAIN]
    return found
