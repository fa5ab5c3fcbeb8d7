"""Whether NVIDIA Apex is installed, and what is left of it. Looks at files only: imports neither Apex nor torch."""

from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

PARTS = ("optimizers", "multi_tensor_apply", "normalization", "amp", "fp16_utils", "parallel", "RNN")
"""The modules a real Apex has or had; the last four left it in May 2025 (NVIDIA/apex#1896)."""

LAST_WITH_AMP = "25.05"
"""The last tag of NVIDIA/apex that has apex.amp and apex.fp16_utils."""


@dataclass(frozen=True)
class Apex:
    """An importable package called `apex`. One without `apex.optimizers` is not NVIDIA's."""

    parts: tuple[str, ...]
    version: str
    """As its metadata has it, which is `0.1` for every NVIDIA Apex; empty where there is none."""
    extensions: bool
    """Whether its CUDA extensions were built; its fused optimizers need them."""

    @property
    def real(self) -> bool:
        """Whether it is NVIDIA's, and not the package index's unrelated one."""
        return "optimizers" in self.parts

    @property
    def can_fp16_optimizer(self) -> bool:
        """Whether `apex.fp16_utils.FP16_Optimizer`, the 2019 word language model's, is there."""
        return self.real and {"amp", "fp16_utils", "multi_tensor_apply"} <= {*self.parts}


def installed() -> Apex | None:
    """The `apex` that an import would find, or None."""
    spec = find_spec("apex")
    if spec is None:
        return None
    # find_spec("apex.amp") would import apex itself; the path finder only looks.
    folders = list(spec.submodule_search_locations or ())
    parts = tuple(part for part in PARTS if PathFinder.find_spec(f"apex.{part}", folders))
    return Apex(parts, _version(), find_spec("amp_C") is not None)


def _version() -> str:
    for name in ("apex", "nvidia-apex"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""
