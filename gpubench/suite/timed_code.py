"""Computes the digest of the code that a suite times: rows with different digests were timed by different code.

The code is the suite's files and the modules of gpubench that train (clock, precision, step, process group) and read
data. Sources are read, not imported. Comments, docstrings and empty lines do not change the digest.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
RUNS_A_TRIAL = "worker/run_trial.py"
"""The module that calls `train`; it imports the clock, the precisions and the FLOP counter."""
TIMED_ROOMS = ("training/", "data/", "suite/precisions.py", RUNS_A_TRIAL)
"""Code of other rooms does not run in the timed loop."""
TRAINING = "gpubench.training"


def digest_of(suite_files: Sequence[Path]) -> str:
    """Return the SHA-256 of the code that a suite of these files times."""
    return _hash("\n".join(f"{name} {digest}" for name, digest in sorted(parts_of(suite_files).items())))


def parts_of(suite_files: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 of each timed file, by path: inside the package, or `suite/` and the path inside the suite."""
    folder = suite_files[0].parent
    digests = {f"suite/{file.relative_to(folder).as_posix()}": _source(file).digest for file in suite_files}
    return digests | {module: _source(PACKAGE / module).digest for module in modules_behind(suite_files)}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def modules_behind(suite_files: Sequence[Path]) -> set[str]:
    """Return the paths inside the package of the timed modules that these files import, directly or indirectly."""
    modules: set[str] = set()
    waiting = {RUNS_A_TRIAL}.union(*(_source(file).imported for file in suite_files))
    while waiting:
        module = waiting.pop()
        if module not in modules:
            modules.add(module)
            waiting |= _source(PACKAGE / module).imported
    return modules


@dataclass(frozen=True)
class _Source:
    digest: str
    imported: frozenset[str]
    """The modules in TIMED_ROOMS that the file imports, also inside functions."""


def _source(file: Path) -> _Source:
    with tokenize.open(file) as source:  # by the encoding that the file names
        return _of_text(source.read())


@lru_cache(maxsize=512)
def _of_text(text: str) -> _Source:
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = frozenset(module for node in imports for module in _modules(node) if module.startswith(TIMED_ROOMS))
    return _Source(_hash(_without_prose(text, tree)), modules)


def _modules(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the paths of the modules that an import names; all of `gpubench.training` if that is imported whole."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.level or not node.module:
        return
    elif node.module == TRAINING:
        names = [_homes().get(alias.name, f"{TRAINING}.{alias.name}") for alias in node.names]
    else:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    if {TRAINING, f"{TRAINING}.*"} & set(names):
        names += _homes().values()
    for name in names:
        path = name.removeprefix("gpubench.").replace(".", "/") + ".py"
        if name.startswith("gpubench.") and (PACKAGE / path).is_file():
            yield path


@cache
def _homes() -> Mapping[str, str]:
    """Return the module of each name that `gpubench.training` exports."""
    imports = [
        node
        for node in ast.walk(ast.parse((PACKAGE / "training/__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom)
    ]
    return {alias.name: node.module for node in imports for alias in node.names if node.module}


def _without_prose(text: str, tree: ast.Module) -> str:
    """Return the text without comments, docstrings and empty lines; the same under every version of Python."""
    original = text.split("\n")
    lines = list(original)
    prose = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node.value)]
    for value in prose:
        first, last = value.lineno - 1, (value.end_lineno or value.lineno) - 1
        before = original[first].encode()[: value.col_offset].decode()
        after = original[last].encode()[value.end_col_offset :].decode()
        lines[first : last + 1] = [""] * (last + 1 - first)
        lines[first] = before
        # Spaces replace the docstring, so that comments after it keep their columns.
        lines[last] = (before if first == last else "").ljust(len(original[last]) - len(after)) + after
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, start = token.start
            lines[row - 1] = lines[row - 1][:start]
    inside = {
        row
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr) and not any(node is docstring for docstring in prose)
        for row in range(node.lineno - 1, (node.end_lineno or node.lineno) - 1)
    }  # rows that end inside a string literal, where trailing spaces matter
    kept = [line if row in inside else line.rstrip() for row, line in enumerate(lines)]
    return "\n".join(line for row, line in enumerate(kept) if line or row in inside)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
