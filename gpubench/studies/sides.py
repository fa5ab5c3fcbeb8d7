"""Caveats on the sides of a comparison: models that one side lacks, and figures of unlike origin. `pairs` calls it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpubench.analysis.compare import Workload
from gpubench.analysis.groups import Group
from gpubench.analysis.matching import axis_value, bucket_of
from gpubench.analysis.metrics import Metric
from gpubench.analysis.verdicts import Comparison, groups_in
from gpubench.studies import words

HOSTS_DIFFER = 1.1
"""Hosts whose reference times differ by more than this factor are named as a difference."""


def lost_models(comparisons: Sequence[Comparison], workload: Workload, metric: Metric) -> Iterator[str]:
    """Yield which models have a figure on one side only, as `resnet50, resnet101: timed out on RTX 4090`."""
    axis, lost = comparisons[0].axis, {hole.model for hole in workload.holes}
    if not lost:
        return

    def key(group: Group) -> tuple[str, ...]:
        return bucket_of(replace(group, row={**group.row, "model": "", "basis": ""}), axis)

    sides = [part for group in groups_in(comparisons) for part in group.parts or (group,)]
    places = {(axis_value(part, axis), key(part)) for part in sides}
    ran = {(group.model, key(group)) for group in workload.groups if group.model in lost}
    models: dict[str, dict[str, None]] = defaultdict(dict)
    for hole in workload.holes:
        where = axis_value(hole, axis)
        if (where, key(hole)) in places and (hole.model, key(hole)) in ran:
            models[f"{why_lost(hole, metric)} {'on' if axis == 'card' else 'with'} {where}"][hole.model] = None
    yield from (f"{', '.join(names)}: {why}" for why, names in models.items())


def why_lost(hole: Group, metric: Metric) -> str:
    """Return why a case has no figure."""
    return f"no {metric.title}" if hole.status == "ok" else hole.status.replace("_", " ")


def unlike_figures(comparisons: Sequence[Comparison], metric: Metric) -> Iterator[str]:
    """Yield what measured the figures of the sides if that differs, and how much slower one host is."""
    origins = dict.fromkeys((_origin(c.subject, metric), _origin(c.other, metric)) for c in comparisons)
    yield from (f"{metric.name} from {one} / {other}" for one, other in origins if one != other and one and other)
    hosts = [sorted(group.number("host_reference_seconds") for group in (c.subject, c.other)) for c in comparisons]
    ratio = max((slow / fast for fast, slow in hosts if slow > HOSTS_DIFFER * fast > 0), default=0.0)
    if ratio:
        yield f"one host is {words.times(ratio)} as slow"


def _origin(group: Group, metric: Metric) -> str:
    if metric.name == "memory":
        return "the process" if group.device == "cpu" else "torch's allocator"
    return str(group.row["energy_source"]) if metric.name == "energy" else ""
