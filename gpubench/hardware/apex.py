"""Checks whether NVIDIA Apex is installed, and which parts. Reads files only: imports neither Apex nor torch."""

from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

PARTS = ("optimizers", "multi_tensor_apply", "normalization", "amp", "fp16_utils", "parallel", "RNN")
"""The modules a real Apex has or had; the last four left it in May 2025 (NVIDIA/apex#1896)."""

NEEDED = ("amp", "fp16_utils", "multi_tensor_apply")
"""Modules that `apex.fp16_utils.FP16_Optimizer` needs; the word language model of 2019 used it."""

LAST_WITH_AMP = "25.05"
"""The last tag of NVIDIA/apex that has apex.amp and apex.fp16_utils."""


@dataclass(frozen=True)
class Apex:
    """An importable package called `apex`. One without `apex.optimizers` is not NVIDIA's."""

    parts: tuple[str, ...]
    version: str
    """Version in its metadata, `0.1` for every NVIDIA Apex; empty if there is none."""

    @property
    def why_not(self) -> str:
        """Why `apex.fp16_utils.FP16_Optimizer` cannot be used; empty if its modules are there."""
        if "optimizers" not in self.parts:
            return "it is not NVIDIA Apex but the package index's unrelated apex (it has no apex.optimizers)"
        missing = [part for part in NEEDED if part not in self.parts]
        return f"it has no {', '.join(missing)}; the last tag with all of them is {LAST_WITH_AMP}" if missing else ""


def installed() -> Apex | None:
    """Return the `apex` that an import would load, or None."""
    spec = find_spec("apex")
    if spec is None:
        return None
    # find_spec("apex.amp") would import apex itself; the path finder only looks.
    folders = list(spec.submodule_search_locations or ())
    return Apex(tuple(part for part in PARTS if PathFinder.find_spec(f"apex.{part}", folders)), _version())


def _version() -> str:
    for name in ("apex", "nvidia-apex"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""
