"""The doctor's visit: looks at host and cards at rest, then at each card under a few seconds of load."""

import time

from gpubench import conditions
from gpubench.doctor import Finding, findings, nvidia_cards
from gpubench.measuring import environment, host, nvml
from gpubench.measuring.process import describe, run_child
from gpubench.measuring.telemetry import Sampler

REST_READINGS = 4
REST_SECONDS = 0.5

LOAD_SECONDS = 5.0
LAST_READINGS = 10
"""About two seconds at the end of the load, when the link and the clocks are up."""


def checkup() -> list[Finding]:
    """Findings on torch, each device and the host."""
    at_rest = host.host(environment.cpu_count())
    library = nvml.library()
    facts = describe()
    found = findings(facts, nvidia_cards())
    devices = environment.devices_of(facts)
    for device in devices:
        card = nvml.find(library, device.uuid) if library else None
        if card and not device.problem:
            found += conditions.of_card(_check(device.device, card))
    accelerator = any(device.kind != "cpu" for device in devices)
    return found + conditions.of_host(at_rest, accelerator=accelerator)


def _check(device: str, card: nvml.NvmlCard) -> conditions.CardCheck:
    at_rest = []
    for _ in range(REST_READINGS):
        time.sleep(REST_SECONDS)
        at_rest.append(card.read())
    # A visit of our own just before fades; another's work stays.
    idle = min(at_rest, key=lambda reading: reading.utilisation or 0.0)
    processes = card.processes()
    sampler = Sampler(card)
    run_child(
        {"task": "soak", "device": device, "seconds": LOAD_SECONDS},
        on_wake=sampler.tick,
        time_limit_seconds=LOAD_SECONDS + 120,
    )
    loaded = sampler.readings[-LAST_READINGS:]
    return conditions.CardCheck(device, card.identity, card.state(), idle, processes, loaded)
