"""From options to a session: all that is settled before the first trial and stays the same until the last."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from gpubench.hardware import environment as env
from gpubench.hardware.readers import readers, state_of
from gpubench.hardware.state import CardState
from gpubench.hardware.telemetry import CardReader
from gpubench.plan.plan import Options, check_names, check_processes, choose_devices, plan
from gpubench.plan.resolve import find_data, find_weights, out_file
from gpubench.suite.suite import LoadedSuite
from gpubench.suite.trial import Case


@dataclass(frozen=True)
class Session:
    """One run: what was asked, on which devices, with which data, and the cases that follow from it."""

    options: Options
    suites: Mapping[str, LoadedSuite]
    devices: Mapping[str, env.Device]
    cards: Mapping[str, CardReader | None]
    """By device, what reads its sensors; None where nothing does."""
    environment: env.Environment
    path: Path
    """The CSV file that rows go to."""
    cases: tuple[Case, ...] = ()
    folders: Mapping[str, Path | None] = field(default_factory=dict)
    """By suite, the root of its data; None where it reads none from disk."""
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    """What the rows carry in their column `session`."""

    def card_state(self, device: str) -> CardState:
        """How the card is set up right now."""
        return state_of(self.devices[device], self.cards[device])


def open_session(
    options: Options, loaded: Sequence[LoadedSuite], facts: Mapping[str, Any], console: Console
) -> Session:
    """Settle what `options` ask of these suites on a machine of which a child told `facts`; raises UserError.

    Downloads data that is missing, and says so on `console`.
    """
    there = env.devices_of(facts)
    devices = choose_devices(options.device, there)
    check_processes(options, devices, there, env.cpu_count())
    check_names(loaded, options, devices)
    environment = env.environment_of(facts)
    cards = readers(devices)
    folders, data = find_data(loaded, options, console)
    weights = find_weights(loaded, options, console)
    cases = plan(loaded, options, devices, data, weights, environment.cpu_count)
    return Session(
        options=options,
        suites={each.name: each for each in loaded},
        devices={device.device: device for device in devices},
        cards=cards,
        environment=environment,
        path=out_file(options, loaded, devices),
        cases=tuple(cases),
        folders=folders,
    )
