"""`gpubench doctor`: checks of this machine, idle and under a few seconds of load.

The checks are in `hardware/advice.py`; `health.py` compares the card with others of its model.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.cli.options import DataFolder, examples
from gpubench.errors import UserError
from gpubench.printed import say

if TYPE_CHECKING:
    from gpubench.hardware.advice import Card, CardCheck, Check
    from gpubench.hardware.environment import Device, TorchFacts
    from gpubench.hardware.state import Host
    from gpubench.hardware.telemetry import CardReader
    from gpubench.runner.process import RunChild

EXAMPLES = examples(
    "What to fix before measuring: `gpubench doctor`",
    "Is my card healthy? `gpubench run --suite reference --batch 64`, then `gpubench doctor --against others.csv`",
)
IDLE_READINGS = 4
IDLE_SECONDS = 0.5
"""Time between two readings."""
LOAD_SECONDS = 5.0
LAST_READINGS = 10
"""Number of readings that count: the last two seconds of the load, with the link and the clocks at full speed."""


def doctor(
    files: Annotated[
        list[Path] | None, typer.Argument(help="CSV files with rows of this card, for --against; default results.")
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="Rows of other cards: is this one healthy? Repeatable.")
    ] = None,
    data: DataFolder = None,
) -> int:
    """Check what to fix before measuring: card, driver, torch build, host, data, disk. Exit code 4: not ready.

    With --against it compares this card with others of its model. Exit code 0: healthy; 1: a case is over 7% below the
    median; 3: nothing to compare.
    """
    from gpubench.cli.health import health

    if against:
        return health(files or (), against)
    if files:
        raise UserError("give rows of other cards too: gpubench doctor MINE.csv --against DIR")
    marks = {"ok": "ok  ", "note": "note", "fix": "FIX "}
    code = 0
    for check in checks(data):
        say(f"{marks[check.level]}  {check.text}", *[f"        {check.advice}"] * bool(check.advice))
        code = 4 if check.level == "fix" else code
    return code


def checks(data: Path | None) -> "Iterator[Check]":
    """Yield every check of this machine as soon as its result is known."""
    from gpubench.hardware import advice, environment, host
    from gpubench.runner.process import describe

    idle = host.host(environment.cpu_count())  # before a child process loads the host
    with waiting("asking torch for its devices"):
        facts = describe()
    yield from device_checks(facts, idle, advice.nvidia_cards())
    with waiting("reading the datasets on this machine"):
        data_and_disk = list(advice.of_data_and_disk(data))
    yield from data_and_disk


def waiting(text: str) -> AbstractContextManager[object]:
    """Return a context that shows what a slow step does, in the terminal's last line."""
    from gpubench.console import Screen

    return Screen(stderr=True).status(text)


def device_checks(facts: "TorchFacts", idle: "Host", driver_cards: "Sequence[Card]") -> "Iterator[Check]":
    """Yield checks of torch, each device and the host.

    `facts` are those of torch (see `process.describe`), `idle` is the host before torch was started, and
    `driver_cards` are the cards that NVIDIA's driver lists.
    """
    from gpubench.hardware import advice, environment
    from gpubench.hardware.readers import readers, unread_sensors
    from gpubench.runner.process import run_child

    yield from advice.of_torch(facts, driver_cards)
    accelerators = [device for device in environment.devices_of(facts) if device.kind != "cpu"]
    cards = readers(accelerators)
    for device in accelerators:
        card = cards[device.device]
        if device.problem:
            continue  # `of_torch` has reported it
        if card is None:
            yield unread_sensors(device)
        else:
            with waiting(f"reading {device.device} idle, then {LOAD_SECONDS:.0f} s under load"):
                card_check = examine(device, card, run_child)
            yield from advice.of_card(card_check)
    if accelerators:
        yield from advice.of_switches(os.environ)
    yield from advice.of_host(idle, accelerator=bool(accelerators))


def examine(device: "Device", card: "CardReader", run_child: "RunChild") -> "CardCheck":
    """Return the readings of one card, idle and then under load."""
    from gpubench.hardware import advice, host
    from gpubench.hardware.readers import state_of
    from gpubench.hardware.telemetry import Sampler

    readings = []
    for _ in range(IDLE_READINGS):
        time.sleep(IDLE_SECONDS)
        readings.append(card.read())
    # The lowest reading: by then our own earlier load has ended, but the load of other programs has not.
    idle = min(readings, key=lambda reading: reading.utilisation or 0.0)
    processes = card.processes()
    sampler = Sampler(card)
    outcome = run_child(
        {"task": "soak", "devices": [device.device], "seconds": LOAD_SECONDS},
        on_wake=sampler.tick,
        time_limit_seconds=LOAD_SECONDS + 120,
    )
    setup = state_of(device, card)
    return advice.CardCheck(
        device.device, card.commands, setup, idle, processes,
        loaded=sampler.readings[-LAST_READINGS:],
        load_failure="" if outcome.end == "answered" else outcome.reason,
        integrated=device.integrated,
        leaves_node=setup.numa_node is not None and host.may_leave_node(setup.numa_node),
    )  # fmt: skip
