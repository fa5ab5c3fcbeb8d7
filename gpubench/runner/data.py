"""What the recipes will read: data and pretrained weights, found, checked or downloaded before anything trains."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gpubench.data import datasets
from gpubench.errors import UserError
from gpubench.runner.options import Options
from gpubench.runner.recipes import Recipe
from gpubench.suite.suite import Suite


@dataclass(frozen=True)
class Data:
    """What a suite reads: the names that its rows carry, and the folder that holds it."""

    name: str
    """Dataset names, or `synthetic`; empty where the suite reads nothing."""
    folder: Path | None = None
    """None where nothing is read from disk."""


def find_data(recipes: Sequence[Recipe], options: Options, console: Console) -> dict[str, Data]:
    """The data of each suite, by its name; says what is missing and downloads it."""
    found: dict[str, Data] = {}
    for recipe in recipes:
        name, suite = recipe.suite.name, recipe.suite.suite
        data = found[name] if name in found else _data_of(suite, options, console)
        if suite.check and data.folder:
            suite.check(recipe.params, data.folder, data.name)
        found[name] = data
    return found


def _data_of(suite: Suite, options: Options, console: Console) -> Data:
    wanted = suite.data
    if not wanted:
        return Data("")
    if options.synthetic:
        return Data("synthetic")
    folder = datasets.locate(wanted, options.data)
    if folder is None and options.mode == "quick":
        fetch = f"`gpubench data fetch {' '.join(wanted)}` gets the real one"
        ways = "--data DIR reads your own" if set(wanted) & set(datasets.TREES) else fetch
        console.print(
            f"no {' or '.join(wanted)} on this machine: this quick run makes synthetic data,"
            f" and its rows say so ({ways})",
            markup=False,
        )
        return Data("synthetic")
    if folder is None:
        for dataset in wanted:
            console.print(_missing(dataset), markup=False, soft_wrap=True)
            folder = None if options.dry_run else datasets.fetch(dataset)
    if folder is None:
        return Data("+".join(wanted))
    names = [datasets.row_name(dataset, folder) for dataset in wanted]
    for dataset, name in zip(wanted, names, strict=True):
        if name != dataset:
            note = f"{folder}: not the official {dataset}, so its rows say data={name}"
            console.print(note, markup=False, soft_wrap=True)
    return Data("+".join(names), folder)


def _missing(dataset: str) -> str:
    """That a dataset is not here, what a run does about it, and what else can be done."""
    if dataset in datasets.TREES:
        return f"{dataset} is not on this machine; --data DIR reads {datasets.TREES[dataset]}; --synthetic needs none"
    about = datasets.DATASETS[dataset].about.partition(" (")[0]
    return (
        f"{dataset} is not on this machine; a run downloads it first ({about}),"
        f" as `gpubench data fetch {dataset}` does; --data DIR reads files that you have, --synthetic needs none"
    )


def find_weights(recipes: Sequence[Recipe], options: Options, console: Console) -> dict[tuple[str, str], str]:
    """Per (suite, model) the pretrained weights it starts from, `random` where they cannot be had."""
    found: dict[tuple[str, str], str] = {}
    for recipe in recipes:
        name_of, model = recipe.suite.suite.weights, recipe.model
        name = name_of(model, recipe.params) if name_of else ""
        if name:
            found[recipe.suite.name, model] = name if _has_weights(name, model, options, console) else "random"
    return found


def _has_weights(name: str, model: str, options: Options, console: Console) -> bool:
    """Whether a run will have these weights; downloads them where it may, and says so where it will not."""
    path = datasets.locate_weights(name, options.weights)
    if path or options.dry_run:
        return True
    if options.mode != "quick" and not options.synthetic:
        try:
            datasets.fetch(name)
        except UserError as error:
            console.print(str(error), markup=False)
        else:
            return True
    console.print(
        f"{model}: no pretrained weights here, so it starts from random ones;"
        " its rows say weights=random and carry no accuracy (--weights DIR gives them)",
        markup=False,
    )
    return False
