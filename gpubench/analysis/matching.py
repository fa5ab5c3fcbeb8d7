"""Pairs groups: chooses the baseline, and the counterpart with which each group is compared. `compare` calls it."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from gpubench.analysis import stats
from gpubench.analysis.groups import Group, text_of, texts_of
from gpubench.errors import UserError, names_there
from gpubench.rows.alike import KEY, LINK, SOFTWARE, SPECIMEN, STACK, STACK_PARAMS, TURNS
from gpubench.rows.params import params_of, params_without
from gpubench.rows.row import COLUMNS
from gpubench.suite.precisions import LINEAR_ONLY

FOLLOWS = {
    "torch": {"torchvision", "fastai", "cuda", "cudnn"}, "mode": {"basis"}, "measured": {"basis"},
    "batch_size": {"fixed_batch", "batch_policy"}, "power_limit_watts": {"power_cap"}, "interconnect": {"link"},
    "nodes": {"link"}, "processes": {"nodes", *LINK},
}  # fmt: skip
"""The columns that change with a compared column, so that they need not agree."""
TWIN_POLICIES = {"max-fp32": "max", "author-doubled": "author"}
"""Batch policy of an extra mixed-precision trial (a twin), and batch policy of the fp32 trial to compare it with."""
PLAIN = "plain"
"""Name of the model without a change, in suites with the study `ablation`."""
TOGETHER = [*SPECIMEN, *TURNS, "batch_policy", "fixed_batch", "basis"]
"""Columns in which a change and its plain model agree, besides those that their workload shares."""


def is_parameter(axis: str) -> bool:
    """Return whether an axis is a parameter of a suite, such as `compile`, and not a column."""
    return axis not in COLUMNS and axis not in STACK_PARAMS


def axis_value(group: Group, axis: str) -> str:
    """Return the value of a group along `axis`, as text."""
    if is_parameter(axis):
        return params_of(group.params).get(axis, "")
    return group.label if axis == "card" else text_of(group.row[axis])


def values_named(name: str, values: Iterable[str]) -> list[str]:
    """Return the values that are equal to `name`, or else those that contain it, ignoring case. 2.11 has no 2.1."""
    wanted, texts = name.strip().lower(), list(dict.fromkeys(values))
    exact = [text for text in texts if text.lower() == wanted]
    border = r"(?!(?<=\d)\d)" if "." in wanted else ""  # of a version, not of a hash: not between two digits
    return exact or [text for text in texts if wanted and re.search(border + re.escape(wanted) + border, text.lower())]


def named_baseline(name: str, axes: Sequence[str], groups: Sequence[Group]) -> tuple[str, str]:
    """Return the axis and the value that --baseline names, in full or by a part of it. Raises UserError."""
    values = {(axis, axis_value(group, axis)) for group in groups for axis in axes}
    texts = values_named(name, (text for _, text in values))
    matched = [pair for pair in values if pair[1] in texts]
    if len(matched) != 1:
        names = sorted({value for _, value in matched or values} or {"nothing to compare"})
        # All names that are there, not the nearest one: H100 is no A100.
        there = f"it could be {', '.join(names)}" if matched else names_there("", names)
        raise UserError(f"--baseline {name}: {there}")
    return matched[0]


def pairs_along(
    axis: str,
    groups: Sequence[Group],
    baseline: tuple[str, str] | None,
    left_out: list[str],
    *,
    explicit: bool,
    best_is_base: bool = False,
) -> list[tuple[Group, Group]]:
    """Return (subject, other) for each group and its counterpart, which has the baseline's value along `axis`.

    The rest of the key agrees. The default baseline is fp32, else the slowest value, so that ratios are gains (with
    `best_is_base` the best value, so that ratios are losses). Along batch_size each model has its own default, because
    the batch of `max` differs between models. `explicit`: the user asked for this axis.
    """
    values = list(dict.fromkeys(axis_value(group, axis) for group in groups))
    if len(values) < 2:
        return []
    base = baseline[1] if baseline and baseline[0] == axis else _default_baseline(axis, groups, best=best_is_base)
    by_model = axis == "batch_size" and not baseline
    if base not in values:
        left_out.append(f"{groups[0].suite}: {base} has no row here, so nothing is compared along {axis}")
        return []
    buckets: dict[tuple[str, ...], dict[str, list[Group]]] = defaultdict(lambda: defaultdict(list))
    for group in groups:
        buckets[bucket_of(group, axis)][axis_value(group, axis)].append(group)
    pairs = []
    for group in groups:
        bucket = buckets[bucket_of(group, axis)]
        local = base
        if by_model:
            alike = [c for members in bucket.values() for c in members]
            local = axis_value((min if best_is_base else max)(alike, key=lambda c: c.median), axis)
        if axis_value(group, axis) == local:
            lone = len(bucket) == 1 and not by_model
            if lone and (explicit or axis == "card"):
                left_out.append(f"{_case(group)}: no counterpart with another {axis}")
            continue
        partners = bucket.get(local, [])
        if partners:
            pairs.append((group, max(partners, key=lambda c: _closeness(axis, group, c))))
        elif explicit or axis == "card":
            left_out.append(f"{_case(group)}: no counterpart with {axis} {local}")
    return pairs


def bucket_of(group: Group, axis: str) -> tuple[str, ...]:
    """Return the values that a group and its counterpart share: the key and the card, without the axis."""
    free = {axis, *FOLLOWS.get(axis, ())}
    columns = [column for column in KEY if column not in free and column != "batch_policy"]
    if axis != "card":
        columns.append("card")
    if axis in {"precision", "batch_size"}:
        columns += ["device_hash", "unknown_device"]
    policy = group.batch_policy
    if axis == "precision":
        policy = TWIN_POLICIES.get(policy, policy)
    policy = "" if "batch_policy" in free else str(policy)
    # A column may also be a parameter, such as `epochs`.
    params = "" if "params" in free else params_without(group.params, {axis})
    return (*texts_of(group, [column for column in columns if column != "params"]), policy, params)


def other_stack(axis: str, subject: Group, other: Group) -> list[str]:
    """Return the stack's columns in which two groups differ, without the compared column and allowed differences."""
    columns = [column for column in STACK if column != axis and not _may_differ(column, axis, subject, other)]
    return [column for column in columns if _minor(subject.row[column], column) != _minor(other.row[column], column)]


