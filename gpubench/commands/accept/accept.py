"""Runs the four checks, judges them, and writes the page; the exit code is the verdict."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubench.errors import UserError
from gpubench.hardware.environment import devices_of
from gpubench.plan.devices import choose_devices
from gpubench.plan.options import Options
from gpubench.printed import say
from gpubench.runner import process
from gpubench.show.page import write
from gpubench.show.terminal import WIDTH, table_lines, wrapped
from gpubench.studies.acceptance.alike import measured_rows
from gpubench.studies.acceptance.checks import CANNOT_SAY, KEEP, RETURN, judge
from gpubench.studies.acceptance.page import answer_of
from gpubench.studies.cards.placing import placed

BATCH, CPU_BATCH = "64", "8"
"""The same on every card, so that cards compare; an 8 GB card holds it."""
SHORT = {"image_size": "64", "layers": "2"}
"""Parameters of --short."""
REPEATS = 3
CODES = {KEEP: 0, RETURN: 1, CANNOT_SAY: 3}
"""What scripts get, as from the gate: nothing but KEEP is 0."""
SOME_FAILED = 4


@dataclass(frozen=True)
class Wishes:
    """What was asked of `gpubench accept`."""

    device: str = "auto"
    precision: str = "mixed"
    kind: str = ""
    """A part of the name of the card that was rented."""
    against: tuple[Path, ...] = (Path("results"),)
    out: Path = Path("results")
    short: bool = False


def accept(wishes: Wishes) -> int:
    """Measure, judge, print and write the page; returns the exit code. Raises UserError."""
    from gpubench.runner.run import run

    written: list[tuple[Path, Collection[str]]] = []

    def found(path: Path, sessions: Collection[str]) -> Sequence[str]:
        written.append((path, sessions))
        return ()

    code = run(_options(wishes), found=found)
    return judged(*written[0], wishes, failed=bool(code)) if written else code


def judged(path: Path, sessions: Collection[str], wishes: Wishes, *, failed: bool) -> int:
    """Judge the rows of these sessions in `path` and write the page beside it; returns the exit code.

    `failed`: whether some trials have no result. Raises UserError.
    """
    known, problems = measured_rows([path, *(each for each in wishes.against if each.exists())])
    mine = known[known["session"].isin(sessions)].drop_duplicates("row_digest")
    if mine.empty:
        raise UserError(f"no trial of {path} has a result, so that nothing can be judged; its rows say why")
    judgement = judge(mine, known, wishes.kind)
    answer = answer_of(judgement, mine, placed(mine), path.read_bytes())
    section = answer.sections[0]
    say(*problems, err=True)
    say(*wrapped(answer.headline), "", *table_lines(section.tables[0], WIDTH))
    say(*(line for note in section.notes for line in ["", *wrapped(note)]))
    say("", f"for support: {write(answer, path.with_suffix('.html'))}")
    return SOME_FAILED if failed and judgement.verdict != RETURN else CODES[judgement.verdict]


def _options(wishes: Wishes) -> Options:
    """The run: two cases and fresh peaks."""
    device, *others = choose_devices(wishes.device, devices_of(process.describe()))
    if others:
        raise UserError(f"--device {wishes.device}: one card at a time")
    return Options(
        suites=("reference",),
        precision=wishes.precision,
        batch=CPU_BATCH if device.kind == "cpu" else BATCH,
        device=device.device,
        repeats=1 if wishes.short else REPEATS,
        out=wishes.out,
        settings=SHORT if wishes.short else {},
        peaks_anew=True,
    )
