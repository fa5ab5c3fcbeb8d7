"""Computes the digest of the code that a suite times: rows with different digests were timed by different code.

The code is the suite's files, and the modules of gpubench that train and read data. Sources are read, not imported.
Comments, docstrings and empty lines do not change the digest.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from gpubench.errors import UserError

PACKAGE = Path(__file__).resolve().parents[1]
TIMED = ("training/**/*.py", "data/**/*.py", "suite/precisions.py", "worker/run_trial.py")
"""The modules of gpubench that belong to the code of every suite; other modules do not run in the timed loop."""


def digest_of(suite_files: Sequence[Path]) -> str:
    """Return the SHA-256 of the code that a suite of these files times."""
    lines = [f"{name} {digest}" for name, digest in sorted(parts_of(suite_files).items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def parts_of(suite_files: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 of each timed file by path: `suite/` and the path inside the suite, or `gpubench/...`."""
    folder = suite_files[0].parent
    files = {f"suite/{file.relative_to(folder).as_posix()}": file for file in suite_files}
    modules = [file for pattern in TIMED for file in PACKAGE.glob(pattern)]
    files |= {f"gpubench/{file.relative_to(PACKAGE).as_posix()}": file for file in modules}
    return {name: _source_digest(file) for name, file in files.items()}


def _source_digest(file: Path) -> str:
    try:
        with tokenize.open(file) as source:  # in the encoding that the file declares
            return hashlib.sha256(_without_prose(source.read()).encode()).hexdigest()
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{file}, which belongs to the suite, cannot be read: {error}") from None


@lru_cache(maxsize=512)
def _without_prose(text: str) -> str:
    """Return the text without comments, docstrings and empty lines; the same under every version of Python."""
    tree, original = ast.parse(text), text.split("\n")
    lines = list(original)
    expressions = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    prose = [value for value in expressions if isinstance(value, ast.Constant) and isinstance(value.value, str)]
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
    }  # lines that end inside a string literal, where trailing spaces matter
    kept = [line if row in inside else line.rstrip() for row, line in enumerate(lines)]
    return "\n".join(line for row, line in enumerate(kept) if line or row in inside)
