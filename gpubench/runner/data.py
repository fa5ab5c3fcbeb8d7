"""Finds, checks or downloads the data and pretrained weights of a run before its first trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpubench.data import datasets
from gpubench.errors import UserError
from gpubench.printed import Say
from gpubench.runner.cases import ModelRecipe
from gpubench.runner.options import Options
from gpubench.suite.suite import Suite


@dataclass(frozen=True)
class Data:
    """The data of a suite: its name in rows, and its folder."""

    name: str
    """Dataset names, or `synthetic`; empty if the suite reads no data."""
    folder: Path | None = None
    """None if nothing is read from disk."""


def find_data(recipes: Sequence[ModelRecipe], options: Options, say: Say) -> dict[str, Data]:
    """Return the data of each suite by its name; prints what is missing and downloads it."""
    data_of_suites: dict[str, Data] = {}
    for recipe in recipes:
        name = recipe.suite.name
        if name not in data_of_suites:
            data_of_suites[name] = _data_of(recipe.suite.suite, options, say)
    return data_of_suites


def suited(
    recipes: Sequence[ModelRecipe], data: Mapping[str, Data], options: Options, device_kind: str, say: Say
) -> list[ModelRecipe]:
    """Return the recipes, in a quick run with the parameters that suit data and device; prints each and its reason.

    Raises UserError if a trial would fail on its data.
    """
    changed_recipes, told = [], set[str]()
    for recipe in recipes:
        suite, of_suite = recipe.suite.suite, data[recipe.suite.name]
        if suite.suited and options.mode == "quick":
            try:
                texts = suite.suited(recipe.params, device_kind, of_suite.name)
                texts = {name: text for name, text in texts.items() if name not in options.settings}
                values = {name: suite.params[name].parse(name, text) for name, (text, _) in texts.items()}
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise UserError(f"suite {recipe.suite.name}: its function `suited` failed ({why})") from error
            told |= {f"{name}={text}: {why}" for name, (text, why) in texts.items()}
            recipe = replace(recipe, params={**recipe.params, **values})
        if suite.check and of_suite.folder:
            suite.check(recipe.params, of_suite.folder, of_suite.name)
        changed_recipes.append(recipe)
    for line in sorted(told):
        say(line)
    return changed_recipes


def _data_of(suite: Suite, options: Options, say: Say) -> Data:
    wanted = suite.data
    if not wanted:
        return Data("")
    if options.synthetic:
        return Data("synthetic")
    folder = datasets.locate(wanted, options.data)
    if folder is None and options.mode == "quick":
        fetch = f"`gpubench data fetch {' '.join(wanted)}` downloads it"
        advice = "--data DIR reads your data" if set(wanted) & set(datasets.TREES) else fetch
        say(f"no {' or '.join(wanted)} on this machine: using synthetic data, as the rows tell ({advice})")
        return Data("synthetic")
    if folder is None:
        for dataset in wanted:
            say(_missing(dataset))
            folder = None if options.dry_run else datasets.fetch(dataset)
    if folder is None:
        return Data("+".join(wanted))
    names = [datasets.row_name(dataset, folder) for dataset in wanted]
    for dataset, name in zip(wanted, names, strict=True):
        if name != dataset:
            note = f"{folder}: not the official {dataset}; rows say data={name}"
            say(note)
    return Data("+".join(names), folder)


def _missing(dataset: str) -> str:
    """Return the note on a missing dataset: what the run does, and the alternatives."""
    if dataset in datasets.TREES:
        return f"{dataset} is not on this machine; give --data DIR ({datasets.TREES[dataset]}) or --synthetic"
    about = datasets.DATASETS[dataset].about.partition(" (")[0]
    return (
        f"{dataset} is not on this machine: a run downloads it first ({about}), as `gpubench data fetch {dataset}`"
        " does; or give --data DIR or --synthetic"
    )


def find_weights(recipes: Sequence[ModelRecipe], options: Options, say: Say) -> dict[tuple[str, str], str]:
    """Return the pretrained weights of each (suite, model); `random` if they are not available."""
    weights: dict[tuple[str, str], str] = {}
    for recipe in recipes:
        name_of, model = recipe.suite.suite.weights, recipe.model
        name = name_of(model, recipe.params) if name_of else ""
        if name:
            there = _has_weights(name, model, options, say)
            weights[recipe.suite.name, model] = datasets.weights_row_name(name, options.weights) if there else "random"
    return weights


def _has_weights(name: str, model: str, options: Options, say: Say) -> bool:
    """Return whether a run has these weights. Downloads them, except in quick runs; prints a note if it has none."""
    path = datasets.locate_weights(name, options.weights)
    if path or options.dry_run:
        return True
    if options.mode != "quick" and not options.synthetic and name in datasets.names():
        try:
            datasets.fetch(name)
        except UserError as error:
            say(str(error))
        else:
            return True
    say(
        f"{model}: no pretrained weights on this machine, so it starts from random ones. Its rows say weights=random"
        " and have no accuracy. Give --weights DIR to use yours."
    )
    return False
