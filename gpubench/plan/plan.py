"""From options to cases to interleaved trials. Pure: opens no device, reads no data."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice, product
from pathlib import Path
from typing import Literal, NoReturn

from gpubench.errors import UserError
from gpubench.hardware.environment import Device
from gpubench.suite.files import LoadedSuite
from gpubench.suite.precisions import PRECISIONS
from gpubench.suite.suite import ParamValue
from gpubench.suite.trial import Case, Trial

SAMPLED_REPEATS = 6
"""The least number of trials a side at which Mann-Whitney can decide after Holm (docs/verdicts.md)."""
SAMPLED_LIMIT_SECONDS = 1800.0
"""A sampled trial that takes longer hangs, or needs a --time-limit that says so."""


@dataclass(frozen=True)
class Options:
    """What the user asked of `gpubench run`, parsed but not yet resolved."""

    suites: tuple[str, ...] = ("resnet",)
    precision: str = "both"
    models: tuple[str, ...] = ()
    batch: str | None = None
    device: str = "auto"
    processes: tuple[int, ...] = (1,)
    """Processes on each machine; with several numbers each case runs with each."""
    nodes: int = 1
    rendezvous: str = ""
    repeats: int | None = None
    mode: Literal["sampled", "quick", "full"] = "sampled"
    out: Path = Path("results")
    data: Path | None = None
    weights: Path | None = None
    synthetic: bool = False
    memory_limit_bytes: int | None = None
    time_limit_seconds: float | None = None
    until: float | None = None
    """Add rounds until each case's interval is this share of its median to either side."""
    budget_seconds: float | None = None
    """Add no round to `until` that would end later than this."""
    seed: int = 42
    session: str = ""
    """Name that the rows carry as their session, for runs that take turns; a new one where it is empty."""
    settings: Mapping[str, str] = field(default_factory=dict)
    tensorboard: Path | None = None
    """Folder for TensorBoard events of suites that write them."""
    dry_run: bool = False
    soak: bool = True
    """Warm accelerators before the first trial."""
    peaks: bool = True
    """Measure the peaks that are not known yet."""

    def settings_for(self, suite: LoadedSuite, suites: Sequence[LoadedSuite]) -> dict[str, str]:
        """The --set values meant for `suite`: with several suites, those that it declares.

        A name that no suite declares stays, for `resolve_params` to refuse.
        """
        elsewhere = {name for other in suites if other is not suite for name in other.suite.params}
        return {
            name: value for name, value in self.settings.items() if name in suite.suite.params or name not in elsewhere
        }

    @property
    def rounds(self) -> int:
        """Trials per case; with `until`, the least."""
        if self.repeats is not None:
            return self.repeats
        return SAMPLED_REPEATS if self.mode == "sampled" or self.until else 1

    def limit_seconds(self, mode: str) -> float | None:
        """When a trial of this mode is ended; None for a whole run without --time-limit."""
        if self.time_limit_seconds is not None:
            return self.time_limit_seconds
        return None if mode == "full" else SAMPLED_LIMIT_SECONDS


def choose_devices(wish: str, devices: Sequence[Device]) -> list[Device]:
    """The devices that `--device` names; raises UserError listing those there are."""
    accelerators = [device for device in devices if device.kind != "cpu"]
    usable = [device for device in accelerators if not device.problem]
    if wish in {"auto", "all"}:
        if accelerators and not usable:  # never the CPU in their place without a word
            _refuse(wish, accelerators[0])
        # A card that torch cannot use is part of `all`: its rows say why they are empty.
        return (usable[:1] if wish == "auto" else accelerators) or list(devices)
    chosen = []
    for name in wish.split(","):
        full = f"{name}:0" if name in {"cuda", "xpu", "mps"} else name
        found = [device for device in devices if device.device == full]
        if not found:
            there = ", ".join(device.device for device in devices)
            raise UserError(f"--device {name}: not on this machine, which has {there}; `gpubench doctor` says more")
        if found[0].problem:
            _refuse(name, found[0])
        chosen += [device for device in found if device not in chosen]
    return chosen


def _refuse(wish: str, device: Device) -> NoReturn:
    raise UserError(
        f"--device {wish}: torch cannot compute on {device.device}, {device.card} ({device.problem});"
        " `gpubench doctor` says what to install, --device cpu measures the CPU"
    )


