"""Short builders of rows: what a test does not name is the same in all of them."""

from collections.abc import Sequence
from typing import Any

from gpubench.records import Row

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
