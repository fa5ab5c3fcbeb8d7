"""Checks whether the installed NVIDIA Apex has what wordlm needs. Imports neither Apex nor torch."""

from importlib.machinery import PathFinder
from importlib.util import find_spec

NEEDED = ("optimizers", "amp", "fp16_utils", "multi_tensor_apply")
"""Modules that `apex.fp16_utils.FP16_Optimizer` needs. An `apex` without `apex.optimizers` is not NVIDIA's."""

LAST_WITH_AMP = "25.05"
"""The last tag of NVIDIA/apex that has apex.amp and apex.fp16_utils: they left it in May 2025 (NVIDIA/apex#1896)."""


def why_no_apex() -> str:
    """Return why `apex.fp16_utils.FP16_Optimizer` cannot be used; empty if its modules are installed."""
    spec = find_spec("apex")
    if spec is None:
        return "NVIDIA Apex is not installed"
    # find_spec("apex.amp") would import apex itself; the path finder only looks.
    folders = list(spec.submodule_search_locations or ())
    missing = [part for part in NEEDED if not PathFinder.find_spec(f"apex.{part}", folders)]
    if "optimizers" in missing:
        return "apex is not NVIDIA Apex but the package index's unrelated apex (it has no apex.optimizers)"
    return f"apex has no {', '.join(missing)}; the last tag with all of them is {LAST_WITH_AMP}" if missing else ""
