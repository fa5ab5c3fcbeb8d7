"""What there is to measure and whether this machine can: `gpubench list`, `doctor`, `peak` and `selftest`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli import completion
from gpubench.cli.options import FLAG
from gpubench.errors import UserError
from gpubench.printed import say

LIST_EXAMPLES = "Example: `gpubench list`, `gpubench list --suite resnet` or `gpubench list --suite my_suite.py`"


def list_suites(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|PATH", help="Only this suite, in full. Repeatable.", autocompletion=completion.suites
        ),
    ] = None,
) -> None:
    """Suites with their models; one of them (--suite) with all its parameters."""
    from gpubench.commands.suites import listed

    say(*listed(suite or ()))


DOCTOR_EXAMPLES = """
Examples:

What to fix before measuring: `gpubench doctor`

Is my card healthy? `gpubench doctor mine.csv --against results`
"""


def doctor(
    files: Annotated[list[Path] | None, typer.Argument(help="CSV files measured here, for --against.")] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="CSV file, or folder of them, with reference rows of the same card. Repeatable."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with the official dataset folders, or one of them.")
    ] = None,
) -> int:
    """What to fix before measuring: card, driver, torch build, Apex, host, data, disk. Exit code 4 if anything.

    With files of measured rows it says instead whether the card is as fast as others of its kind.
    """
    from gpubench.commands.doctor import checks
    from gpubench.commands.health import health
    from gpubench.runner.progress import HintLine

    if bool(files) != bool(against):
        raise UserError("give both rows measured here and reference rows: gpubench doctor MINE.csv --against DIR")
    marks = {"ok": "ok  ", "note": "note", "fix": "FIX "}
    code = 0
    with HintLine() as line:
        for check in health(files, against) if files and against else checks(data, line.show):
            line.clear()
            say(f"{marks[check.level]}  {check.text}", *[f"        {check.advice}"] * bool(check.advice))
            code = 4 if check.level == "fix" else code
    return code


PEAK_EXAMPLES = "Example: `gpubench peak` or `gpubench peak --device cuda:0 --precision fp32,tf32,fp16`"


def peak(
    device: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="auto, all, cpu, mps, xpu, or cuda:0,cuda:1.", autocompletion=completion.devices
        ),
    ] = "auto",
    precision: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="all, both, mixed, or names joined by commas.",
            autocompletion=completion.precisions,
        ),
    ] = "all",
    threads: Annotated[int, typer.Option(min=0, metavar="N", help="CPU threads; 0 leaves torch's default.")] = 0,
) -> int:
    """The highest rate this device reaches, beside what its maker lists; kept for `run`. Exit code 4 if any fails."""
    from gpubench.commands.peak import run_peak

    return run_peak(device, precision, threads)


SELFTEST_EXAMPLES = "Example: `gpubench selftest` or `gpubench selftest --device cuda:1`"


def selftest(
    device: Annotated[
        str,
        typer.Option(metavar="NAME", help="auto, cpu, mps, xpu or cuda:1.", autocompletion=completion.devices),
    ] = "auto",
) -> int:
    """Test the tool on this device: are its times and precisions right? Takes minutes. Exit code 1 if they are not."""
    from gpubench.commands.selftest import run_selftest

    return run_selftest(device)


ACCEPT_EXAMPLES = """
Examples:

Keep the card that you have just rented? `gpubench accept --card-kind H100 --against others/`

In a script, which gets 0 (keep), 5 (return) or 3 (cannot say): `gpubench accept --card-kind "RTX 4090" || exit`
"""


def accept(
    card_kind: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="The card that was rented, as people call it. On another nothing is measured."
        ),
    ] = "",
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="CSV file, or folder of them, with rows of other cards of its kind; results by default. Repeatable.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(metavar="NAME", help="auto, cpu, mps, xpu or cuda:1.", autocompletion=completion.devices),
    ] = "auto",
    precision: Annotated[
        str,
        typer.Option(metavar="NAME", help="mixed, or a precision's name.", autocompletion=completion.precisions),
    ] = "mixed",
    short: Annotated[
        bool,
        typer.Option(
            "--short", metavar=FLAG, help="Smaller networks, one trial each: for CPUs, and to try the command."
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="Folder for the rows and the page, or the CSV file.")
    ] = Path("results"),
) -> int:
    """Keep or return a rented card: peak, bandwidth and two trainings against others of its kind.

    Exit code 0: keep; 5: return; 3: cannot say; 4: a trial failed, so no verdict. Writes one page to send
    to support. On a card it takes five minutes, by estimate.
    """
    from gpubench.commands.accept.accept import Wishes
    from gpubench.commands.accept.accept import accept as accept_card

    return accept_card(
        Wishes(device, precision, card_kind, tuple(against or ()), out, short),
    )
