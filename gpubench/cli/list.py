"""`gpubench list`: the suites in short, or some of them with all parameters."""

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.printed import say

if TYPE_CHECKING:
    from gpubench.suite.files import LoadedSuite
    from gpubench.suite.suite import Param

EXAMPLES = "Example: `gpubench list`, `gpubench list resnet` or `gpubench list my_suite.py`"
WIDTH = 79
INDENT = " " * 16
"""As wide as the longest name with a version."""


def list_suites(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUITE]...", help="Only these suites, with all parameters."),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|PATH",
            help="The same, as an option. Repeatable.",
        ),
    ] = None,
) -> None:
    """List suites with their models; those that are named with all their parameters."""
    from gpubench.suite.files import built_in_names, find
    from gpubench.suite.suite import COMMON_PARAMS

    chosen = [*(names or ()), *(suite or ())]
    for name in chosen or built_in_names():
        say(*(_in_full(find(name)) if chosen else _in_short(find(name))))
    say("", "Parameters of every suite:", *_params(COMMON_PARAMS))
    if not chosen:
        say("", "One suite with all its parameters: gpubench list resnet")


def _in_short(loaded: "LoadedSuite") -> list[str]:
    models = loaded.suite.models
    text = f"models: {', '.join(models)}"
    if len(text) > WIDTH - len(INDENT):
        end = f", ... ({len(models)})"
        text = text[: WIDTH - len(INDENT) - len(end)].rpartition(",")[0] + end
    head = f"{loaded.name:<11} v{loaded.suite.version:<3}"
    return [*wrap(loaded.summary, WIDTH, initial_indent=head, subsequent_indent=INDENT), INDENT + text]


def _in_full(loaded: "LoadedSuite") -> Iterator[str]:
    suite = loaded.suite
    yield from wrap(f"{loaded.name} (version {suite.version}): {loaded.summary}", WIDTH)
    yield from _wrapped(f"models: {', '.join(suite.models)}")
    if suite.default_models:
        yield from _wrapped(f"without --models: {', '.join(suite.default_models)}")
    if suite.data:
        yield from _wrapped(f"data: {', '.join(suite.data)}")
    yield from _wrapped(f"counts {suite.unit}" + (f", quality {suite.quality}" * bool(suite.quality)))
    yield from _params(suite.params)


def _params(params: "Mapping[str, Param]") -> Iterator[str]:
    for name, param in params.items():
        default = str(param.default).lower() if isinstance(param.default, bool) else param.default
        choices = f" ({'|'.join(map(str, param.choices))})" if param.choices else ""
        yield from _wrapped(f"--set {name}={default}{choices}  {param.help}")


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
