"""`gpubench show`: a model's network and learning rate, as text and picture. A child process builds the network."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.cli.options import FLAG, Settings, examples, parse_settings
from gpubench.errors import UserError, names_there
from gpubench.printed import say

if TYPE_CHECKING:
    from gpubench.show.network import NetworkSummary

EXAMPLES = examples(
    "On the screen: `gpubench show cifar10 baseline`",
    "As a picture: `gpubench show resnet resnet50 --set recipe=article --chart resnet50.png`",
)


def show(
    suite: Annotated[str, typer.Argument(help="Built-in suite, or the path of one.")],
    model: Annotated[str, typer.Argument(help="One of its models; default: the one that runs first.")] = "",
    settings: Settings = None,
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Training processes: some learning rates depend on their number.")
    ] = 1,
    every: Annotated[bool, typer.Option("--all", metavar=FLAG, help="Every layer, not blocks of layers.")] = False,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw it: a file that ends in .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Show a model's layers, with shapes, weights and FLOPs, and its learning rate by epoch. Trains nothing."""
    from gpubench.show.network import lines
    from gpubench.show.network_chart import KINDS, save

    if chart and chart.suffix not in KINDS:
        raise UserError(f"--chart {chart}: give a name that ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    network = network_of(suite, model, parse_settings(settings or []), processes)
    if chart:
        save(network, chart)
    say(*lines(network, every=every), *(["", str(chart)] if chart else []))


def network_of(suite: str, model: str, settings: Mapping[str, str], processes: int) -> "NetworkSummary":
    """Return a model's network and schedule. Raises UserError if the suite has no such model or no blueprint."""
    from gpubench.cli.child import case_of, result_of
    from gpubench.hardware.environment import cpu_device
    from gpubench.runner.options import Options
    from gpubench.show.network import Layer, NetworkSummary
    from gpubench.suite import files

    loaded = files.find(suite)
    models = loaded.suite.models
    model = model or (loaded.suite.default_models or models)[0]
    if model not in models:
        raise UserError(f"{model}: suite {loaded.name} has no such model; {names_there(model, models)}")
    if loaded.suite.blueprint is None:
        raise UserError(f"suite {loaded.name} has no `blueprint`, which describes its networks: {files.DOCS}")
    say("building the network, which may take half a minute", err=True)
    options = Options(models=(model,), precision="fp32", processes=(processes,), mode="full", settings=settings)
    network = result_of("network", case_of(loaded, options, cpu_device()), "network", time_limit_seconds=300)
    return NetworkSummary(
        title=f"{loaded.name} {model}",
        unit=loaded.suite.unit.removesuffix("s"),
        input=tuple(network["input"]),
        layers=tuple(Layer(**{**layer, "shape": tuple(layer["shape"])}) for layer in network["layers"]),
        schedule={name: tuple(map(tuple, points)) for name, points in network["schedule"].items()},
        **{name: network[name] for name in ("weights", "trained", "flops", "epochs", "note")},
    )