def _may_differ(column: str, axis: str, subject: Group, other: Group) -> bool:
    """Return whether two groups may differ in a column of the stack.

    An unknown link may differ. Two CPUs may have different default numbers of threads, but not chosen ones.
    """
    if column in LINK:
        return not (subject.row[column] and other.row[column])
    if column != "threads" or axis != "card" or not subject.device == other.device == "cpu":
        return False
    asked = subject.row["threads_asked"] or other.row["threads_asked"]
    return not asked and (subject.card, subject.device_hash) != (other.card, other.device_hash)


def _minor(value: object, column: str) -> str:
    """Return the first two numbers of a version (cuDNN writes 91002 for 9.10.2); other values whole, as text."""
    text = text_of(value)
    if column not in SOFTWARE:
        return text
    if column == "cudnn" and text.isdigit():
        return text[:-2]
    return ".".join(text.partition("+")[0].split(".")[:2])


def _closeness(axis: str, subject: Group, other: Group) -> tuple[bool, int, bool, bool, bool, int]:
    """Return a sort key. The counterpart with the largest key has most in common with the subject."""
    return (
        subject.batch_policy == other.batch_policy,
        -len(other_stack(axis, subject, other)),
        subject.row["suite_digest"] == other.row["suite_digest"],
        subject.session == other.session,
        subject.device_hash == other.device_hash,
        other.trials,
    )


def _case(group: Group) -> str:
    size = f"{group.batch_size:.0f} " if group.batch_size > 0 else ""
    return f"{group.suite} {group.model} {group.precision}, batch {size}({group.batch_policy}), on {group.label}"


