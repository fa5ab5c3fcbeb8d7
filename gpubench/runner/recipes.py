"""Lists what to train: each model of the suites with its parameters, checked before any data is read.

A suite's own checks come later: `Suite.check` with the data (data.py), `Suite.refuse` for each case (cases.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubench.errors import UserError
from gpubench.runner.options import Options
from gpubench.suite.files import LoadedSuite
from gpubench.suite.suite import ParamValue


@dataclass(frozen=True)
class ModelRecipe:
    """One model of a suite with its parameters."""

    suite: LoadedSuite
    model: str
    params: Mapping[str, ParamValue]


def recipes_of(options: Options, suites: Sequence[LoadedSuite]) -> list[ModelRecipe]:
    """Return the chosen models, in the order of the suites; raises UserError for an unknown name or value."""
    recipes = []
    for suite in suites:
        settings = settings_for(suite, options.settings, suites)
        suite.resolve_params(settings)  # an unknown name is an error even if no model is left
        for model in choose_models(suite, options.models, suites):
            recipes.append(ModelRecipe(suite, model, suite.resolve_params(settings, model)))
    if not recipes:
        raise UserError("nothing to run: none of these suites has these models")
    return recipes


def choose_models(suite: LoadedSuite, names: Sequence[str], suites: Sequence[LoadedSuite]) -> list[str]:
    """Return the suite's models with these names, or its default models; raises UserError for an unknown one."""
    models = dict.fromkeys(model for loaded in suites for model in loaded.suite.models)
    for name in names:
        if name not in models:
            raise UserError(f"--models {name}: no such model; there are {', '.join(models)}")
    chosen = names or suite.suite.default_models or suite.suite.models
    return [model for model in suite.suite.models if model in chosen]


def settings_for(suite: LoadedSuite, settings: Mapping[str, str], suites: Sequence[LoadedSuite]) -> dict[str, str]:
    """Return the --set values for `suite`: with several suites, those that it declares.

    A name that no suite declares is kept, so that `resolve_params` raises an error.
    """
    elsewhere = {name for other in suites if other is not suite for name in other.suite.params}
    return {name: value for name, value in settings.items() if name in suite.suite.params or name not in elsewhere}
