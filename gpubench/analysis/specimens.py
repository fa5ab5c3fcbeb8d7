"""Labels specimens (single cards of a model), combines groups of several specimens or sessions. `compare` calls it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pandas as pd

from gpubench.analysis.groups import LABELLED, Group, card_label, dicts_of, distinct, in_order, text_of, texts_of
from gpubench.analysis.stats import MEASURED_FROM, median
from gpubench.printed import shown
from gpubench.rows.alike import KEY, OUTCOMES, SPECIMEN, STACK, WORKLOAD


def combined(groups: Sequence[Group], axis: str) -> list[Group]:
    """Return the groups; where a card has MEASURED_FROM units or more, the units' groups become one group per case.

    Along `card` and `precision` a unit is a specimen. Along any other axis it is a session: sessions of one
    device are compared with other sessions of that device. Groups of different stacks or code are never combined.
    """
    unit = "device_hash" if axis in {"card", "precision"} else "session"
    same = [*WORKLOAD, *STACK, "suite_digest", "card", *([] if unit == "device_hash" else ["device_hash", axis])]
    pools: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    pooled: list[Group] = []
    for group in groups:
        if group.device_hash and group.row[unit]:
            pools[texts_of(group, same)].append(group)
        else:
            pooled.append(group)
    labels: dict[tuple[str, ...], int] = defaultdict(int)
    for pool in pools.values():
        if len({group.row[unit] for group in pool}) < MEASURED_FROM:
            pooled += pool
            continue
        first = pool[0]
        label = card_label(first.card, first.row["power_cap"], text_of(first.row["memory_limit_bytes"]))
        label += f" #{first.device_hash[:4]}" if unit == "session" and first.device_hash else ""
        alike = (label, *texts_of(first, WORKLOAD))
        labels[alike] += 1
        # A number marks the same card with another stack; the notes of its comparisons name the difference.
        label += f" ({labels[alike]})" if labels[alike] > 1 else ""
        cases: dict[tuple[str, ...], list[Group]] = defaultdict(list)
        for group in pool:
            cases[texts_of(group, KEY)].append(group)
        pooled += [_combination(case, unit, label) for case in cases.values()]
    return in_order(pooled)


def units_of(group: Group, *, apart: bool = False) -> dict[str, Sequence[float]]:
    """Return the values of each unit (specimen or session) of a group, by the hash or session of the unit.

    They are the values of its trials. If a unit has several groups, such as sessions, they are the groups' medians.
    Specimens that shared a session count as one unit, unless `apart`: they had one host, and hosts differ.
    """
    members, column = group.parts or (group,), unit_of(group)
    units = {unit: str(unit) for unit in [part.row[column] for part in members]}
    if column == "device_hash" and not apart:
        devices: dict[str, set[str]] = defaultdict(set)
        for part in members:
            devices[part.row["session"] or part.row[column]].add(part.row[column])
        for together in (hashes for hashes in devices.values() if len(hashes) > 1):
            joined = {units[device] for device in together}
            units = {device: min(joined) if unit in joined else unit for device, unit in units.items()}
    parts: dict[str, list[Group]] = defaultdict(list)
    for part in members:
        parts[units[part.row[column]]].append(part)
    return {
        unit: members[0].values if len(members) == 1 else [part.median for part in members]
        for unit, members in parts.items()
    }


def unit_of(group: Group) -> str:
    """Return the column that distinguishes a group's units: `session` if it combines sessions of one device."""
    return "session" if group.parts and group.device_hash else "device_hash"


def _combination(parts: Sequence[Group], unit: str, label: str) -> Group:
    medians: dict[str, list[float]] = defaultdict(list)
    for part in parts:
        medians[part.row[unit]].append(part.median)
    row: dict[str, Any] = {**parts[0].row, unit: "", "session": ""}
    row["reason"] = distinct(part.reason for part in parts)
    if any(part.measured == "projected" for part in parts):
        row["measured"] = "projected"
    for outcome in OUTCOMES:
        numbers = [part.row[outcome] for part in parts if part.row[outcome] == part.row[outcome]]
        row[outcome] = median(numbers) if numbers else float("nan")
    if len({text_of(part.batch_size) for part in parts}) > 1:
        row["batch_size"] = float("nan")
    seconds = tuple(float(median(values)) for values in medians.values())
    marks = sum((Counter(part.marks) for part in parts), Counter[str]())
    # Groups of one case with different batch sizes all have the failed trials of that case.
    by_case = {part.case: Counter(part.lost) for part in parts}
    lost = sum(by_case.values(), Counter[str]())
    return Group(row, seconds, label, marks, lost, tuple(parts))


def labels_of(frame: pd.DataFrame) -> dict[tuple[str, ...], str]:
    """Return a label per specimen, session and source: the card, and what distinguishes it from others with its name.

    The label has the session only if one specimen ran the same case in several sessions.
    """
    frame = frame.drop_duplicates("identity")
    frame = frame.assign(**{name: frame[name].map(shown) for name in (*SPECIMEN, "source")})
    case = [*KEY, "card", "device_hash", "unknown_device", "power_cap", "memory_limit_bytes"]
    sessions = frame.drop_duplicates([*case, "session"])
    repeats = sessions[sessions.duplicated(case, keep=False)]
    repeated = {_texts_without_session(row) for row in dicts_of(repeats[LABELLED])}
    labelled = frame[LABELLED].drop_duplicates()
    measured = labelled[labelled["source"] == ""]
    specimens = measured.groupby("card")["device_hash"].nunique()
    unknown = measured.groupby("card")["unknown_device"].nunique()
    sources = labelled.groupby("card")["source"].nunique()
    names = set(labelled["session"])  # names that users chose, such as before-1 and before-2, may begin alike
    length = next(n for n in count(6) if len({name[:n] for name in names}) == len(names))
    labels = {}
    for row in dicts_of(labelled):
        card, device, specimen, session, source, power, memory = key = texts_of(row, LABELLED)
        label = card_label(card, power, memory)
        if source and sources[card] > 1:
            label += f" ({source.removeprefix('github.com/').partition('/')[0].partition(',')[0]})"
        elif not source and max(specimens[card], unknown[card]) > 1:
            label += f" #{specimen[:4]}" if specimen else f" ({device})" if device else ""
        if _texts_without_session(row) in repeated:
            label += f" [session {session[:length]}]"
        labels[key] = label
    return labels


def _texts_without_session(row: Mapping[str, Any]) -> tuple[str, ...]:
    return texts_of(row, [column for column in LABELLED if column != "session"])
