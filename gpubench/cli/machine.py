"""What there is to measure and whether this machine can: `gpubench list`, `doctor`, `peak` and `selftest`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli import completion
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

Is my card healthy? `gpubench run --suite reference --batch 64`, then `gpubench doctor --against others.csv`
"""


def doctor(
    files: Annotated[
        list[Path] | None, typer.Argument(help="CSV files with rows of this card, for --against; results by default.")
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="Is this card healthy? CSV file, or folder, with rows of other hosts. Repeatable."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with the official dataset folders, or one of them.")
    ] = None,
) -> int:
    """What to fix before measuring: card, driver, torch build, Apex, host, data, disk. Exit code 4 if anything.

    With --against it compares this card with the same card in other hosts. Exit code 0: healthy; 1: a case is more
    than 7% below their median; 3: nothing to compare.
    """
    from gpubench.commands.doctor import checks
    from gpubench.commands.health import health
    from gpubench.runner.progress import HintLine

    if against:
        return health(files or (), against)
    if files:
        raise UserError("give rows of other hosts too: gpubench doctor MINE.csv --against DIR")
    marks = {"ok": "ok  ", "note": "note", "fix": "FIX "}
    code = 0
    with HintLine() as line:
        for check in checks(data, line.show):
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
