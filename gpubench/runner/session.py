"""From options to a session: all that is settled before the first trial and stays the same until the last."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gpubench.console import Screen
from gpubench.errors import UserError
from gpubench.hardware import environment as env
from gpubench.hardware.readers import readers, state_of
from gpubench.hardware.state import CardState
from gpubench.hardware.telemetry import CardReader
from gpubench.runner.cases import cases_of, choose_precisions
from gpubench.runner.data import Data, find_data, find_weights
from gpubench.runner.devices import check_processes, choose_devices
from gpubench.runner.options import Options
from gpubench.runner.recipes import recipes_of
from gpubench.suite.files import LoadedSuite
from gpubench.suite.suite import params_text
from gpubench.suite.trial import Case

QUICK = "quick"
"""The folder in that of --out where first looks go."""


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
    data: Mapping[str, Data] = field(default_factory=dict)
    """What each suite reads, by its name."""
    id: str = ""
    """What the rows carry in their column `session`."""

    def card_state(self, device: str) -> CardState:
        """How the card is set up right now."""
        return state_of(self.devices[device], self.cards[device])


def open_session(options: Options, loaded: Sequence[LoadedSuite], facts: env.TorchFacts, console: Console) -> Session:
    """Settle what `options` ask of these suites on a machine of which a child told `facts`; raises UserError.

    Downloads data that is missing, and says so on `console`.
    """
    recipes = recipes_of(options, loaded)
    there = env.devices_of(facts)
    devices = choose_devices(options.device, there)
    check_processes(options, devices, there, env.cpu_count())
    for device in devices:
        choose_precisions(options.precision, device)  # a wrong name is a mistake even where each model has its own
    path = _out_file(options, loaded, devices)
    environment = env.environment_of(facts)
    data = find_data(recipes, options, console)
    weights = find_weights(recipes, options, console)
    names = {suite: each.name for suite, each in data.items()}
    cases = cases_of(recipes, options, devices, names, weights, environment.cpu_count)
    return Session(
        options=options,
        suites={each.name: each for each in loaded},
        devices={device.device: device for device in devices},
        cards=readers(devices),
        environment=environment,
        path=path,
        cases=tuple(cases),
        data=data,
        id=options.session or secrets.token_hex(6),
    )


def _out_file(options: Options, loaded: Sequence[LoadedSuite], devices: Sequence[env.Device]) -> Path:
    """The CSV of this run: --out itself where it names one, else a new file in that folder."""
    if options.out.suffix == ".csv":
        return options.out
    if not options.out.is_dir() and (options.out.exists() or options.out.suffix):
        raise UserError(f"--out {options.out}: give a folder, or a file that ends in .csv")
    # A first look is nothing that `compare results/*.csv` should take for a measurement.
    folder = options.out / QUICK if options.mode == "quick" else options.out
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    card = "-".join("".join(c if c.isalnum() else " " for c in devices[0].card.lower()).split()[:5])
    suites = "-".join(each.name for each in loaded)
    # The last word tells runs apart that begin in the same second, on two cards or in a folder of several machines.
    return folder / f"{moment}-{suites}-{card}-{secrets.token_hex(2)}.csv"


def print_plan(cases: Sequence[Case], options: Options, path: Path, outlook: Sequence[str]) -> None:
    """The cases as a table, their parameters, and what a run would say first."""
    number = f"{options.rounds} round{'s' * (options.rounds > 1)}"
    if options.until:
        number += f" or more, until {100 * options.until:.3g}%"
    table = Table(title=f"{len(cases)} case{'s' * (len(cases) > 1)} x {number}, {options.mode}")
    for heading in ("suite", "model", "precision", "batch", "device", "data", "note"):
        table.add_column(heading)
    for case in cases:
        batch = str(case.batch_size or case.batch_policy)
        model = f"{case.model} {case.tried}".strip()
        table.add_row(case.suite, model, case.precision, batch, case.device, case.data, case.refusal)
    console = Screen()
    console.print(table)
    models: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        named = models.setdefault((case.suite, params_text(case.params)), [])
        named += [case.model] * (case.model not in named)
    for (name, text), own in models.items():
        console.print(f"{name} {', '.join(own)}: {text}", markup=False)
    for line in [*outlook, f"rows would go to {path}"]:
        console.print(line, markup=False, soft_wrap=True)
