"""The layers of the house: who may import whom, and which commands start without torch."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from gpubench.suite import files

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpubench"
TORCH = {"torch", "torchvision", "fastai"}
MAY_IMPORT_TORCH = ("training/", "worker/")
"""Rooms of a child process."""
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
GROUND = {"errors", "interval", "welch", "printed", "console"}
"""Modules of a few lines beside the rooms, which every room may import, and which import none of them."""
MAY_IMPORT = {
    "suite": set(),
    "rows": set(),
    "data": set(),
    "hardware": {"suite", "data"},
    "training": {"suite", "data", "hardware"},
    "worker": {"suite", "hardware", "training"},
    "runner": {"suite", "data", "hardware", "rows"},
    "analysis": {"suite", "rows"},
    "studies": {"suite", "rows", "analysis"},
    "submit": {"suite", "rows", "studies"},
    "show": {"rows", "studies", "analysis"},
    "cli": {*("suite", "data", "hardware", "runner", "rows", "analysis", "studies", "submit", "show")},
}
"""Per room the rooms that its modules may import beside their own."""
COMPARING = ("analysis/", "studies/", "show/", "submit/")
"""Rooms that know no suite by name."""
KINDS = {"scaling"}
"""A kind of question that has the name of a suite."""
SUITES = sorted(path for path in (ROOT / "suites").iterdir() if path.stem.isalnum())
"""Files and folders of suites; `__init__` and `__pycache__` are none."""
IMPORTED_LATE = ("apex.fp16_utils", "bitsandbytes", "torch.utils.tensorboard")
"""What a suite imports inside a function, because it may be missing."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path, *, top_level: bool = False) -> set[str]:
    """Names of all imported modules; with top_level only those that importing the file imports."""
    tree = tree_of(path)
    nodes = list(ast.walk(tree))
    if top_level:
        nodes = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    names = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def module_of(name: str) -> str | None:
    path = name.removeprefix("gpubench").lstrip(".").replace(".", "/")
    for candidate in (f"{path}.py", f"{path}/__init__.py"):
        if name.startswith("gpubench") and candidate in MODULES:
            return candidate
    return None


IMPORTS = {module: imports(PACKAGE / module) for module in MODULES}


def room_of(module: str) -> str:
    return module.partition("/")[0].removesuffix(".py")


def test_every_folder_is_a_room_that_says_what_lives_in_it():
    rooms = {room_of(module) for module in MODULES if "/" in module}
    assert rooms == set(MAY_IMPORT)
    for module in MODULES:
        if module.endswith("/__init__.py"):
            assert len(ast.get_docstring(tree_of(PACKAGE / module)).split()) > 20, module


def test_a_room_imports_only_the_rooms_below_it():
    wrong = [
        f"{module} imports {used}"
        for module, names in IMPORTS.items()
        if "/" in module
        for used in filter(None, map(module_of, names))
        if room_of(used) not in {room_of(module), *GROUND, *MAY_IMPORT[room_of(module)]} and used != "__init__.py"
    ]
    assert wrong == []
    TopologicalSorter(MAY_IMPORT).prepare()  # raises CycleError


def test_no_modules_import_each_other_in_a_circle():
    edges = {
        module: {used for used in map(module_of, names) if used and not used.endswith("__init__.py")} - {module}
        for module, names in IMPORTS.items()
    }
    TopologicalSorter(edges).prepare()  # raises CycleError, which names the circle


def test_what_compares_knows_no_suite_by_name():
    suites = {path.stem for path in SUITES} - KINDS
    wrong = [
        f"{module}: {node.value!r}"
        for module in MODULES
        if module.startswith(COMPARING)
        for node in ast.walk(tree_of(PACKAGE / module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in suites
    ]
    assert wrong == []


def knows_torch(module: str) -> bool:
    return bool({name.partition(".")[0] for name in IMPORTS[module]} & TORCH)


def test_torch_is_imported_by_what_runs_in_a_child_and_by_no_parent():
    assert [module for module in MODULES if knows_torch(module) and not module.startswith(MAY_IMPORT_TORCH)] == []
    wrong = [
        f"{module} would import torch through {used}"
        for module, names in IMPORTS.items()
        if not module.startswith(MAY_IMPORT_TORCH)
        for used in filter(None, map(module_of, names))
        if knows_torch(used)
    ]
    assert wrong == []


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.stem)
def test_a_suite_stands_alone_imports_at_the_top_and_says_what_it_is(suite):
    assert ast.get_docstring(tree_of(files.sources(suite)[0]))
    for file in files.sources(suite):
        assert "suites." not in " ".join(imports(file)), f"{file} leans on another suite"
        nodes = [node for node in ast.walk(tree_of(file)) if isinstance(node, ast.ImportFrom)]
        assert all(node.level < 2 for node in nodes), f"{file} leans on another suite"
        inside = imports(file) - imports(file, top_level=True)
        assert [name for name in inside if not name.startswith(IMPORTED_LATE)] == []


def test_most_commands_never_import_torch():
    """One process does them all, so that the one at fault is the first after which torch is there.

    `list` loads every suite.
    """
    results = [str(path) for path in sorted((ROOT / "results").glob("*.csv"))]
    lines = [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["list"],
        ["columns"],
        ["data", "list"],
        ["compare", *results[:2]],
        ["show", "largebatch", "small"],
    ]
    script = f"""
import contextlib, io, sys
from gpubench.cli.app import app
for line in {lines!r}:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        app(line)
    if not out.getvalue() or {TORCH!r} & set(sys.modules):
        sys.exit(f"{{line}}: {{out.getvalue()[:80]!r}}, {{ {TORCH!r} & set(sys.modules) }}")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import gpubench",
        "import gpubench.worker.__main__",
        "from gpubench.cli.overview import overview, published_speed\noverview()\npublished_speed('RTX 4090')",
        "from gpubench.cli.app import app\napp(['--help'], standalone_mode=False)",
    ],
)
def test_the_package_its_overview_and_help_load_nothing_heavy(code):
    heavy = ("torch", "numpy", "pandas", "polars", "scipy", "matplotlib")
    script = f"{code}\nimport sys\nsys.exit(', '.join(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_FUNCTION, MOST_PARAMETERS = 400, 60, 8


def test_files_and_functions_stay_short():
    sizes = {module: len((PACKAGE / module).read_text().splitlines()) for module in MODULES}
    assert {module: lines for module, lines in sizes.items() if lines > MOST_LINES_OF_A_FILE} == {}
    # Except for the commands, whose parameters are their options.
    wrong = []
    functions = [
        (path.relative_to(ROOT).as_posix(), node)
        for folder in (PACKAGE, ROOT / "suites")
        for path in folder.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
    ]
    for path, node in functions:
        if path.startswith("gpubench/cli/") and "Annotated" in ast.unparse(node.args):
            continue
        own = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        parameters = len([name for name in own if name not in {"self", "cls"}])
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MOST_LINES_OF_A_FUNCTION or parameters > MOST_PARAMETERS:
            wrong.append(f"{path}: {node.name} has {lines} lines and {parameters} parameters")
    assert wrong == []
