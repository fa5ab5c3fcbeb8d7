"""Short builders of rows and groups: what a test does not name is the same in all of them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpubench.analysis.groups import Group
from gpubench.rows.row import Row

USUAL: dict[str, Any] = {
    "suite": "resnet", "suite_version": 1, "suite_digest": "d1", "model": "resnet18", "precision": "fp32",
    "batch_size": 64, "batch_policy": "fixed", "params": "epochs=1", "processes": 1, "data": "cifar100",
    "mode": "full", "card": "NVIDIA GeForce RTX 2080 Ti", "device": "cuda:0", "device_hash": "aaaa",
    "driver": "550.54", "cpu": "AMD EPYC", "threads": 8, "torch": "2.15.0+cu132", "cuda": "13.2",
    "cudnn": "92600", "session": "s1", "trial": 0, "status": "ok", "seconds": 100.0, "measured": "measured",
    "samples_per_second": 500.0,
}  # fmt: skip


def row(**changes: Any) -> Row:
    """One ok trial of resnet18 in fp32 on an RTX 2080 Ti."""
    return Row(**(USUAL | changes))


def rows(seconds: Sequence[float], **changes: Any) -> list[Row]:
    """One trial per time, numbered from 0."""
    return [row(trial=trial, seconds=value, **changes) for trial, value in enumerate(seconds)]


def group(seconds: Sequence[float] = (100.0,), **changes: Any) -> Group:
    """A group as `groups_of` makes it of such rows, called by its card's last word where no `label` is given.

    What `completed` adds to a row can be named too, and `marks`, `lost` and `parts` of the group.
    """
    own = {name: changes.pop(name) for name in ("label", "marks", "lost", "parts") if name in changes}
    known = ("basis", "power_cap", "cudnn_benchmark", "threads_asked")
    added = {name: changes.pop(name) for name in known if name in changes}
    values = asdict(row(**changes))
    columns = {
        **{name: float("nan") if value is None else value for name, value in values.items()},
        "basis": values["measured"] if values["mode"] != "sampled" else "",
        "fixed_batch": values["batch_size"] if values["batch_policy"] == "fixed" else 0,
        "memory_limit_bytes": values["memory_limit_bytes"] or 0,
        "unknown_device": "" if values["device_hash"] else values["device"],
        "nodes": values["nodes"] or 1,
        "link": values["interconnect"],
        "threads_asked": "",
        "cudnn_benchmark": "",
        "power_cap": "",
        **added,
    }
    return Group(columns, tuple(seconds), **{"label": values["card"].split()[-1], **own})
