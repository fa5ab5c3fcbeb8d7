"""`gpubench show`: a model's network and schedule, as text and as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli import completion
from gpubench.cli.arguments import parse_settings
from gpubench.cli.options import FLAG
from gpubench.printed import say

SHOW_EXAMPLES = """
Examples:

On the screen: `gpubench show cifar10 baseline`

As a picture: `gpubench show resnet resnet50 --set recipe=article --chart resnet50.png`
"""


def show(
    suite: Annotated[str, typer.Argument(help="Built-in suite, or the path of one.", autocompletion=completion.suites)],
    model: Annotated[
        str, typer.Argument(help="One of its models; by default its first.", autocompletion=completion.models)
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the suite, as for `run`. Repeatable."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Training processes, where the schedule depends on them.")
    ] = 1,
    every: Annotated[bool, typer.Option("--all", metavar=FLAG, help="Every layer, not blocks of them.")] = False,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it too: a name that ends in .png, .svg or .pdf.")
    ] = None,
) -> None:
    """The network of a model, with shapes, weights and FLOPs, and its learning rate over the epochs. Trains nothing."""
    from gpubench.commands.show_model import network_of, shown

    found = network_of(suite, model, parse_settings(settings or []), processes)
    say(*shown(found, chart, every=every))
