"""`gpubench list`: the suites in short, or some of them with all parameters."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.printed import say
from gpubench.show.wrap import line_width, wrapped

if TYPE_CHECKING:
    from gpubench.suite.files import LoadedSuite
    from gpubench.suite.suite import Param

EXAMPLES = "Example: `gpubench list`, `gpubench list resnet` or `gpubench list my_suite.py`"
NAME_WIDTH = 16
"""Width of the column of names and versions, in characters."""


def list_suites(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SUITE]...", help="Only these suites, with all parameters.")
    ] = None,
) -> None:
    """List all suites, or the named ones with all their parameters."""
    from gpubench.suite.files import built_in_names, find
    from gpubench.suite.suite import COMMON_PARAMS

    for name in dict.fromkeys(names or built_in_names()):
        say(*(_in_full(find(name)) if names else _in_short(find(name))))
    say("", "Parameters of every suite:", *_params(COMMON_PARAMS))
    if not names:
        say("", *wrapped("One suite with all its parameters: gpubench list resnet"))


def _in_short(loaded: "LoadedSuite") -> list[str]:
    models, room = loaded.suite.models, line_width() - NAME_WIDTH
    text = f"models: {', '.join(models)}"
    if len(text) > room:
        end = f", ... ({len(models)})"
        shorter = text[: max(room - len(end), 0)].rpartition(",")[0]
        text = shorter + end if shorter else f"{len(models)} models"
    missing = wrapped(loaded.suite.missing, room) if loaded.suite.missing else []
    lines = [*wrapped(loaded.summary, room), text, *missing]
    heads = [f"{loaded.name:<11} v{loaded.suite.version}", *[""] * (len(lines) - 1)]
    return [f"{head:<{NAME_WIDTH}}{line}" for head, line in zip(heads, lines, strict=True)]


def _in_full(loaded: "LoadedSuite") -> Iterator[str]:
    suite = loaded.suite
    yield from wrapped(f"{loaded.name} (version {suite.version}): {loaded.summary}")
    facts = [f"models: {', '.join(suite.models)}", suite.missing]
    facts += [f"default models: {', '.join(suite.default_models)}"] * bool(suite.default_models)
    facts += [f"data: {', '.join(suite.data)}"] * bool(suite.data)
    facts += [f"rate in {suite.unit}/s" + f", quality: {suite.quality}" * bool(suite.quality)]
    for fact in filter(None, facts):
        yield from _wrapped(fact)
    yield from _params(suite.params)


def _params(params: "Mapping[str, Param]") -> Iterator[str]:
    for name, param in params.items():
        default = f"{param.default:g}" if isinstance(param.default, float) else str(param.default)
        default = default.lower() if isinstance(param.default, bool) else default
        choices = f" ({'|'.join(map(str, param.choices))})" if param.choices else ""
        yield from _wrapped(f"--set {name}={default}{choices}: {param.help}")


def _wrapped(text: str) -> list[str]:
    first, *others = wrapped(text, line_width() - 6)
    return [f"  {first}", *(f"      {line}" for line in others)]
