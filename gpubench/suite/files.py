"""Finds, loads and checks the files of suites, and their --set parameters. Errors have one line. Imports no torch."""

import importlib.resources
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from gpubench.errors import UserError, names_there
from gpubench.suite import timed_code
from gpubench.suite.suite import COMMON_PARAMS, STUDIES, Param, ParamValue, Suite

DOCS = "see docs/adding-a-suite.md"


@dataclass(frozen=True)
class LoadedSuite:
    """A suite, its name and its path: a file, or a folder whose `__init__.py` defines SUITE."""

    name: str
    path: Path
    suite: Suite

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the code that the suite times."""
        return timed_code.digest_of(sources(self.path))

    @property
    def summary(self) -> str:
        """The first line of the suite's docstring."""
        doc = sys.modules[_module_name(self.path)].__doc__ or ""
        return doc.strip().partition("\n")[0]

    def samples(self, params: Mapping[str, ParamValue]) -> int:
        """Return the training samples in one epoch with these parameters; 0 if the suite does not declare them."""
        samples = self.suite.train_samples
        return samples(params) if callable(samples) else samples

    def resolve_params(self, settings: Mapping[str, str], model: str = "") -> dict[str, ParamValue]:
        """Return the value of every parameter for `model`: from --set, else from matching presets, else the default.

        Raises UserError for a name the suite does not declare or a value it does not allow.
        """
        declared = {**self.suite.params, **COMMON_PARAMS}
        for name in settings:
            if name not in declared:
                there = names_there(name, sorted(declared))
                raise UserError(f"--set {name}: suite {self.name} has no such parameter; {there}")
        values = {
            name: param.read(str(param.default)) if param.read else param.default for name, param in declared.items()
        }
        given = {name: declared[name].parse(name, text) for name, text in settings.items()}
        values |= given
        for name, by_value in self.suite.presets.items():
            values |= by_value.get(model if name == "model" else values[name], {})
        return values | given


def built_in_names() -> list[str]:
    """Return the names of the built-in suites, sorted."""
    return sorted(_built_in_paths())


@cache
def built_in(name: str) -> LoadedSuite | None:
    """Return the built-in suite with this name, loaded once; None if there is none."""
    return find(name) if name in _built_in_paths() else None


def _built_in_paths() -> dict[str, Path]:
    """Return the path of each built-in suite: in `suites/` of a checkout, or `gpubench/suites` of a wheel."""
    folder = Path(str(importlib.resources.files("gpubench.suites")))
    files = {path.stem: path for path in folder.glob("*.py") if path.stem != "__init__"}
    return files | {path.parent.name: path.parent for path in folder.glob("*/__init__.py")}


def find(name: str) -> LoadedSuite:
    """Return the suite called `name`, or the one in the file or folder `name` if that is a path."""
    paths = _built_in_paths()
    if name in paths:
        return load(paths[name])
    path = Path(name).parent if Path(name).name == "__init__.py" else Path(name)
    if path.suffix != ".py" and not path.is_dir():
        there = names_there(name, sorted(paths))
        raise UserError(f"{name}: no such suite, nor the path of one (a file that ends in .py, or a folder); {there}")
    if not path.exists():
        raise UserError(f"{name}: no such file")
    return load(path.resolve())


def find_all(names: Sequence[str]) -> list[LoadedSuite]:
    """Return the suites called `names`, without duplicates; raises UserError if two files have the same name."""
    suites: dict[str, LoadedSuite] = {}
    for suite in map(find, dict.fromkeys(names)):
        first = suites.setdefault(suite.name, suite).path
        if first != suite.path:
            raise UserError(f"--suite: {first} and {suite.path} have the same name; rename one, or run them separately")
    return list(suites.values())


def load(path: Path) -> LoadedSuite:
    """Import the suite at `path` and return it; raises UserError if its import fails or its SUITE is faulty."""
    files = sources(path)
    module_name = _module_name(path)
    folder = [str(path)] if path.is_dir() else None
    spec = importlib.util.spec_from_file_location(module_name, files[0], submodule_search_locations=folder)
    assert spec is not None  # a .py path always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # loader processes unpickle the suite's classes by this name
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{path} does not load: {type(error).__name__}: {error}") from error
    suite: object = getattr(module, "SUITE", None)
    if not isinstance(suite, Suite):
        raise UserError(f"{path} defines no SUITE = Suite(...); {DOCS}")
    if fault := _fault(suite):
        raise UserError(f"{path}: SUITE {fault}")
    return LoadedSuite(path.stem, path, suite)


def sources(path: Path) -> list[Path]:
    """Return the .py files of a suite, a folder's `__init__.py` first; raises UserError if a folder lacks that file."""
    if not path.is_dir():
        return [path]
    first = path / "__init__.py"
    if not first.is_file():
        raise UserError(f"{path}: the folder has no __init__.py with SUITE = Suite(...); {DOCS}")
    return [first, *sorted(file for file in path.rglob("*.py") if file != first)]


def _fault(suite: Suite) -> str:
    """Return what is wrong with a suite's declaration, or an empty text."""
    tuples, presets = ("models", "default_models", "studies", "data", "needs"), suite.presets.values()
    models = {*suite.default_models, *["plain"] * ("ablation" in suite.studies)}
    params = {*suite.presets, *(name for by_value in presets for preset in by_value.values() for name in preset)}
    params |= {"global_batch"} if "batch" in suite.studies else set()
    params |= {suite.goal} if isinstance(suite.goal, str) else set()
    faults = {
        "has a text where a tuple belongs": [name for name in tuples if isinstance(getattr(suite, name), str)],
        "names no model": [] if suite.models else ["models=()"],
        "has no such models (default_models, studies='ablation')": models.difference(suite.models),
        "has parameters with odd names, or not of class Param": [
            name for name, param in suite.params.items() if not (name.isidentifier() and isinstance(param, Param))
        ],
        "declares parameters that every suite has": COMMON_PARAMS.keys() & suite.params.keys(),
        "has no such parameters (presets, goal, studies='batch')": params - {"model", *suite.params, *COMMON_PARAMS},
        f"has no such studies; there are {', '.join(STUDIES)}": set(suite.studies).difference(STUDIES),
        "has a goal, no quality": set() if suite.quality else {suite.goal, *{"goal"} & suite.params.keys()} - {None, 0},
        "has too few samples_per_unit": [suite.samples_per_unit] if suite.samples_per_unit < 1 else [],
    }
    return next((f"{fault}: {', '.join(sorted(map(str, values)))}" for fault, values in faults.items() if values), "")


def _module_name(path: Path) -> str:
    # A user's suite gets a prefix, so that a file called torch.py does not hide torch.
    is_built_in = _built_in_paths().get(path.stem) == path
    return f"gpubench.suites.{path.stem}" if is_built_in else f"gpubench_user_suite_{path.stem}"
