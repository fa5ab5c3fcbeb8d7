"""`gpubench show`: a model's network and learning rate, as text and as a picture.

A child process, which may import torch, builds the network.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.cli.arguments import parse_settings
from gpubench.cli.options import FLAG
from gpubench.errors import UserError
from gpubench.printed import say

if TYPE_CHECKING:
    from gpubench.show.network import NetworkSummary
    from gpubench.suite.files import LoadedSuite
    from gpubench.suite.suite import ParamValue
    from gpubench.suite.trial import Case

EXAMPLES = """
Examples:

On the screen: `gpubench show cifar10 baseline`

As a picture: `gpubench show resnet resnet50 --set recipe=article --chart resnet50.png`
"""
TIME_LIMIT_SECONDS = 300.0


def show(
    suite: Annotated[str, typer.Argument(help="Built-in suite, or the path of one.")],
    model: Annotated[str, typer.Argument(help="One of its models; default: the one that runs first.")] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the suite, as for `run`. Repeatable."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Training processes, where the learning rate depends on them.")
    ] = 1,
    every: Annotated[bool, typer.Option("--all", metavar=FLAG, help="Every layer, not blocks of layers.")] = False,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw it: a file that ends in .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Show a model's layers, with shapes, weights and FLOPs, and its learning rate by epoch. Trains nothing."""
    from gpubench.show.network import lines
    from gpubench.show.network_chart import save

    network = network_of(suite, model, parse_settings(settings or []), processes)
    if chart:
        save(network, chart)
    say(*lines(network, every=every), *(["", str(chart)] if chart else []))


def network_of(suite: str, model: str, settings: Mapping[str, str], processes: int) -> "NetworkSummary":
    """Return a model's network and schedule. Raises UserError if the suite has no such model or no blueprint."""
    from gpubench.runner.process import run_child
    from gpubench.show.network import Layer, NetworkSummary
    from gpubench.suite import files
    from gpubench.suite.trial import Trial, trial_to_json

    loaded = files.find(suite)
    models = loaded.suite.models
    model = model or (loaded.suite.default_models or models)[0]
    if model not in models:
        raise UserError(f"{model}: suite {loaded.name} has no such model; it has {', '.join(models)}")
    if loaded.suite.blueprint is None:
        raise UserError(f"suite {loaded.name} has no `blueprint`, which describes its networks: {files.DOCS}")
    trial = Trial(_case(loaded, model, loaded.resolve_params(settings, model), processes), index=0, seed=0)
    outcome = run_child({"task": "network", "trial": trial_to_json(trial)}, time_limit_seconds=TIME_LIMIT_SECONDS)
    answer = outcome.answer or {"reason": outcome.reason}
    if "network" not in answer:
        raise UserError(f"{loaded.name} {model} cannot be shown: {answer['reason']}")
    network = answer["network"]
    return NetworkSummary(
        title=f"{loaded.name} {model}",
        unit=loaded.suite.unit.removesuffix("s"),
        input=tuple(network["input"]),
        layers=tuple(Layer(**{**layer, "shape": tuple(layer["shape"])}) for layer in network["layers"]),
        schedule={name: tuple(map(tuple, points)) for name, points in network["schedule"].items()},
        **{name: network[name] for name in ("weights", "trained", "flops", "epochs", "note")},
    )


def _case(loaded: "LoadedSuite", model: str, params: "Mapping[str, ParamValue]", processes: int) -> "Case":
    """Return a case that trains the model on a CPU, from random weights."""
    from gpubench.suite.trial import Case

    suite = loaded.suite
    return Case(
        suite=loaded.name,
        suite_version=suite.version,
        suite_digest=loaded.digest,
        suite_path=str(loaded.path),
        model=model,
        precision="fp32",
        device="cpu",
        params=params,
        batch_policy="fixed",
        batch_size=(suite.recipe_batch and suite.recipe_batch(model, params, "fp32")) or suite.cpu_batch,
        mode="full",
        data="synthetic",
        weights="random" if suite.weights else "",
        processes=processes,
    )
