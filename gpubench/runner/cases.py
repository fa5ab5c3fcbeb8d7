"""From recipes, devices and precisions to the cases of a run. Pure: opens no device, reads no data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from gpubench.errors import UserError
from gpubench.hardware.environment import Device
from gpubench.runner.options import Options
from gpubench.runner.recipes import Recipe
from gpubench.suite.files import LoadedSuite
from gpubench.suite.precisions import PRECISIONS
from gpubench.suite.suite import ParamValue
from gpubench.suite.trial import Case


def cases_of(
    recipes: Sequence[Recipe],
    options: Options,
    devices: Sequence[Device],
    data: Mapping[str, str],
    weights: Mapping[tuple[str, str], str],
    cpu_count: int = 1,
) -> list[Case]:
    """Every case of the run, refusals included: each recipe on each device in each precision.

    `data` gives what each suite will read (dataset names, or `synthetic`), `weights` what each
    (suite, model) starts from. Under `max` each mixed case gets a twin at the batch found for fp32,
    so that precision and batch can be told apart.
    """
    cases = []
    for device, recipe in product(devices, recipes):
        loaded, model, suite = recipe.suite, recipe.model, recipe.suite.suite
        params = choose_threads(options, recipe.params, cpu_count)
        policy, size = choose_batch(loaded, options, device, model, params)
        precisions = choose_precisions(suite.precisions.get(model, options.precision), device)
        for processes, precision in product(options.processes, precisions):
            case = Case(
                suite=loaded.name,
                suite_version=suite.version,
                suite_digest=loaded.digest,
                suite_path=str(loaded.path),
                model=model,
                rung=suite.models.index(model) + 1 if "ladder" in suite.studies else None,
                studies=suite.studies,
                precision=precision,
                device=device.device,
                params=params,
                batch_policy=policy,
                batch_size=size,
                mode=options.mode,
                data=data[loaded.name],
                weights=weights.get((loaded.name, model), ""),
                processes=suite.ranks(params) if suite.ranks else processes * options.nodes,
                nodes=options.nodes,
                memory_limit_bytes=options.memory_limit_bytes,
                refusal=_refusal(loaded, device, precision, processes * options.nodes),
            )
            if suite.refuse and not case.refusal:
                case = replace(case, refusal=suite.refuse(case))
            cases.append(case)
            # A first look does without: nothing is decided by it.
            twin = policy == "max" and precision != "fp32" and "fp32" in precisions and options.mode != "quick"
            if twin and not case.refusal:
                cases.append(replace(case, batch_policy="max-fp32"))
    return cases


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


def _refusal(suite: LoadedSuite, device: Device, precision: str, processes: int) -> str:
    if processes > 1 and not suite.suite.processes:
        return f"the suite {suite.name} trains in one process"
    if not suite.suite.torch:
        return ""
    return f"torch cannot compute on it: {device.problem}" if device.problem else device.unsupported.get(precision, "")
