"""What will be trained: each model of the suites with every --set value, checked before any data is looked for.

What a suite itself refuses comes later: `Suite.check` once the data is there (data.py), `Suite.refuse` case by case
(cases.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from gpubench.errors import UserError
from gpubench.runner.options import Options
from gpubench.suite.files import LoadedSuite
from gpubench.suite.suite import ParamValue, params_text


@dataclass(frozen=True)
class Recipe:
    """One model of a suite and its parameters; on which device and in which precision comes later."""

    suite: LoadedSuite
    model: str
    params: Mapping[str, ParamValue]
    tried: str = ""
    """Of its settings those in which it differs from other recipes of the run."""


def recipes_of(options: Options, suites: Sequence[LoadedSuite]) -> list[Recipe]:
    """Every model asked for, in the suites' own order; raises UserError for a name or value that does not exist."""
    recipes = []
    for suite in suites:
        settings = settings_for(suite, options.settings, suites)
        suite.resolve_params(settings)  # a wrong name is a mistake even where no model is left
        for model, tried in product(choose_models(suite, options.models, suites), options.tries):
            params = suite.resolve_params({**settings, **tried}, model)
            recipes.append(Recipe(suite, model, params, params_text(tried)))
    if not recipes:
        raise UserError("nothing to run: none of these suites has the models asked for")
    return recipes


def choose_models(suite: LoadedSuite, wish: Sequence[str], suites: Sequence[LoadedSuite]) -> list[str]:
    """The suite's models among those wished for, or its usual ones; raises UserError for an unknown one."""
    known = dict.fromkeys(model for each in suites for model in each.suite.models)
    for model in wish:
        if model not in known:
            raise UserError(f"--models {model}: no such model; there are {', '.join(known)}")
    usual = wish or suite.suite.default_models or suite.suite.models
    return [model for model in suite.suite.models if model in usual]


def settings_for(suite: LoadedSuite, settings: Mapping[str, str], suites: Sequence[LoadedSuite]) -> dict[str, str]:
    """The --set values meant for `suite`: with several suites, those that it declares.

    A name that no suite declares stays, for `resolve_params` to refuse.
    """
    elsewhere = {name for other in suites if other is not suite for name in other.suite.params}
    return {name: value for name, value in settings.items() if name in suite.suite.params or name not in elsewhere}
