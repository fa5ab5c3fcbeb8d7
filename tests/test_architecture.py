"""The layers of the house: who may import whom, and which commands start without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpubench"
TORCH = {"torch", "torchvision", "fastai"}
MAY_IMPORT_TORCH = {
    "measuring/worker.py",
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

# Lower layers first; a module imports only from its own layer or a lower one.
LAYERS = [
    {"__init__.py", "errors.py"},
    {
        "arguments.py",
        "suite.py",
        "trial.py",
        "records.py",
        "carried.py",
        "loading.py",
        "interval.py",
        "corpus.py",
        "datasets.py",
        "apex.py",
        "doctor.py",
        "crops.py",
        "images.py",
        "phases.py",
        "conditions.py",
    },
    {module for module in MODULES if module.startswith(("measuring/", "comparing/"))},
    {"ceiling.py", "selftest.py", "preparing.py"},  # measure with one wing, look up and judge with the other
    {"cli.py", "__main__.py"},
]


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


def layer(module: str) -> int:
    return next(number for number, members in enumerate(LAYERS) if module in members)


def test_every_module_has_a_layer():
    assert {module for members in LAYERS for module in members} == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_below_and_never_from_the_other_wing(module):
    for name in imports(PACKAGE / module):
        used = module_of(name)
        if used is None:
            continue
        assert layer(used) <= layer(module), f"{module} imports {used}"
        wings = {used.partition("/")[0], module.partition("/")[0]}
        assert wings != {"measuring", "comparing"}, f"{module} imports {used}"


@pytest.mark.parametrize("module", MODULES)
def test_only_a_few_modules_may_know_torch(module):
    if module not in MAY_IMPORT_TORCH:
        assert not {name.partition(".")[0] for name in imports(PACKAGE / module)} & TORCH


@pytest.mark.parametrize("path", sorted((ROOT / "suites").glob("*.py")), ids=lambda p: p.stem)
def test_a_suite_loads_without_torch_and_stands_alone(path):
    text = path.read_text()
    assert not {name.partition(".")[0] for name in imports(path, top_level=True)} & TORCH
    assert "suites." not in " ".join(imports(path)), f"{path.stem} leans on another suite"
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["list"],
        ["columns"],
        ["data", "list"],
        ["compare", "results"],
    ],
    ids=" ".join,
)
def test_these_commands_never_import_torch(arguments):
    if arguments == ["compare", "results"]:
        arguments = ["compare", *map(str, sorted((ROOT / "results").glob("*.csv")))]
    script = f"""
import sys
from gpubench.cli import app
try:
    app({arguments!r})
except SystemExit:
    pass
loaded = {{name for name in {sorted(TORCH)!r} if name in sys.modules}}
sys.exit(f"imported {{loaded}}" if loaded else 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_loads_nothing_heavy():
    script = "import sys, gpubench.cli; print(*{'pandas', 'numpy', 'matplotlib', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("module", [module for module in MODULES if module not in MAY_IMPORT_TORCH])
def test_no_parent_module_imports_a_childs_module(module):
    used = {module_of(name) for name in imports(PACKAGE / module)}
    assert not used & MAY_IMPORT_TORCH, f"{module} would import torch through {used & MAY_IMPORT_TORCH}"