def _default_baseline(axis: str, groups: Sequence[Group], *, best: bool) -> str:
    """Return the value that the others are compared with.

    Among precisions it is fp32, or bf16 if all others are in 8 bits. Else it is the slowest (with `best`, the best) of
    the values that share most cases with other values. The slowest of all often cannot run large cases: as the baseline
    it would leave these cases without a comparison.
    """
    times: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for group in _candidates(axis, groups):
        times[axis_value(group, axis)][bucket_of(group, axis)] = group.median
    if axis == "precision" and (usual := _usual_precision(times)):
        return usual
    counts = Counter(case for by_case in times.values() for case in by_case)
    shared = {value: sum(counts[case] > 1 for case in by_case) for value, by_case in times.items()}
    widest = [value for value in times if shared[value] == max(shared.values())]
    common = set.intersection(*(set(times[value]) for value in widest))
    means = {value: stats.geometric_mean([times[value][case] for case in common or times[value]]) for value in widest}
    return (min if best else max)(means, key=lambda value: means[value])


def _candidates(axis: str, groups: Sequence[Group]) -> Sequence[Group]:
    """Return the groups that may be the baseline. Of a card's sessions only the newest: the slowest would be biased."""
    if axis != "card":
        return groups
    starts: dict[tuple[str, ...], str] = {}
    for group in groups:
        case = group.device_hash, *bucket_of(group, "card")
        starts[case] = max(starts.get(case, ""), *group.starts, "")
    return [g for g in groups if not g.device_hash or starts[g.device_hash, *bucket_of(g, "card")] in {*g.starts, ""}]


def _usual_precision(precisions: Collection[str]) -> str:
    is_low = "bf16" in precisions and set(precisions) <= {"bf16", *LINEAR_ONLY}
    return "fp32" if "fp32" in precisions else "bf16" * is_low


def choices_of(axis: str, groups: Sequence[Group]) -> int:
    """Return from how many values along `axis` the default baseline is chosen by its result; 2 if it is not."""
    values = {axis_value(group, axis) for group in _candidates(axis, groups)}
    if axis == "batch_size":  # each model has its own baseline
        return max(2, *Counter(bucket_of(group, axis) for group in groups).values())
    return 2 if axis == "precision" and _usual_precision(values) else max(2, len(values))


def is_ablation(group: Group) -> bool:
    """Return whether the models of its suite are `plain` with one change each."""
    return "ablation" in group.studies.split()


def switches_of(groups: Sequence[Group]) -> frozenset[str]:
    """Return the parameters that the changes of ablations set.

    In one session such a parameter differs between models, and each model has one value. If a model has two values, the
    user set the parameter for some runs of the session.
    """
    values: dict[tuple[str, ...], dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    for group in groups:
        for part in group.parts or (group,):
            if is_ablation(part) and part.session:
                for name, value in params_of(part.params).items():
                    values[part.suite, part.session, part.card][name].add((part.model, value))
    return frozenset(
        name
        for by_name in values.values()
        for name, pairs in by_name.items()
        if len({value for _, value in pairs}) > 1 and len({model for model, _ in pairs}) == len(pairs)
    )


def workload_key(group: Group, shared: Sequence[str], switches: Collection[str]) -> tuple[str, ...]:
    """Return what the groups of one workload agree in: `shared`, without what an ablation changes."""
    if not is_ablation(group) or "params" not in shared:
        return texts_of(group, shared)
    rest = [column for column in shared if column not in {"params", "processes"}]
    return (*texts_of(group, rest), params_without(group.params, switches))


def plain_pairs(groups: Sequence[Group], switches: Collection[str]) -> list[tuple[Group, Group]]:
    """Return (change, plain) of one session for each change of an ablation, equal in all parameters but `switches`."""
    ablations: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in groups:
        if is_ablation(group) and not group.parts:
            ablations[(*texts_of(group, TOGETHER), params_without(group.params, switches))].append(group)
    pairs = []
    for members in ablations.values():
        beside = [group for group in members if group.model == PLAIN]
        for group in members:
            # Prefer the plain model of the same precision. If the change is the precision, no plain model has it.
            alike = [plain for plain in beside if plain.precision == group.precision]
            pairs += [(group, plain) for plain in alike or beside[:1] if group.model != PLAIN]
    return pairs
