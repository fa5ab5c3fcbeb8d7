"""The parsed options of `gpubench run`, with their defaults (trials, time limit)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SAMPLED_REPEATS = 6
"""Fewest trials per side with which the Mann-Whitney test can decide a table of up to 23 ratios (docs/method.md)."""
SAMPLED_LIMIT_SECONDS = 1800.0
"""Default time limit of a trial, in seconds; full runs have none."""
RANKED_SUITE, RANKED_MODELS = "reference", ("resnet50",)
"""Suite and models whose rate ranks a card: others have published this rate of many cards."""


@dataclass(frozen=True)
class Options:
    """The options of `gpubench run`: what to run. Defaults of suites and devices are not resolved yet."""

    suites: tuple[str, ...] = ("resnet",)
    precision: str = "both"
    models: tuple[str, ...] = ()
    batch: str | None = None
    device: str = "auto"
    processes: tuple[int, ...] = (1,)
    """Numbers of processes on each machine; each case runs with each number."""
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
    """Add rounds until the half width of each case's interval is at most this share of its median."""
    budget_seconds: float | None = None
    """With `until`: start no round with which the trials would take longer than this."""
    seed: int = 42
    session: str = ""
    """Session of the rows, the same for runs that alternate. If empty: the session of the resumed run, or a new one."""
    settings: Mapping[str, str] = field(default_factory=dict)
    tensorboard: Path | None = None
    """Folder for TensorBoard events."""
    dry_run: bool = False
    rank: bool = False
    """End with a trial of RANKED_SUITE in mixed precision, if the device is a card."""
    soak: bool = True
    """Warm accelerators before the first trial."""
    peaks: bool = True
    """Measure the highest rates of each device, unless an earlier run has stored them."""

    @property
    def stops_early(self) -> bool:
        """Whether the run leaves out models whose ratios are decided early.

        Only sampled runs do, without --repeats and --until. Runs that alternate (--session) need equally many trials.
        """
        return self.mode == "sampled" and self.repeats is None and self.until is None and not self.session

    @property
    def rounds(self) -> int:
        """Trials per case: the minimum with `until`, the maximum if `stops_early`."""
        if self.repeats is not None:
            return self.repeats
        return SAMPLED_REPEATS if self.mode == "sampled" or self.until else 1

    def limit_seconds(self, mode: str) -> float | None:
        """Return the time limit of a trial of this mode, in seconds; None for a full run without --time-limit."""
        if self.time_limit_seconds is not None:
            return self.time_limit_seconds
        return None if mode == "full" else SAMPLED_LIMIT_SECONDS