def choose_precisions(wish: str, device: Device) -> list[str]:
    """Concrete precision names in the order asked; `both`, `all` and `mixed` are resolved for `device`."""
    names: list[str] = []
    for name in wish.split(","):
        if name == "both":
            names += ["fp32", device.mixed]
        elif name == "mixed":
            names.append(device.mixed)
        elif name == "all":
            names += [known for known in PRECISIONS if known not in device.unsupported]
        elif name in PRECISIONS:
            names.append(name)
        else:
            raise UserError(
                f"--precision {name}: no such precision; there are {', '.join(PRECISIONS)}, and both, mixed, all"
            )
    return list(dict.fromkeys(names))


def choose_models(suite: LoadedSuite, wish: Sequence[str], suites: Sequence[LoadedSuite]) -> list[str]:
    """The suite's models among those wished for, or its usual ones; raises UserError for an unknown one."""
    known = dict.fromkeys(model for each in suites for model in each.suite.models)
    for model in wish:
        if model not in known:
            raise UserError(f"--models {model}: no such model; there are {', '.join(known)}")
    usual = wish or suite.suite.default_models or suite.suite.models
    return [model for model in suite.suite.models if model in usual]


def check_names(suites: Sequence[LoadedSuite], options: Options, devices: Sequence[Device]) -> None:
    """Raise UserError for a model or precision that does not exist, before anything is fetched."""
    for suite in suites:
        choose_models(suite, options.models, suites)
    for device in devices:
        choose_precisions(options.precision, device)


def choose_batch(
    suite: LoadedSuite, options: Options, device: Device, model: str, params: Mapping[str, ParamValue]
) -> tuple[str, int | None]:
    """(policy, size): the size is None where a search has yet to find it."""
    shared = device.shares_memory
    if options.memory_limit_bytes and device.kind not in {"cpu", "cuda"}:
        raise UserError(f"--memory-limit: torch cannot limit the memory of {device.device}; leave it out")
    if options.memory_limit_bytes and options.memory_limit_bytes > (device.memory_bytes or math.inf):
        own = (device.memory_bytes or 0) / 2**30
        raise UserError(f"--memory-limit: {device.device}, {device.card}, has {own:.2f} GiB; give no more than that")
    of_recipe = suite.suite.recipe_batch
    default = of_recipe(model, params) if of_recipe else suite.suite.cpu_batch if shared else suite.suite.batch
    wish = str(options.batch or default)
    if wish in {"max", "fastest"}:
        if wish == "max" and device.kind == "mps":
            raise UserError("--batch max: mps shares the host's memory, and torch cannot limit it; give a number")
        if wish == "max" and shared and not options.memory_limit_bytes:
            what = "a CPU" if device.kind == "cpu" else f"{device.card}, whose memory is the host's,"
            raise UserError(
                f"--batch max on {what} needs --memory-limit SIZE (2GiB, say), or it would fill the host's memory"
            )
        return wish, None
    if not wish.isdecimal() or int(wish) == 0:
        raise UserError(f"--batch {wish}: give max, fastest or a number above 0")
    samples = suite.samples(params)
    if samples and int(wish) > samples:
        raise UserError(f"--batch {wish}: an epoch of {suite.name} has {samples} {suite.suite.unit} here")
    return "fixed", int(wish)


