"""The layers of the house: who may import whom, and which commands start without torch."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpubench"
TORCH = {"torch", "torchvision", "fastai"}
MAY_IMPORT_TORCH = {
    "measuring/worker.py",
    "measuring/trial_runner.py",
    "measuring/device.py",
    "measuring/precision.py",
    "measuring/stepping.py",  # an optimizer's step is torch's
    "measuring/fastai.py",
    "measuring/lars.py",  # an optimizer
    "measuring/layout.py",  # torch's constants; asks the card whether it has tensor cores
    "measuring/counting.py",  # a dispatch mode beside that of precision.py
    "measuring/rates.py",  # what a device reaches; runs in a child
    "measuring/selftest_suite.py",  # a suite; it lies in the package because no user benchmarks it
    # Only ever imported by a child: the agent of several processes, what they join, and where machines meet.
    "measuring/agent.py",
    "measuring/ranks.py",
    "measuring/meeting.py",
}
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

ROOMS = [
    {"__init__.py"},  # asks for the rest where it is called
    {"errors.py", "interval.py"},
    {
        "arguments.py",
        "suite.py",
        "trial.py",
        "corpus.py",
        "datasets.py",
        "apex.py",
        "doctor.py",
        "crops.py",
        "images.py",
        "phases.py",
        "conditions.py",
        "rows/",
    },
    {"measuring/", "analysis/"},
    {"studies/", "interop/"},
    {"show/"},
    {"commands/"},
    {
        "completion.py",
        "ceiling.py",
        "selftest.py",
        "preparing.py",
    },  # measure with one wing, look up and judge with the other
    {"cli.py", "__main__.py"},
]
"""Lower ones first; a module imports only from its own line or from a lower one."""
LAYERS = [
    {module for module in MODULES for room in rooms if module == room or module.startswith(room)} for rooms in ROOMS
]
for layer_of_init in LAYERS[2:]:
    layer_of_init.discard("__init__.py")
COMPARING = ("analysis/", "studies/", "show/", "interop/")
"""Rooms that know no suite by name, and import nothing that measures."""
KINDS = {"scaling"}
"""A kind of question that has the name of a suite."""


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    """Names of all imported modules; with top_level only those that importing the file imports."""
    tree = ast.parse(path.read_text())
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


def layer(module: str) -> int:
    return next(number for number, members in enumerate(LAYERS) if module in members)


def test_every_module_has_a_layer():
    assert {module for members in LAYERS for module in members} == set(MODULES)


def test_a_module_imports_only_from_below_and_comparing_never_from_measuring():
    wrong = [
        f"{module} imports {used}"
        for module, names in IMPORTS.items()
        if module != "__init__.py"
        for used in filter(None, map(module_of, names))
        if used != "__init__.py"
        and (layer(used) > layer(module) or (used.startswith("measuring/") and module.startswith(COMPARING)))
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle():
    edges = {module: {used for used in map(module_of, names) if used} - {module} for module, names in IMPORTS.items()}
    edges["__init__.py"] = set()  # what it imports, it imports where it is called
    edges = {module: {used for used in own if not used.endswith("__init__.py")} for module, own in edges.items()}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def test_what_compares_knows_no_suite_by_name():
    suites = {path.stem for path in (ROOT / "suites").glob("*.py")} - {"__init__"} - KINDS
    wrong = [
        f"{module}: {node.value!r}"
        for module in MODULES
        if module.startswith(COMPARING)
        for node in ast.walk(ast.parse((PACKAGE / module).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in suites
    ]
    assert wrong == []


def test_a_room_of_what_compares_holds_a_dozen_files_at_most():
    rooms = {room: [module for module in MODULES if module.startswith(room)] for room in (*COMPARING, "rows/")}
    assert {room: len(files) for room, files in rooms.items() if len(files) > 15} == {}


def test_only_a_few_modules_may_know_torch():
    knowing = {module for module, names in IMPORTS.items() if {name.partition(".")[0] for name in names} & TORCH}
    assert knowing - MAY_IMPORT_TORCH == set()


def test_no_parent_module_imports_a_childs_module():
    wrong = [
        f"{module} would import torch through {used}"
        for module, names in IMPORTS.items()
        if module not in MAY_IMPORT_TORCH
        for used in {module_of(name) for name in names} & MAY_IMPORT_TORCH
    ]
    assert wrong == []


@pytest.mark.parametrize("path", sorted((ROOT / "suites").glob("*.py")), ids=lambda p: p.stem)
def test_a_suite_loads_without_torch_and_stands_alone(path):
    text = path.read_text()
    assert not {name.partition(".")[0] for name in imports(path, top_level=True)} & TORCH
    assert "suites." not in " ".join(imports(path)), f"{path.stem} leans on another suite"
    assert ast.get_docstring(ast.parse(text))


def test_most_commands_never_import_torch():
    """One process does them all, so that the one at fault is the first after which torch is there."""
    results = [str(path) for path in sorted((ROOT / "results").glob("*.csv"))]
    lines = [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["list"],
        ["columns"],
        ["data", "list"],
        ["compare", *results],
    ]
    script = f"""
import contextlib, io, sys
from gpubench.cli import app
for line in {lines!r}:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        app(line)
    if not out.getvalue() or {TORCH!r} & set(sys.modules):
        sys.exit(f"{{line}}: {{out.getvalue()[:80]!r}}, {{ {TORCH!r} & set(sys.modules) }}")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_loads_nothing_heavy():
    script = "import sys, gpubench.cli; print(*{'pandas', 'numpy', 'matplotlib', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
