"""Measures how many mistakes the tests find: makes small random mistakes in modules and counts those that a test finds.

    python benchmarks/mutations.py --out mutations.csv                    # this checkout, 150 mutations
    python benchmarks/mutations.py --rev v1.0 --out before.csv            # code and tests of another revision
    python benchmarks/mutations.py --seed 2 --count 300 --jobs 4 --out more.csv

Each mutation is one small change of one module: another comparison, operator, number, key or condition, or a `return`
that returns nothing. The tests of the module (TESTS) run with it in a temporary copy, until the first that fails. If
they take far more processor time than before, the mutation is found too. The same seed makes the same mutations of the
same source, in whatever folder the module is. The file gets a line per mutation as soon as its result is known; the
same command with the same file continues. Read the mutations that survive: either they change nothing that matters, or
a test is missing.

mutmut is not used: since version 3 it mutates nothing outside functions (half of these modules are mostly constants),
and it runs all possible mutations of one checkout, not some, chosen by a seed, of any revision.
"""

import argparse
import ast
import contextlib
import copy
import csv
import importlib
import io
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

TESTS: dict[str, tuple[str, ...]] = {
    "gpubench/analysis/stats.py": ("test_stats", "test_specimens", "test_compare"),
    "gpubench/analysis/rank_test.py": ("test_stats",),
    "gpubench/analysis/matching.py": ("test_matching", "test_compare", "test_screens"),
    "gpubench/analysis/groups.py": ("test_groups", "test_compare", "test_specimens", "test_screens"),
    "gpubench/analysis/verdicts.py": ("test_verdicts", "test_compare", "test_specimens", "test_screens"),
    "gpubench/analysis/compare.py": ("test_compare", "test_questions", "test_screens"),
    "gpubench/analysis/gate.py": ("test_gate", "test_screens"),
    "gpubench/studies/words.py": ("test_words", "test_results", "test_screens"),
    "gpubench/studies/pairs.py": ("test_results", "test_questions", "test_terminal", "test_screens"),
    "gpubench/studies/answer.py": ("test_results", "test_answer", "test_questions", "test_screens"),
    "gpubench/show/terminal.py": ("test_terminal", "test_results", "test_screens"),
    "gpubench/show/formats.py": ("test_questions", "test_results", "test_screens"),
    "gpubench/training/clock/clock.py": ("test_clock", "test_peers"),
    "gpubench/training/clock/projection.py": ("test_projection", "test_clock"),
    "gpubench/runner/cases.py": ("test_plan",),
    "gpubench/runner/devices.py": ("test_lost_card", "test_device", "test_plan"),
    "gpubench/runner/rounds.py": ("test_until", "test_plan"),
    "gpubench/training/operands.py": ("test_precision", "test_precision_rules", "test_compiled"),
    "gpubench/training/precision.py": ("test_precision_rules", "test_precision"),
    "gpubench/runner/batch_search.py": ("test_batch",),
    "gpubench/rows/row.py": ("test_records", "test_loading"),
    "gpubench/rows/write.py": ("test_records",),
    "gpubench/rows/read.py": ("test_loading", "test_records", "test_carried"),
    "gpubench/rows/files.py": ("test_loading", "test_carried"),
    "gpubench/rows/lines.py": ("test_loading",),
    "gpubench/runner/record.py": ("test_resume_rows",),
    "gpubench/runner/resume.py": ("test_resume_rows",),
}
"""The modules, and the tests of each: the most specific one first. An older revision may lack some of these tests."""

LIBRARIES = ("numpy", "pandas", "scipy.stats", "matplotlib.pyplot", "fastai.fp16_utils")
"""Libraries that this process imports once for all mutations, which run in its forks; never gpubench itself."""

LONGER, AT_LEAST, WALL_SECONDS = 4, 20, 900
"""Limits of a mutation: its processor time relative to the unchanged module's, but at least AT_LEAST seconds; and its
wall time."""

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,), ast.Pow: (ast.Mult,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
    ast.LShift: (ast.RShift,), ast.And: (ast.Or,), ast.Or: (ast.And,),
}  # fmt: skip

COLUMNS = ("module", "line", "original", "mutated", "result", "seconds")


@dataclass(frozen=True)
class Mutation:
    """One change of one module."""

    module: str
    line: int
    original: str
    """The lines that it changes, joined to one."""
    mutated: str
    source: str
    """The whole module with the change."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the mutation in a file."""
        return self.module, str(self.line), self.mutated