def choose_threads(options: Options, params: Mapping[str, ParamValue], cpu_count: int) -> dict[str, ParamValue]:
    """The parameters, in which processes that share a machine have an equal part of its CPUs.

    With several numbers of processes the part is that of the largest, for each: otherwise one process on all
    CPUs would be compared with many on one each.
    """
    most = max(options.processes)
    if (most == 1 and options.nodes == 1) or params["threads"]:
        return dict(params)
    return {**params, "threads": max(1, cpu_count // most)}


def check_processes(
    options: Options, chosen: Sequence[Device], devices: Sequence[Device], cpu_count: int | None = None
) -> None:
    """Raise UserError where a machine lacks the devices or CPUs, or --nodes and --rendezvous do not go together."""
    if options.nodes > 1 and not options.rendezvous:
        raise UserError(f"--nodes {options.nodes} needs --rendezvous HOST:PORT, the same on every machine")
    if options.rendezvous and options.nodes == 1:
        raise UserError("--rendezvous needs --nodes N, the number of machines")
    most = max(options.processes)
    on_cards = any(device.kind != "cpu" for device in chosen)
    if on_cards and cpu_count is not None and cpu_count < most:
        raise UserError(
            f"--processes {most}: this machine gives {cpu_count} CPU{'s' * (cpu_count > 1)}, and each needs one of its"
            " own; give the container or job more (--slurm exclusive=user, or cpus_per_task=N)"
        )
    for device in chosen:
        first = [each.device for each in devices if each.kind == device.kind].index(device.device)
        there = len([each for each in devices if each.kind == device.kind and not each.problem]) - first
        if device.kind != "cpu" and most > there:
            together = f"--processes {most}: one for each device, and from {device.device} on this machine has {there}"
            if len(chosen) > 1:
                raise UserError(
                    f"{together}; with --device {chosen[0].device} alone a group takes that one and those after it,"
                    " without --processes each of several devices is measured in turn"
                )
            raise UserError(f"{together}; give fewer, or another --device to begin with")


def plan(
    suites: Sequence[LoadedSuite],
    options: Options,
    devices: Sequence[Device],
    data: Mapping[str, str],
    weights: Mapping[tuple[str, str], str],
    cpu_count: int = 1,
) -> list[Case]:
    """Every case of the run, refusals included.

    `data` gives what each suite will read (dataset names, or `synthetic`), `weights` what each
    (suite, model) starts from. Under `max` each mixed case gets a twin at the batch found for fp32,
    so that precision and batch can be told apart.
    """
    cases = []
    for suite in suites:
        settings = options.settings_for(suite, suites)
        suite.resolve_params(settings)  # a wrong name is a mistake even where no model is left
        for device, model in product(devices, choose_models(suite, options.models, suites)):
            params = choose_threads(options, suite.resolve_params(settings, model), cpu_count)
            policy, size = choose_batch(suite, options, device, model, params)
            precisions = choose_precisions(suite.suite.precisions.get(model, options.precision), device)
            for processes, precision in product(options.processes, precisions):
                case = Case(
                    suite=suite.name,
                    suite_version=suite.suite.version,
                    suite_digest=suite.digest,
                    suite_path=str(suite.path),
                    model=model,
                    rung=suite.suite.models.index(model) + 1 if "ladder" in suite.suite.studies else None,
                    studies=suite.suite.studies,
                    precision=precision,
                    device=device.device,
                    params=params,
                    batch_policy=policy,
                    batch_size=size,
                    mode=options.mode,
                    data=data[suite.name],
                    weights=weights.get((suite.name, model), ""),
                    processes=processes * options.nodes,
                    nodes=options.nodes,
                    own_processes=suite.suite.ranks(params) if suite.suite.ranks else 1,
                    memory_limit_bytes=options.memory_limit_bytes,
                    refusal=_refusal(suite, device, precision, processes * options.nodes),
                )
                if suite.suite.refuse and not case.refusal:
                    case = replace(case, refusal=suite.suite.refuse(case))
                cases.append(case)
                # A first look does without: nothing is decided by it.
                twin = policy == "max" and precision != "fp32" and "fp32" in precisions and options.mode != "quick"
                if twin and not case.refusal:
                    cases.append(replace(case, batch_policy="max-fp32"))
    if not cases:
        raise UserError("nothing to run: none of these suites has the models asked for")
    return cases


def _refusal(suite: LoadedSuite, device: Device, precision: str, processes: int) -> str:
    if processes > 1 and not suite.suite.processes:
        return f"the suite {suite.name} trains in one process"
    if not suite.suite.torch:
        return ""
    return f"torch cannot compute on it: {device.problem}" if device.problem else device.unsupported.get(precision, "")


def rounds(cases: Sequence[Case], seed: int) -> Iterator[list[Trial]]:
    """Round after round without end: every case once, in an order of its own, so that drift hits all cases alike.

    Trials of one round share a seed: they see the same data order and differ only in what is compared.
    """
    dice = random.Random(seed)
    for index in count():
        this_round = [Trial(case, index, seed + index) for case in cases if not case.refusal]
        dice.shuffle(this_round)
        yield this_round


def schedule(cases: Sequence[Case], number: int, seed: int) -> list[Trial]:
    """The first `number` rounds, one after the other. Refused cases come once, first."""
    trials = [Trial(case, 0, seed) for case in cases if case.refusal]
    for this_round in islice(rounds(cases, seed), number):
        trials += this_round
    return trials
