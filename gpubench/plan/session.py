"""From options to a session: all that is settled before the first trial and stays the same until the last."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gpubench.data import datasets
from gpubench.errors import UserError
from gpubench.hardware import environment as env
from gpubench.hardware.readers import readers, state_of
from gpubench.hardware.state import CardState
from gpubench.hardware.telemetry import CardReader
from gpubench.plan.plan import Options, check_names, check_processes, choose_devices, choose_models, plan
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
    folders: Mapping[str, Path | None] = field(default_factory=dict)
    """By suite, the root of its data; None where it reads none from disk."""
    id: str = ""
    """What the rows carry in their column `session`."""

    def card_state(self, device: str) -> CardState:
        """How the card is set up right now."""
        return state_of(self.devices[device], self.cards[device])


def open_session(options: Options, loaded: Sequence[LoadedSuite], facts: env.TorchFacts, console: Console) -> Session:
    """Settle what `options` ask of these suites on a machine of which a child told `facts`; raises UserError.

    Downloads data that is missing, and says so on `console`.
    """
    there = env.devices_of(facts)
    devices = choose_devices(options.device, there)
    check_processes(options, devices, there, env.cpu_count())
    check_names(loaded, options, devices)
    path = _out_file(options, loaded, devices)
    environment = env.environment_of(facts)
    cards = readers(devices)
    folders, data = _find_data(loaded, options, console)
    weights = _find_weights(loaded, options, console)
    cases = plan(loaded, options, devices, data, weights, environment.cpu_count)
    return Session(
        options=options,
        suites={each.name: each for each in loaded},
        devices={device.device: device for device in devices},
        cards=cards,
        environment=environment,
        path=path,
        cases=tuple(cases),
        folders=folders,
        id=options.session or secrets.token_hex(6),
    )


def _find_data(
    loaded: Sequence[LoadedSuite], options: Options, console: Console
) -> tuple[dict[str, Path | None], dict[str, str]]:
    """Per suite the root of its data and the name its rows carry; downloads what is missing."""
    folders: dict[str, Path | None] = {}
    names: dict[str, str] = {}
    for each in loaded:
        wanted = each.suite.data
        folders[each.name], names[each.name] = None, "+".join(wanted)
        if not wanted:
            continue
        if options.synthetic:
            names[each.name] = "synthetic"
            continue
        folder = datasets.locate(wanted, options.data)
        if folder is None and options.mode == "quick":
            names[each.name] = "synthetic"
            fetch = f"`gpubench data fetch {' '.join(wanted)}` gets the real one"
            ways = "--data DIR reads your own" if set(wanted) & set(datasets.TREES) else fetch
            console.print(
                f"no {' or '.join(wanted)} on this machine: this quick run makes synthetic data,"
                f" and its rows say so ({ways})",
                markup=False,
            )
        elif folder is None:
            for dataset in wanted:
                console.print(_missing(dataset), markup=False, soft_wrap=True)
                folder = None if options.dry_run else datasets.fetch(dataset)
        folders[each.name] = folder
        if folder is not None:
            found = [datasets.row_name(dataset, folder) for dataset in wanted]
            names[each.name] = "+".join(found)
            for dataset, name in zip(wanted, found, strict=True):
                if name != dataset:
                    note = f"{folder}: not the official {dataset}, so its rows say data={name}"
                    console.print(note, markup=False, soft_wrap=True)
            if each.suite.check:
                for model in choose_models(each, options.models, loaded):
                    settings = options.settings_for(each, loaded)
                    each.suite.check(each.resolve_params(settings, model), folder, names[each.name])
    return folders, names


def _missing(dataset: str) -> str:
    """That a dataset is not here, what a run does about it, and what else can be done."""
    if dataset in datasets.TREES:
        return f"{dataset} is not on this machine; --data DIR reads {datasets.TREES[dataset]}; --synthetic needs none"
    about = datasets.DATASETS[dataset].about.partition(" (")[0]
    return (
        f"{dataset} is not on this machine; a run downloads it first ({about}),"
        f" as `gpubench data fetch {dataset}` does; --data DIR reads files that you have, --synthetic needs none"
    )


def _find_weights(loaded: Sequence[LoadedSuite], options: Options, console: Console) -> dict[tuple[str, str], str]:
    """Per (suite, model) the pretrained weights it starts from, `random` where they cannot be had."""
    found: dict[tuple[str, str], str] = {}
    for each in loaded:
        name_of = each.suite.weights
        settings = options.settings_for(each, loaded)
        for model in choose_models(each, options.models, loaded):
            name = name_of(model, each.resolve_params(settings, model)) if name_of else ""
            if not name:
                continue
            path = datasets.locate_weights(name, options.weights)
            if path is None and options.mode != "quick" and not options.synthetic and not options.dry_run:
                try:
                    path = datasets.fetch(name)
                except UserError as error:
                    console.print(str(error), markup=False)
            if path is None and not options.dry_run:
                console.print(
                    f"{model}: no pretrained weights here, so it starts from random ones;"
                    " its rows say weights=random and carry no accuracy (--weights DIR gives them)",
                    markup=False,
                )
            found[each.name, model] = name if path or options.dry_run else "random"
    return found


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
    return folder / f"{moment}-{'-'.join(s.name for s in loaded)}-{card}.csv"


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
        table.add_row(case.suite, case.model, case.precision, batch, case.device, case.data, case.refusal)
    console = Console()
    console.print(table)
    models: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        named = models.setdefault((case.suite, params_text(case.params)), [])
        named += [case.model] * (case.model not in named)
    for (name, text), own in models.items():
        console.print(f"{name} {', '.join(own)}: {text}", markup=False)
    for line in [*outlook, f"rows would go to {path}"]:
        console.print(line, markup=False, soft_wrap=True)
