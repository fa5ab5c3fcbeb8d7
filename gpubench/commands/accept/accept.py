"""Runs the four checks, judges them, and writes the page; the exit code is the verdict."""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubench.errors import UserError
from gpubench.hardware.environment import Device, devices_of
from gpubench.hardware.readers import readers, state_of
from gpubench.plan.devices import choose_devices
from gpubench.plan.options import Options
from gpubench.printed import say
from gpubench.runner import process
from gpubench.show.page import write
from gpubench.show.terminal import WIDTH, table_lines, wrapped
from gpubench.studies.acceptance.alike import cases_without_result, measured_rows, references_of
from gpubench.studies.acceptance.checks import CANNOT_SAY, KEEP, RETURN, judge
from gpubench.studies.acceptance.kind import is_called
from gpubench.studies.acceptance.page import answer_of
from gpubench.studies.cards.placing import placed

BATCH, CPU_BATCH = "64", "8"
"""The same on every card, so that cards compare; an 8 GB card holds it."""
SHORT = {"image_size": "64", "layers": "2"}
"""Parameters of --short."""
REPEATS = 3
HOW_LONG = "about five minutes on a card, by estimate; a CPU may take longer"
CODES = {KEEP: 0, CANNOT_SAY: 3, RETURN: 5}
"""What scripts get. Nothing but KEEP is 0, and RETURN is not 1: with that Python ends when it crashes."""
NO_VERDICT = 4


@dataclass(frozen=True)
class Wishes:
    """What was asked of `gpubench accept`."""

    device: str = "auto"
    precision: str = "mixed"
    kind: str = ""
    """What people call the card that was rented."""
    against: tuple[Path, ...] = ()
    """Where references are; `results`, if it is there, where this is empty."""
    out: Path = Path("results")
    short: bool = False


def accept(wishes: Wishes) -> int:
    """Measure, judge, print and write the page; returns the exit code. Raises UserError."""
    from gpubench.runner.run import run

    check_against(wishes)
    device, *others = choose_devices(wishes.device, devices_of(process.describe()))
    if others:
        raise UserError(f"--device {wishes.device}: one card at a time")
    if other := another_card(device, wishes.kind):
        say(*wrapped(other))
        return CODES[CANNOT_SAY]
    say(f"measuring {device.card}: {HOW_LONG}", err=True)
    written: list[tuple[Path, Collection[str]]] = []

    def found(path: Path, sessions: Collection[str]) -> Sequence[str]:
        written.append((path, sessions))
        return ()

    try:
        code = run(_options(wishes, device), found=found)
    except (BrokenPipeError, SystemExit):  # whoever read has gone, which must not end as KEEP does
        return NO_VERDICT
    if not written and not code:
        raise UserError(f"--out {wishes.out}: all of its trials are done, so nothing was measured; name another file")
    return judged(*written[0], wishes, code=code) if written else code


def check_against(wishes: Wishes) -> None:
    """Raise UserError where a file or folder of --against is missing: known before anything is measured."""
    for path in wishes.against:
        if not path.exists():
            raise UserError(f"--against {path}: there is nothing of that name")


def another_card(device: Device, kind: str) -> str:
    """Why this device may not be the card that was rented; empty where it is, or nobody said."""
    if not kind:
        return ""
    is_slice = state_of(device, readers([device])[device.device]).mig == "on"
    card = f"{device.card} MIG" if is_slice and "MIG" not in device.card.split() else device.card
    if is_called(card, kind):
        return ""
    return (
        f"Cannot say whether to keep it: this is {card}, and --card-kind says {kind}. If these are two cards, this is"
        " not the one that was rented; if they are two names of one, use words of the first. Nothing was measured."
    )


def judged(path: Path, sessions: Collection[str], wishes: Wishes, *, code: int) -> int:
    """Judge the rows of these sessions in `path` and write the page beside it; returns the exit code.

    `code` is the run's own: not 0 where some trials have no result. Raises UserError.
    """
    against = wishes.against or tuple(filter(Path.exists, [Path("results")]))
    known, problems = measured_rows([path, *against])
    mine = known[known["session"].isin(sessions)].drop_duplicates("row_digest")
    if mine.empty:
        raise UserError(f"no trial of {path} has a result, so that nothing can be judged; its rows say why")
    references = references_of(mine, known)
    lost = cases_without_result(path, sessions, mine)
    judgement = judge(mine, references, lost or (["a trial"] if code else []))
    answer = answer_of(judgement, mine, references, placed(mine), path.read_bytes())
    section = answer.sections[0]
    page = write(answer, path.with_suffix(".html"))
    with contextlib.suppress(BrokenPipeError):
        say(*problems, err=True)
        say(*wrapped(answer.headline), "", *table_lines(section.tables[0], WIDTH))
        say(*(line for note in section.notes for line in ["", *wrapped(note)]))
        say("", f"for support: {page}")
    return CODES[RETURN] if judgement.verdict == RETURN else code or CODES[judgement.verdict]


def _options(wishes: Wishes, device: Device) -> Options:
    """The run: two cases and fresh peaks."""
    return Options(
        suites=("reference",),
        precision=wishes.precision,
        batch=CPU_BATCH if device.kind == "cpu" else BATCH,
        device=device.device,
        repeats=1 if wishes.short else REPEATS,
        out=wishes.out,
        settings=SHORT if wishes.short else {},
        peaks_anew=True,
        judged=True,
    )
