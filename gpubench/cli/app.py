"""The commands: parse, call, print. Heavy imports happen inside them, so that --help is instant."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

import gpubench
from gpubench.cli import cards, compare, data, machine, run, share, show
from gpubench.cli.options import COMPARE, FLAG, LOOK_AFTER, MEASURE
from gpubench.errors import UserError
from gpubench.printed import say

app = typer.Typer(
    name="gpubench",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="How fast does this card train, in FP32 and in mixed precision, and is it worth more than that one?",
    epilog="A first look: `gpubench run --quick --synthetic`. A measurement: `gpubench run`, then `gpubench compare"
    " results/*.csv`.",
)
data_app = typer.Typer(no_args_is_help=True, help="Datasets and pretrained weights.")
app.add_typer(data_app, name="data", rich_help_panel=LOOK_AFTER)


def advised(command: Callable[..., int | None]) -> Callable[..., None]:
    """Turn a UserError into one line on stderr, and what the command returns into the exit code."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
        except UserError as error:
            say(f"gpubench: {error}", err=True)
            say(*([error.data] if error.data else []), err=True, exact=True)
            raise typer.Exit(error.exit_code) from None
        except (BrokenPipeError, SystemExit) as error:  # `| head` has seen enough; rich makes a SystemExit of it
            if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            say("", "stopped", err=True)
            raise typer.Exit(130) from None
        raise typer.Exit(code or 0)

    return run


def _version(show: bool) -> None:
    if show:
        say(f"gpubench {gpubench.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", metavar=FLAG, callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """How fast does this card train, in FP32 and in mixed precision, and is it worth more than that one?"""


def add(to: typer.Typer, command: Callable[..., int | None], examples: str, panel: str = "", name: str = "") -> None:
    """Make the function a command, called as the function is unless it has a name of its own."""
    to.command(name or None, rich_help_panel=panel or None, epilog=examples)(advised(command))


add(app, run.run, run.RUN_EXAMPLES, MEASURE)
add(app, compare.compare, compare.COMPARE_EXAMPLES, COMPARE)
add(app, compare.report, compare.REPORT_EXAMPLES, COMPARE)
add(app, share.site, share.SITE_EXAMPLES, COMPARE)
add(app, cards.cards, cards.CARDS_EXAMPLES, COMPARE)
add(app, share.export, share.EXPORT_EXAMPLES, COMPARE)
add(app, share.import_, share.IMPORT_EXAMPLES, COMPARE, name="import")
add(app, share.submit, share.SUBMIT_EXAMPLES, COMPARE)
add(app, machine.list_suites, machine.LIST_EXAMPLES, MEASURE, name="list")
add(app, show.show, show.SHOW_EXAMPLES, MEASURE)
add(app, machine.doctor, machine.DOCTOR_EXAMPLES, LOOK_AFTER)
add(app, machine.peak, machine.PEAK_EXAMPLES, MEASURE)
add(app, machine.selftest, machine.SELFTEST_EXAMPLES, LOOK_AFTER)
add(app, share.columns, share.COLUMNS_EXAMPLES, COMPARE)
add(data_app, data.fetch, data.FETCH_EXAMPLES)
add(data_app, data.prepare, data.PREPARE_EXAMPLES)
add(data_app, data.list_data, data.LIST_EXAMPLES, name="list")
