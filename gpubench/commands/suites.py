"""`gpubench list`: the suites in a line or two each, or some of them in full. No line is wider than a terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

from gpubench.suite.files import LoadedSuite, built_in_names, find
from gpubench.suite.suite import COMMON_PARAMS, Param

WIDTH = 79
INDENT = " " * 16
"""Where the summaries begin: after the longest name and a version."""


def listed(names: Sequence[str]) -> list[str]:
    """Lines on these suites in full, or on all built-in ones in short."""
    lines: list[str] = []
    for name in names or built_in_names():
        lines += _in_full(find(name)) if names else _in_short(find(name))
    lines += ["", "Parameters of every suite:", *_params(COMMON_PARAMS)]
    return lines if names else [*lines, "", "One suite with all its parameters: gpubench list --suite resnet"]


def _in_short(found: LoadedSuite) -> list[str]:
    models = found.suite.models
    text = f"models: {', '.join(models)}"
    if len(text) > WIDTH - len(INDENT):
        end = f", ... ({len(models)})"
        text = text[: WIDTH - len(INDENT) - len(end)].rpartition(",")[0] + end
    head = f"{found.name:<11} v{found.suite.version:<3}"
    return [*wrap(found.summary, WIDTH, initial_indent=head, subsequent_indent=INDENT), INDENT + text]


def _in_full(found: LoadedSuite) -> Iterator[str]:
    suite = found.suite
    usual = suite.default_models
    yield from wrap(f"{found.name} (version {suite.version}): {found.summary}", WIDTH)
    yield from _wrapped(f"models: {', '.join(suite.models)}")
    if usual:
        yield from _wrapped(f"without --models: {', '.join(usual)}")
    if suite.data:
        yield from _wrapped(f"data: {', '.join(suite.data)}")
    yield from _wrapped(f"counts {suite.unit}" + (f", quality {suite.quality}" * bool(suite.quality)))
    yield from _params(suite.params)


def _params(params: Mapping[str, Param]) -> Iterable[str]:
    for name, param in params.items():
        default = str(param.default).lower() if isinstance(param.default, bool) else param.default
        choices = f" ({'|'.join(map(str, param.choices))})" if param.choices else ""
        yield from _wrapped(f"--set {name}={default}{choices}  {param.help}")


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
