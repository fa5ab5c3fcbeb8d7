"""Checks whether NVIDIA Apex is installed, and which parts. Reads files only: imports neither Apex nor torch."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

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
    extensions: bool
    """Whether its CUDA extensions were built, which its fused optimizers need."""
    lacks: str = ""
    """A module that it imports and this torch lacks (`torch._six`): importing Apex fails. Empty: none."""

    @property
    def real(self) -> bool:
        """Whether it is NVIDIA's, and not the unrelated package of that name on PyPI."""
        return "optimizers" in self.parts

    @property
    def can_fp16_optimizer(self) -> bool:
        """Whether `apex.fp16_utils.FP16_Optimizer` can be imported."""
        return self.real and set(NEEDED) <= set(self.parts) and not self.lacks

    @property
    def why_not(self) -> str:
        """Why `FP16_Optimizer` cannot be used; empty if it can."""
        if not self.real:
            return "it is not NVIDIA's but the package index's unrelated one"
        if self.lacks:
            return f"it cannot be imported: it needs {self.lacks}, which this torch does not have"
        missing = [part for part in NEEDED if part not in self.parts]
        if missing == ["multi_tensor_apply"]:
            return "it has no multi_tensor_apply, without which its FP16_Optimizer cannot be imported"
        return f"amp and fp16_utils left it after tag {LAST_WITH_AMP}" if missing else ""


def installed() -> Apex | None:
    """Return the `apex` that an import would load, or None."""
    spec = find_spec("apex")
    if spec is None:
        return None
    # find_spec("apex.amp") would import apex itself; the path finder only looks.
    folders = list(spec.submodule_search_locations or ())
    parts = tuple(part for part in PARTS if PathFinder.find_spec(f"apex.{part}", folders))
    lacks = next((name for folder in folders for name in _lacking(Path(folder), parts)), "")
    return Apex(parts, _version(), find_spec("amp_C") is not None, lacks)


def _lacking(folder: Path, parts: tuple[str, ...]) -> Iterator[str]:
    """Yield the modules of torch that its files import unconditionally and that this torch lacks."""
    torch = find_spec("torch")
    places = list(torch.submodule_search_locations or ()) if torch else []
    files = [folder / "__init__.py", *(file for part in parts for file in sorted((folder / part).glob("*.py")))]
    for file in files if places else ():
        for name in _imported(file):
            if not PathFinder.find_spec(name, places):
                yield name


def _imported(file: Path) -> Iterator[str]:
    """Yield the first two names of each torch module that a file imports at its top level."""
    try:
        statements = ast.parse(file.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError):
        return
    for statement in statements:
        names = []
        if isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            names = [statement.module]
        elif isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        yield from (".".join(name.split(".")[:2]) for name in names if name.startswith("torch."))


def _version() -> str:
    for name in ("apex", "nvidia-apex"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""
