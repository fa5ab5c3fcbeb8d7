"""Gathers what `gpubench doctor` says, at rest and under a few seconds of load.

The checks are in `hardware/state.py` (cards, host) and `hardware/advice.py` (torch, data, disk).
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gpubench.hardware import advice, apex, environment, host, state
from gpubench.hardware.advice import Card
from gpubench.hardware.environment import Device
from gpubench.hardware.readers import readers, state_of, untold
from gpubench.hardware.state import Check
from gpubench.hardware.telemetry import CardReader, Sampler
from gpubench.runner import process
from gpubench.runner.process import RunChild, run_child

REST_READINGS = 4
REST_SECONDS = 0.5

LOAD_SECONDS = 5.0
LAST_READINGS = 10
"""About two seconds at the end of the load, when the link and the clocks are up."""

Hint = Callable[[str], None]
"""Told what takes long, before it begins."""


def checks(data: Path | None, hint: Hint) -> Iterator[Check]:
    """Every check of this machine, each as soon as it is known."""
    at_rest = host.host(environment.cpu_count())  # before a child of ours loads the host
    hint("asking torch for its devices")
    yield from checkup(process.describe(), at_rest, advice.nvidia_cards(), hint)
    yield advice.of_apex(apex.installed())
    hint("reading the datasets that are here")
    yield from advice.surroundings(data)


def checkup(
    facts: environment.TorchFacts,
    at_rest: state.Host,
    driver_cards: Sequence[Card],
    hint: Hint = lambda text: None,
) -> Iterator[Check]:
    """Checks of torch, each device and the host.

    `facts` are torch's (see `process.describe`), `at_rest` is the host before torch was asked for them, and
    `driver_cards` are the cards that NVIDIA's driver knows.
    """
    yield from advice.of_torch(facts, driver_cards)
    devices = environment.devices_of(facts)
    accelerators = [device for device in devices if device.kind != "cpu"]
    cards = readers(accelerators)
    for device in accelerators:
        card = cards[device.device]
        if device.problem:
            continue  # `of_torch` has said so
        if card is None:
            yield untold(device)
        else:
            hint(f"looking at {device.device} at rest, then for {LOAD_SECONDS:.0f} s under load")
            yield from state.of_card(examine(device, card))
    if accelerators:
        yield from state.of_switches(environment.switches(os.environ))
    yield from state.of_host(at_rest, accelerator=bool(accelerators))


def examine(device: Device, card: CardReader, run_child: RunChild = run_child) -> state.CardCheck:
    """One card at rest, then under load."""
    at_rest = []
    for _ in range(REST_READINGS):
        time.sleep(REST_SECONDS)
        at_rest.append(card.read())
    # A visit of our own just before fades; another's work stays.
    idle = min(at_rest, key=lambda reading: reading.utilisation or 0.0)
    processes = card.processes()
    sampler = Sampler(card)
    outcome = run_child(
        {"task": "soak", "devices": [device.device], "seconds": LOAD_SECONDS},
        on_wake=sampler.tick,
        time_limit_seconds=LOAD_SECONDS + 120,
    )
    setup = state_of(device, card)
    return state.CardCheck(
        device.device,
        card.commands,
        setup,
        idle,
        processes,
        loaded=sampler.readings[-LAST_READINGS:],
        load_failure="" if outcome.end == "answered" else outcome.reason,
        strays=setup.numa_node is not None and host.may_leave_node(setup.numa_node),
    )
