"""The Typer app: adds each command of this folder, and turns errors into exit codes."""

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

import gpubench
from gpubench.cli import (
    cards,
    columns,
    compare,
    data,
    doctor,
    export,
    fits,
    peak,
    report,
    run,
    selftest,
    show,
    site,
    submit,
)
from gpubench.cli import list as list_command
from gpubench.cli.options import COMPARE, FLAG, LOOK_AFTER, MEASURE
from gpubench.errors import UserError
from gpubench.printed import say, size_text

SUMMARY = "Measure how fast GPUs train real models, in FP32 and in mixed precision, and compare them."
LEAST_FILES, LEAST_MEMORY_BYTES = 64, 4 << 30
"""If a limit of this process is lower, error messages name it as the probable cause."""
NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
app = typer.Typer(
    name="gpubench",
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=SUMMARY,
    epilog="To try it: `gpubench run --quick`. To measure: `gpubench run`, then `gpubench compare results/*.csv`.",
)
data_app = typer.Typer(no_args_is_help=True, help="Datasets and pretrained weights.")
app.add_typer(data_app, name="data", rich_help_panel=LOOK_AFTER)


def exits(command: Callable[..., int | None]) -> Callable[..., None]:
    """Return the command, changed: its result is the exit code, and stderr gets a UserError without a traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
        except UserError as error:
            say(f"gpubench: {error}", *[f"gpubench: {limits}" for limits in [low_limits()] if limits], err=True)
            if error.data:
                say(error.data, err=True, exact=True)
            raise typer.Exit(error.exit_code) from None
        except (BrokenPipeError, SystemExit) as error:  # `| head` ends early; rich raises a SystemExit then
            if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None  # 128 + SIGPIPE; 0 would mean that --fail-on-slower passed
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would print a traceback
            say("", "stopped", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # of stdout; files: errors.writing
                say("gpubench: the output is incomplete: no space left on the disk", err=True)
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(4) from None
            is_denied = isinstance(error, OSError) and error.filename and error.errno in NO_ACCESS
            if not (limits := low_limits()) and not is_denied:
                raise
            say(f"gpubench: {type(error).__name__}: {error}", *([f"gpubench: {limits}"] if limits else []), err=True)
            raise typer.Exit(2) from None
        raise typer.Exit(code or 0)

    return run


def low_limits() -> str:
    """Return the limits of this shell that are too low for gpubench, in words; empty if none is too low."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    memory, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits = [f"only {files} files may be open (ulimit -n)"] * (0 <= files < LEAST_FILES)
    limits += [f"only {size_text(memory)} of memory may be used (ulimit -v)"] * (0 <= memory < LEAST_MEMORY_BYTES)
    return "; ".join([*limits, "these limits of the shell are too low"]) if limits else ""


def _version(show: bool) -> None:
    if show:
        say(f"gpubench {gpubench.__version__}")
        raise typer.Exit


@app.callback(help=SUMMARY)
def main(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", metavar=FLAG, callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Print this machine's card and three commands, if no command is given."""
    if ctx.invoked_subcommand is None:
        from gpubench.cli.overview import overview

        exits(lambda: say(*overview()))()


def add(
    to: typer.Typer, command: Callable[..., int | None], examples: str, panel: str = "", name: str = "", **more: Any
) -> None:
    """Add a function as a command, named as the function unless `name` is given; `more`: other arguments for typer."""
    to.command(name or None, **more, rich_help_panel=panel or None, epilog=examples)(exits(command))


add(app, run.run, run.EXAMPLES, MEASURE, cls=run.RunCommand)
add(app, compare.compare, compare.EXAMPLES, COMPARE)
add(app, report.report, report.EXAMPLES, COMPARE)
add(app, site.site, site.EXAMPLES, COMPARE)
add(app, cards.cards, cards.EXAMPLES, COMPARE)
add(app, export.export, export.EXAMPLES, COMPARE)
add(app, submit.submit, submit.EXAMPLES, COMPARE)
add(app, list_command.list_suites, list_command.EXAMPLES, MEASURE, name="list")
add(app, show.show, show.EXAMPLES, MEASURE)
add(app, fits.fits, fits.EXAMPLES, MEASURE)
add(app, doctor.doctor, doctor.EXAMPLES, LOOK_AFTER)
add(app, peak.peak, peak.EXAMPLES, MEASURE)
add(app, selftest.selftest, selftest.EXAMPLES, LOOK_AFTER)
add(app, columns.columns, "Example: `gpubench columns`", COMPARE)
add(data_app, data.fetch, "Example: `gpubench data fetch cifar100`")
add(data_app, data.prepare, "Example: `gpubench data prepare imagenet --sizes 160,320 --data DIR`")
add(data_app, data.list_data, "Example: `gpubench data list`", name="list")
