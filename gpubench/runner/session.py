"""Turns options into a session: devices, cases and the name of the CSV file. Prints the plan of --dry-run."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from gpubench.console import Screen
from gpubench.errors import UserError
from gpubench.hardware import environment as env
from gpubench.hardware.readers import readers, state_of, with_free_memory
from gpubench.hardware.state import CardState
from gpubench.hardware.telemetry import CardReader
from gpubench.printed import Say, say
from gpubench.rows.params import params_text
from gpubench.runner.cases import cases_of, choose_precisions, recipes_of
from gpubench.runner.data import with_data
from gpubench.runner.devices import check_processes, choose_devices, with_devices
from gpubench.runner.early import models_that_may_stop
from gpubench.runner.options import RANKED_MODELS, RANKED_SUITE, Options
from gpubench.suite.files import LoadedSuite, find
from gpubench.suite.trial import Case


@dataclass(frozen=True)
class Session:
    """One run: options, devices, data and cases."""

    options: Options
    suites: Mapping[str, LoadedSuite]
    devices: Mapping[str, env.Device]
    cards: Mapping[str, CardReader | None]
    """Reader of the sensors of each device, or None."""
    environment: env.Environment
    path: Path
    """CSV file of the rows."""
    cases: tuple[Case, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Data folder of each suite that reads data from disk, by the suite's name."""
    id: str = ""
    """Value of the column `session`, unless the rows of a case join an earlier session."""
    slowdown: float = 1.0
    """Factor by which other programs slowed down work on all CPUs, just before the first trial."""

    def card_state(self, device: str) -> CardState:
        """Return the current settings of a device's card."""
        return state_of(self.devices[device], self.cards[device])


@dataclass(frozen=True)
class RunSummary:
    """How a run ended, and where its rows are."""

    exit_code: int
    """0 if every trial is ok or unsupported, 130 if the run was stopped, 4 otherwise."""
    path: Path | None = None
    """The CSV file of its rows; None if this process did not open it (--dry-run, nodes other than node 0)."""
    sessions: frozenset[str] = frozenset()
    """Sessions of the written rows; empty if the run wrote none or was stopped."""


def open_session(options: Options, loaded: Sequence[LoadedSuite], facts: env.TorchFacts, say: Say) -> Session:
    """Return the session of these options, from a child's `facts` about torch; download data. Raises UserError."""
    all_devices = env.devices_of(facts)
    devices = choose_devices(options.device, all_devices)
    check_processes(options, devices, all_devices, env.cpu_count())
    for device in devices:
        choose_precisions(options.precision, device)  # refuses unknown names even if each model sets a precision
    cards = readers(devices)
    devices = [with_free_memory(device, cards[device.device]) for device in devices]
    path = _out_file(options, loaded, devices)
    environment = env.environment_of(facts)
    recipes = with_data(recipes_of(options, loaded), options, devices[0].kind, say)
    cases = cases_of(recipes, options, devices, environment.cpu_count)
    if options.rank and devices[0].kind not in {"cpu", "mps"}:
        loaded = [*loaded, find(RANKED_SUITE)]
        ranked = replace(options, models=RANKED_MODELS, precision="mixed", batch=None, processes=(1,), settings={})
        cases += cases_of(recipes_of(ranked, loaded[-1:]), ranked, devices[:1], environment.cpu_count)
    return Session(
        options=options, cards=cards, environment=environment, path=path,
        suites={suite.name: suite for suite in loaded},
        devices={device.device: device for device in devices},
        cases=tuple(with_devices(case, all_devices) for case in cases),
        folders={recipe.suite.name: recipe.folder for recipe in recipes if recipe.folder},
        id=options.session or secrets.token_hex(6),
    )  # fmt: skip


def _out_file(options: Options, loaded: Sequence[LoadedSuite], devices: Sequence[env.Device]) -> Path:
    """Return the CSV file of this run: --out if that is a CSV file, else a new file in the folder --out."""
    if options.out.suffix == ".csv" and not options.out.is_dir():
        return options.out
    if not options.out.is_dir() and (options.out.exists() or options.out.suffix):
        raise UserError(f"--out {options.out}: give a folder, or a file that ends in .csv")
    # `compare results/*.csv` should not include quick runs.
    folder = options.out / "quick" if options.mode == "quick" else options.out
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    card = "-".join("".join(c if c.isalnum() else " " for c in devices[0].card.lower()).split()[:5])
    suites = "-".join(suite.name for suite in loaded)
    # The last part differs for runs that begin in the same second, on two cards or two machines.
    return folder / f"{moment}-{suites}-{card}-{secrets.token_hex(2)}.csv"


def print_plan(cases: Sequence[Case], options: Options, path: Path, outlook: Sequence[str]) -> None:
    """Print the cases as a table, their parameters, and the first lines of a run."""
    up_to = "up to " * (options.stops_early and bool(models_that_may_stop(cases)))
    number = f"{up_to}{options.rounds} round{'s' * (options.rounds > 1)}"
    number += f" or more, until {100 * options.until:.3g}%" if options.until else ""
    table = Table(title=f"{len(cases)} case{'s' * (len(cases) > 1)} x {number}, {options.mode}")
    for heading in ("suite", "model", "precision", "batch", "device", "data", "note"):
        table.add_column(heading)
    for case in cases:
        batch, note = str(case.batch_size or case.batch_policy), "cannot run" * bool(case.refusal)
        table.add_row(case.suite, case.model, case.precision, batch, case.device, case.data, note)
    Screen().print(table)
    models: dict[tuple[str, str], dict[str, None]] = {}
    for case in cases:
        models.setdefault((case.suite, params_text(case.params)), {})[case.model] = None
    for (suite, params), names in models.items():
        say(f"{suite} {', '.join(names)}: {params}")
    say(*outlook, f"rows would go to {path}")
