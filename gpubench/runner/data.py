"""Finds, checks or downloads a run's data and pretrained weights, or takes synthetic data and random weights."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpubench.data import datasets
from gpubench.errors import UserError
from gpubench.printed import Say
from gpubench.runner.cases import ModelRecipe
from gpubench.runner.options import Options
from gpubench.suite.suite import Suite


def with_data(recipes: Sequence[ModelRecipe], options: Options, device_kind: str, say: Say) -> list[ModelRecipe]:
    """Return the recipes with their data and weights; prints and downloads what is missing.

    Quick and dry runs download nothing. In a quick run the recipes also get parameters that suit data and device; these
    are printed with their reasons. Raises UserError if `suited` or `weights` of a suite fails.
    """
    data_of_suites: dict[str, tuple[str, Path | None]] = {}
    complete, notes = [], set[str]()
    for recipe in recipes:
        suite, suite_name = recipe.suite.suite, recipe.suite.name
        if suite_name not in data_of_suites:
            data_of_suites[suite_name] = _data_of(suite, options, say)
        data, folder = data_of_suites[suite_name]
        params = dict(recipe.params)
        try:
            if suite.suited and options.mode == "quick":
                texts = suite.suited(params, device_kind, data)
                texts = {name: text for name, text in texts.items() if name not in options.settings}
                params |= {name: suite.params[name].parse(name, text) for name, (text, _) in texts.items()}
                notes |= {f"{name}={text}: {why}" for name, (text, why) in texts.items()}
            weights = suite.weights(recipe.model, params) if suite.weights else ""
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"suite {suite_name}: suited or weights raised {type(error).__name__}: {error}") from error
        weights = weights and _weights_of(weights, recipe.model, options, say)
        complete.append(replace(recipe, params=params, data=data, folder=folder, weights=weights))
    for note in sorted(notes):
        say(note)
    return complete


def _data_of(suite: Suite, options: Options, say: Say) -> tuple[str, Path | None]:
    """Return the name of the suite's data in rows, and the data's folder, or None if no data is read or found."""
    wanted = suite.data
    if not wanted:
        return "", None
    if options.synthetic:
        return "synthetic", None
    folder = datasets.locate(wanted, options.data)
    if folder is None and options.mode == "quick":
        fetch = f"`gpubench data fetch {' '.join(wanted)}` downloads it"
        advice = "--data DIR reads your data" if set(wanted) & set(datasets.TREES) else fetch
        say(f"no {' or '.join(wanted)} on this machine: using synthetic data, marked in the rows ({advice})")
        return "synthetic", None
    if folder is None:
        for dataset in wanted:
            say(_missing(dataset))
            folder = None if options.dry_run else datasets.fetch(dataset)
    if folder is None:
        return "+".join(wanted), None
    names = [datasets.row_name(dataset, folder) for dataset in wanted]
    for dataset, name in zip(wanted, names, strict=True):
        if name != dataset:
            say(f"{folder}: not the official {dataset}; rows have data={name}")
    return "+".join(names), folder


def _missing(dataset: str) -> str:
    """Return the note on a missing dataset: what the run does, and the alternatives."""
    if dataset in datasets.TREES:
        return f"{dataset} is not on this machine; give --data DIR ({datasets.TREES[dataset]}) or --synthetic"
    about = datasets.DATASETS[dataset].about.partition(" (")[0]
    return (
        f"{dataset} is not on this machine: a run downloads it first ({about}), as `gpubench data fetch {dataset}`"
        " does; or give --data DIR or --synthetic"
    )


def _weights_of(name: str, model: str, options: Options, say: Say) -> str:
    """Return the name of these weights in rows, or `random` if missing. A dry run downloads none and assumes them."""
    there = options.dry_run or bool(datasets.locate_weights(name, options.weights))
    if not there and options.mode != "quick" and not options.synthetic and name in datasets.names():
        try:
            datasets.fetch(name)
            there = True
        except UserError as error:
            say(str(error))
    if there:
        return datasets.weights_row_name(name, options.weights)
    say(
        f"{model}: no pretrained weights on this machine, so it starts from random ones. Its rows have weights=random"
        " and no accuracy. Give --weights DIR to use yours."
    )
    return "random"
