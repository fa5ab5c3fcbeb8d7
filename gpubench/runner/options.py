"""What the user asked of `gpubench run`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SAMPLED_REPEATS = 6
"""The least number of trials a side at which Mann-Whitney can decide after Holm (docs/verdicts.md)."""
SAMPLED_LIMIT_SECONDS = 1800.0
"""A sampled trial that takes longer hangs, or needs a --time-limit that says so."""


@dataclass(frozen=True)
class Options:
    """What the user asked of `gpubench run`, parsed but not yet resolved."""

    suites: tuple[str, ...] = ("resnet",)
    precision: str = "both"
    models: tuple[str, ...] = ()
    batch: str | None = None
    device: str = "auto"
    processes: tuple[int, ...] = (1,)
    """Processes on each machine; with several numbers each case runs with each."""
    nodes: int = 1
    rendezvous: str = ""
    repeats: int | None = None
    mode: Literal["sampled", "quick", "full"] = "sampled"
    out: Path = Path("results")
    data: Path | None = None
    weights: Path | None = None
    synthetic: bool = False
    memory_limit_bytes: int | None = None
    time_limit_seconds: float | None = None
    until: float | None = None
    """Add rounds until each case's interval is this share of its median to either side."""
    budget_seconds: float | None = None
    """Add no round to `until` that would end later than this."""
    seed: int = 42
    session: str = ""
    """Name that the rows carry as their session, for runs that take turns; a new one where it is empty."""
    settings: Mapping[str, str] = field(default_factory=dict)
    tries: tuple[Mapping[str, str], ...] = ({},)
    """Further settings, each a case of its own. Rows of an earlier run may differ in the parameters named here."""
    tensorboard: Path | None = None
    """Folder for TensorBoard events of suites that write them."""
    dry_run: bool = False
    soak: bool = True
    """Warm accelerators before the first trial."""
    peaks: bool = True
    """Measure the peaks that are not known yet."""
    judged: bool = False
    """Whether the command that asked says what the rows show: then the run speaks of rates alone."""

    @property
    def rounds(self) -> int:
        """Trials per case; with `until`, the least."""
        if self.repeats is not None:
            return self.repeats
        return SAMPLED_REPEATS if self.mode == "sampled" or self.until else 1

    def limit_seconds(self, mode: str) -> float | None:
        """When a trial of this mode is ended; None for a whole run without --time-limit."""
        if self.time_limit_seconds is not None:
            return self.time_limit_seconds
        return None if mode == "full" else SAMPLED_LIMIT_SECONDS
