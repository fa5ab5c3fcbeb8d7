"""The doctor's visit: looks at host and cards at rest, then at each card under a few seconds of load."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpubench import conditions
from gpubench.doctor import Card, Finding, findings
from gpubench.measuring import environment, host
from gpubench.measuring.cards import readers, state_of
from gpubench.measuring.environment import Device
from gpubench.measuring.process import RunChild, run_child
from gpubench.measuring.telemetry import CardReader, Sampler

REST_READINGS = 4
REST_SECONDS = 0.5

LOAD_SECONDS = 5.0
LAST_READINGS = 10
"""About two seconds at the end of the load, when the link and the clocks are up."""


def checkup(facts: Mapping[str, Any], at_rest: conditions.Host, driver_cards: Sequence[Card]) -> list[Finding]:
    """Findings on torch, each device and the host.

    `facts` are torch's (see `process.describe`), `at_rest` is the host before torch was asked for them, and
    `driver_cards` are the cards that NVIDIA's driver knows.
    """
    found = findings(facts, driver_cards)
    devices = environment.devices_of(facts)
    accelerators = [device for device in devices if device.kind != "cpu"]
    cards = readers(accelerators)
    for device in accelerators:
        card = cards[device.device]
        if device.problem:
            continue  # which is a finding already
        if card is None:
            found.append(conditions.untold(device.device, device.kind))
        else:
            found += conditions.of_card(examine(device, card))
    if accelerators:
        found += conditions.of_switches(environment.switches(os.environ))
    return found + conditions.of_host(at_rest, accelerator=bool(accelerators))


def examine(device: Device, card: CardReader, run_child: RunChild = run_child) -> conditions.CardCheck:
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
    state = state_of(device, card)
    return conditions.CardCheck(
        device.device,
        card.commands,
        state,
        idle,
        processes,
        loaded=sampler.readings[-LAST_READINGS:],
        load_failure="" if outcome.end == "answered" else outcome.reason,
        strays=state.numa_node is not None and host.may_leave_node(state.numa_node),
    )
