"""Which code a suite times, and its digest: rows whose digests differ were timed by different code.

That is the suite's own files, the modules of gpubench that run its training (clock, precision, step, process group),
and those that it reads its data with. Sources are read, not imported. Comments, docstrings and empty lines are left
out, so that an edit of those does not change it.
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
"""What calls `train`; it imports the clock, the precisions and what counts FLOPs."""
TIMED_ROOMS = ("training/", "data/", "suite/precisions.py", RUNS_A_TRIAL)
"""Other rooms plan, watch and describe; their code does not run in the timed loop."""
TRAINING = "gpubench.training"


def digest_of(suite_files: Sequence[Path]) -> str:
    """SHA-256 of the code that a suite of these files times."""
    return _hash("\n".join(f"{name} {digest}" for name, digest in sorted(parts_of(suite_files).items())))


def parts_of(suite_files: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of each file of that code: by its path inside the package, and the suite's own by that in its folder."""
    folder = suite_files[0].parent
    own = {f"suite/{file.relative_to(folder).as_posix()}": _source(file).digest for file in suite_files}
    return own | {module: _of_package(PACKAGE / module).digest for module in modules_behind(suite_files)}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def modules_behind(suite_files: Sequence[Path]) -> set[str]:
    """Paths inside the package of the modules that run these files' training, those that they import included."""
    found: set[str] = set()
    waiting = {RUNS_A_TRIAL}.union(*(_source(file).imported for file in suite_files))
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting |= _of_package(PACKAGE / module).imported
    return found


@dataclass(frozen=True)
class _Source:
    digest: str
    imported: frozenset[str]
    """The modules in TIMED_ROOMS that it imports, inside functions too."""


def _source(file: Path) -> _Source:
    with tokenize.open(file) as source:  # by the encoding that the file names
        return _of_text(source.read())


@lru_cache(maxsize=512)
def _of_text(text: str) -> _Source:
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = frozenset(module for node in imports for module in _modules(node) if module.startswith(TIMED_ROOMS))
    return _Source(_hash(_without_prose(text, tree)), modules)


_of_package = cache(_source)
"""The same of a module of gpubench, which stays as it is while gpubench runs."""


def _modules(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Paths of the modules that an import names; all that `gpubench.training` offers where it is taken whole."""
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
    """By each name that `gpubench.training` offers, the module that it is from."""
    imports = [
        node
        for node in ast.walk(ast.parse((PACKAGE / "training/__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom)
    ]
    return {alias.name: node.module for node in imports for alias in node.names if node.module}


def _without_prose(text: str, tree: ast.Module) -> str:
    """The text without comments, docstrings and lines that are empty then; the same under every version of Python."""
    given = text.split("\n")
    lines = list(given)
    prose = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node.value)]
    for value in prose:
        first, last = value.lineno - 1, (value.end_lineno or value.lineno) - 1
        before = given[first].encode()[: value.col_offset].decode()
        after = given[last].encode()[value.end_col_offset :].decode()
        lines[first : last + 1] = [""] * (last + 1 - first)
        lines[first] = before
        # Blanks stand for what is gone, so that comments after it keep their columns.
        lines[last] = (before if first == last else "").ljust(len(given[last]) - len(after)) + after
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, start = token.start
            lines[row - 1] = lines[row - 1][:start]
    inside = {
        row
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr) and not any(node is each for each in prose)
        for row in range(node.lineno - 1, (node.end_lineno or node.lineno) - 1)
    }  # rows that end inside a text of the code, where blanks count
    kept = [line if row in inside else line.rstrip() for row, line in enumerate(lines)]
    return "\n".join(line for row, line in enumerate(kept) if line or row in inside)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