def changes_of(tree: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield (kind, node, new text) for every possible change of the logic below `tree`."""
    for node in _logic(tree):
        if isinstance(node, ast.Compare):
            for at, operator in enumerate(node.ops):
                for other in OPERATORS[type(operator)]:
                    yield "comparison", node, _with(node, "ops", [*node.ops[:at], other(), *node.ops[at + 1 :]])
            yield from _keys([node.left, *node.comparators])
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
            for other in OPERATORS.get(type(node.op), ()):
                yield "and, or" if isinstance(node, ast.BoolOp) else "arithmetic", node, _with(node, "op", other())
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield "not", node, f"({ast.unparse(node.operand)})"
        elif isinstance(node, ast.If | ast.IfExp | ast.While) and isinstance(node.test, ast.Name | ast.Attribute):
            yield "not", node.test, f"(not {ast.unparse(node.test)})"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield "constant", node, str(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield "constant", node, repr(node.value + 1 if isinstance(node.value, int) else node.value * 2 or 1.0)
        elif isinstance(node, ast.Return) and ast.unparse(node.value or node) not in {"return", "None", "False"}:
            yield "return", node, "return None"
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            yield from _keys(node.elts)
        elif isinstance(node, ast.Dict):
            yield from _keys([key for key in node.keys if key])
        elif isinstance(node, ast.Subscript):
            yield from _keys([node.slice])


def _logic(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of the logic: not annotations, decorators, f-strings, `raise` and Literal types."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            literal = isinstance(child, ast.Subscript) and ast.unparse(child.value) == "Literal"
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Raise) and not literal:
                yield from _logic(child)


def _with(node: ast.AST, name: str, value: object) -> str:
    other = copy.copy(node)
    setattr(other, name, value)
    text = ast.unparse(other)
    return f"({text})" if isinstance(node, ast.expr) else text


def _keys(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield changes of texts that are compared or looked up. Texts with a space are left out: people read them."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.+-]+", node.value):
            yield "key", node, repr(f"{node.value}_")


def mutations_of(module: str, source: str, count: int, seed: int) -> list[Mutation]:
    """Return `count` different mutations, or all if there are fewer; each kind is equally likely."""
    dice = Random(f"{seed} {Path(module).stem}")
    kinds: dict[str, list[tuple[ast.AST, str]]] = defaultdict(list)
    for kind, node, text in changes_of(ast.parse(source)):
        kinds[kind].append((node, text))
    found: list[Mutation] = []
    while kinds and len(found) < count:
        kind = dice.choice(sorted(kinds))
        node, text = kinds[kind].pop(dice.randrange(len(kinds[kind])))
        if not kinds[kind]:
            del kinds[kind]
        found.append(_mutation(module, source, node, text))
    return found


def _mutation(module: str, source: str, node: ast.AST, text: str) -> Mutation:
    lines = source.encode().splitlines(keepends=True)  # columns of the syntax tree count bytes
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
    changed = lines[first][:start] + text.encode() + lines[last][end:]
    original, mutated = (" ".join(part.decode().split()) for part in (b"".join(lines[first : last + 1]), changed))
    whole = b"".join([*lines[:first], changed, *lines[last + 1 :]]).decode()
    compile(whole, module, "exec")
    return Mutation(module, first + 1, original, mutated, whole)


def shares(count: int, parts: int) -> list[int]:
    """Return `count` as `parts` integers that differ by at most 1, the larger ones first."""
    return [count // parts + (at < count % parts) for at in range(parts)]


def known(path: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    """Return the lines of an earlier run, by the key of the mutation."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {(line["module"], line["line"], line["mutated"]): line for line in csv.DictReader(file)}


def summary(lines: Sequence[Mapping[str, str]]) -> str:
    """Return a line for each module, and one for all: how many mutations were killed, and how many survived."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for line in lines:
        for name in (line["module"], "all"):
            counts[name][line["result"] == "survived"] += 1
    wide = max(map(len, counts), default=0)
    order = sorted(counts, key=lambda name: name == "all")
    shown = [(name, *counts[name]) for name in order]
    return "\n".join(f"{name:{wide}}  {k:3} killed  {s:3} survived  {k / (k + s):4.0%}" for name, k, s in shown)


# Everything below runs tests.


def copied(checkout: Path, rev: str | None, into: Path) -> None:
    """Copy the files of a checkout, or of one of its revisions, without the history."""
    into.mkdir()
    if rev:
        archive = subprocess.run(["git", "archive", rev], cwd=checkout, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(into, filter="data")
        return
    ask = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(ask, cwd=checkout, capture_output=True, check=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (checkout / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkout / name, into / name)


def tested(task: tuple[Path, str, str, float]) -> tuple[str, float, float, str]:
    """Run a module's tests with `source` as the module; return result, seconds, processor seconds, end of the output.

    Each worker of the pool has its own copy of `origin`.
    """
    origin, module, source, limit = task
    mine = origin.with_name(f"copy-{os.getpid()}")
    if not mine.exists():
        shutil.copytree(origin, mine)
    compiled = Path(importlib.util.cache_from_source(str(mine / module)))
    compiled.unlink(missing_ok=True)  # Python takes a source of the same size and second for unchanged
    (mine / module).write_text(source, encoding="utf-8")
    began = time.monotonic()
    child = os.fork()
    if not child:
        code = 99
        try:
            code = _run_tests(mine, module, limit)
        finally:
            os._exit(code)
    done, state, processor = 0, 0, 0.0
    while not done and time.monotonic() - began < WALL_SECONDS:
        time.sleep(0.02)
        done, state, used = os.wait4(child, os.WNOHANG)
        processor = used.ru_utime + used.ru_stime
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # whatever the tests started, too
    if not done:
        os.waitpid(child, 0)
    seconds = time.monotonic() - began
    shutil.copyfile(origin / module, mine / module)
    compiled.unlink(missing_ok=True)
    words = "\n".join((mine / "output.txt").read_text(errors="replace").splitlines()[-20:])
    known_codes = {0: "survived", 1: "killed", 2: "killed"}
    stopped = not done or os.WIFSIGNALED(state)
    return "timeout" if stopped else known_codes.get(os.WEXITSTATUS(state), "no tests"), seconds, processor, words


def _run_tests(mine: Path, module: str, limit: float) -> int:
    """Run the tests in the fork; return pytest's exit code, or 99 if they imported another copy of the module."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
    os.chdir(mine)
    sys.path.insert(0, str(mine))  # before an editable install
    os.environ["PYTHONPATH"] = str(mine)  # the same for processes that tests start
    with (mine / "output.txt").open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    files = [f"tests/{name}.py" for name in TESTS[module] if Path(f"tests/{name}.py").exists()]
    declared = Path("pyproject.toml").read_text(encoding="utf-8")
    marks = " and ".join(f"not {mark}" for mark in ("slow", "alone", "e2e") if f'"{mark}: ' in declared)
    # hypothesis' own profile for CI: the same examples each time, remembered nowhere, and no deadline on a busy machine
    options = ["-xq", "-n0", "-pno:cacheprovider", "--hypothesis-profile=ci", "-m", marks]
    code = 1
    try:
        code = int(pytest.main([*options, *files]))
    except Exception:  # warnings are errors, also while pytest cleans up
        traceback.print_exc()
    sys.stdout.flush()
    loaded = sys.modules.get(module.removesuffix(".py").replace("/", "."))
    ours = loaded is not None and Path(str(loaded.__file__)) == mine / module
    return code if ours or code == 2 else 99  # 2: a mistake that does not even import


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--checkout", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--rev", help="a revision of the checkout, code and tests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="a CSV to write or to go on with")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # torch's threads are slow where they share their cores
    for name in LIBRARIES:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        origin = Path(folder).resolve() / "origin"
        copied(asked.checkout, asked.rev, origin)
        sources = {module: (origin / module).read_text(encoding="utf-8") for module in TESTS}
        counts = zip(sources.items(), shares(asked.count, len(TESTS)), strict=True)
        every = [each for (module, text), n in counts for each in mutations_of(module, text, n, asked.seed)]
        found = known(asked.out)
        missing = [mutation for mutation in every if mutation.key not in found]
        with multiprocessing.get_context("fork").Pool(asked.jobs) as pool, asked.out.open("a", newline="") as file:
            modules = list(dict.fromkeys(mutation.module for mutation in missing))
            as_they_are = pool.imap(tested, [(origin, module, sources[module], WALL_SECONDS) for module in modules])
            limits = {}
            for module, (result, _, processor, words) in zip(modules, as_they_are, strict=True):
                if result != "survived":
                    raise SystemExit(f"{module}: its tests fail as it is: {result}\n{words}")
                limits[module] = max(AT_LEAST, LONGER * processor)
                print(f"{module}: {processor:.1f} s of processor time", flush=True)
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            tasks = [(origin, each.module, each.source, limits[each.module]) for each in missing]
            for each, (result, seconds, _, words) in zip(missing, pool.imap(tested, tasks), strict=True):
                if result == "no tests":
                    raise SystemExit(f"{each.module}:{each.line}: its tests did not run\n{words}")
                values = (*each.key[:2], each.original, each.mutated, result, f"{seconds:.1f}")
                writer.writerow(dict(zip(COLUMNS, values, strict=True)))
                file.flush()
                print(f"{result:8} {each.module}:{each.line}: {each.mutated} ({seconds:.0f} s)", flush=True)
    found = known(asked.out)
    print(summary([found[mutation.key] for mutation in every]))


if __name__ == "__main__":
    main()
