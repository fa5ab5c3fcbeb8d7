"""The summary that a run returns to its command."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunSummary:
    """The result of a run."""

    exit_code: int
    """0 if every trial is ok or unsupported, 4 if one failed, 130 if the run was stopped."""
    path: Path | None = None
    """The CSV file of its rows; None if this process wrote none."""
    sessions: frozenset[str] = frozenset()
    """Sessions of the rows that it wrote; empty if it wrote none or was stopped."""
