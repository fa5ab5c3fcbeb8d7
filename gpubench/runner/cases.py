"""Turns suites, models, devices and precisions into cases with batch policy, memory limit, threads. Reads no data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from gpubench.errors import UserError, names_there
from gpubench.hardware.environment import Device
from gpubench.runner.options import Options
from gpubench.suite.files import LoadedSuite
from gpubench.suite.precisions import LINEAR_ONLY, NO_LARGE_LINEAR, PRECISIONS, UNPROVED
from gpubench.suite.suite import ParamValue
from gpubench.suite.trial import Case

CPU_BATCH = 16
"""Batch on CPU and mps if the suite has no `cpu_batch` and asks for a search, which would fill the host's memory."""


@dataclass(frozen=True)
class ModelRecipe:
    """One model of a suite with its parameters; `with_data` of data.py adds the rest."""

    suite: LoadedSuite
    model: str
    params: Mapping[str, ParamValue]
    data: str = ""
    """Dataset names, or `synthetic`; empty if the suite reads no data."""
    folder: Path | None = None
    """Folder of the data; None if nothing is read from disk."""
    weights: str = ""
    """Name of the initial weights, `random` if they are missing; empty if the suite names none."""


def recipes_of(options: Options, suites: Sequence[LoadedSuite]) -> list[ModelRecipe]:
    """Return the chosen models, in the order of the suites; raises UserError for an unknown name or value."""
    batch, recipes = options.batch or "max", []
    if batch not in {"max", "fastest"} and not (batch.isdecimal() and int(batch)):
        raise UserError(f"--batch {batch}: give max, fastest or a number above 0")
    for suite in suites:
        settings = settings_for(suite, options.settings, suites)
        suite.resolve_params(settings)  # an unknown name is an error even if no model is chosen
        for model in choose_models(suite, options.models, suites):
            recipes.append(ModelRecipe(suite, model, suite.resolve_params(settings, model)))
    if not recipes:
        raise UserError("nothing to run: none of these suites has these models")
    return recipes


def choose_models(suite: LoadedSuite, names: Sequence[str], suites: Sequence[LoadedSuite]) -> list[str]:
    """Return the suite's models with these names, or its default models; raises UserError if one is in no suite."""
    models = dict.fromkeys(model for loaded in suites for model in loaded.suite.models)
    for name in names:
        if name not in models:
            raise UserError(f"--models {name}: no such model; {names_there(name, models)}")
    chosen = names or suite.suite.default_models or suite.suite.models
    return [model for model in suite.suite.models if model in chosen]


def settings_for(suite: LoadedSuite, settings: Mapping[str, str], suites: Sequence[LoadedSuite]) -> dict[str, str]:
    """Return the --set values for `suite`: with several suites, those that it declares.

    A name that no suite declares is kept: `resolve_params` accepts COMMON_PARAMS, which every suite has, and no other.
    """
    elsewhere = {name for other in suites if other is not suite for name in other.suite.params}
    return {name: value for name, value in settings.items() if name in suite.suite.params or name not in elsewhere}


def default_limit(device: Device) -> int | None:
    """Return the memory limit of a search in bytes, None except on integrated cards. UserError if less is free."""
    limit, free = device.default_limit_bytes, device.available_bytes
    if limit and free and free < limit:
        sizes = f"{free / 2**30:.0f} GiB are free and a search needs {limit / 2**30:.0f} GiB"
        raise UserError(f"{device.device} shares the host's memory: {sizes}; close programs, or give --memory-limit")
    return limit


def cases_of(
    recipes: Sequence[ModelRecipe], options: Options, devices: Sequence[Device], cpu_count: int = 1
) -> list[Case]:
    """Return all cases, also those that cannot run: each recipe for each device, precision and number of processes.

    With batch `max` and fp32 in --precision, cases of other precisions get a twin at fp32's batch (`max-fp32`), to
    separate the effects of precision and batch. Twins come after the case that sets their batch. Quick runs have none.
    """
    cases = []
    for device, recipe in product(devices, recipes):
        loaded, model, suite = recipe.suite, recipe.model, recipe.suite.suite
        params = choose_threads(options, recipe.params, cpu_count)
        if device.rocm and "cudnn_benchmark" not in options.settings:
            # With cudnn_benchmark MIOpen searches for minutes at every new shape (pytorch/pytorch#145294, #179795).
            params = {**params, "cudnn_benchmark": False}
        precisions = choose_precisions(suite.precisions.get(model, options.precision), device)
        cases_of_model = []
        for processes, precision in product(options.processes, precisions):
            case = Case(
                suite=loaded.name, suite_version=suite.version, suite_digest=loaded.digest,
                suite_path=str(loaded.path), model=model,
                rung=suite.models.index(model) + 1 if "ladder" in suite.studies else None,
                studies=suite.studies, precision=precision, device=device.device, params=params,
                batch_policy="fixed", batch_size=None, mode=options.mode, data=recipe.data,
                weights=recipe.weights, processes=processes * options.nodes, nodes=options.nodes,
                memory_limit_bytes=options.memory_limit_bytes,
                refusal=_refusal(loaded, device, precision, processes * options.nodes),
            )  # fmt: skip
            cases_of_model.append(_with_suite_checks(case, recipe, options, device))
        cases += cases_of_model
        if "fp32" in precisions and options.mode != "quick":  # a quick run gives no verdict
            cases += [
                replace(case, batch_policy="max-fp32")
                for case in cases_of_model
                if case.batch_policy == "max" and case.precision != "fp32" and not case.refusal
            ]
    return cases


def choose_precisions(option: str, device: Device) -> list[str]:
    """Return the precisions that `--precision` names; `both`, `mixed`, `all` depend on the device. Raises UserError."""
    names: list[str] = []
    for name in option.split(","):
        if name == "both":
            names += ["fp32", device.mixed]
        elif name == "mixed":
            names.append(device.mixed)
        elif name == "all":
            names += device.precisions
        elif name in PRECISIONS or name in UNPROVED:
            names.append(name)
        else:
            known = [*PRECISIONS, *UNPROVED, "both", "mixed", "all"]
            wish = {"half": "mixed", "amp": "mixed"}.get(name, name)
            raise UserError(f"--precision {name}: no such precision; {names_there(wish, known)}")
    return list(dict.fromkeys(names))


def choose_batch(suite: LoadedSuite, options: Options, device: Device, case: Case) -> tuple[str, int | None]:
    """Return the batch policy and size; the size is None if a search has to find it. Raises UserError."""
    shared = device.shares_memory and not device.default_limit_bytes
    if options.memory_limit_bytes and device.kind not in {"cpu", "cuda"}:
        raise UserError(f"--memory-limit: torch cannot limit the memory of {device.device}; leave it out")
    if options.memory_limit_bytes and options.memory_limit_bytes > (device.memory_bytes or math.inf):
        size = (device.memory_bytes or 0) / 2**30
        raise UserError(f"--memory-limit: {device.device}, {device.card}, has only {size:.2f} GiB; give less")
    of_recipe, usual = suite.suite.recipe_batch, suite.suite.batch
    recipe = of_recipe(case.model, case.params, case.precision) if of_recipe else 0
    if shared:
        usual = str(suite.suite.cpu_batch or (CPU_BATCH if usual in {"max", "fastest"} else usual))
    batch = str(options.batch or recipe or usual)
    if batch in {"max", "fastest"}:
        if batch == "max" and device.kind == "mps":
            raise UserError("--batch max: mps shares the host's memory, and torch cannot limit it; give a number")
        if batch == "max" and shared and not options.memory_limit_bytes:
            what = "a CPU" if device.kind == "cpu" else device.card
            raise UserError(f"--batch max on {what} would fill the host's memory; give --memory-limit, such as 2GiB")
        return batch, None
    samples = suite.samples(case.params)
    if samples and int(batch) * case.processes > samples:
        many = f" for {case.processes} processes" * (case.processes > 1)
        raise UserError(f"--batch {batch}: an epoch of {suite.name} has only {samples} {suite.suite.unit}{many}")
    return "fixed", int(batch)


def choose_threads(options: Options, params: Mapping[str, ParamValue], cpu_count: int) -> dict[str, ParamValue]:
    """Return the parameters with `threads` such that processes on one machine share its CPUs equally.

    With several numbers of processes, the largest decides for all. Otherwise one process on all CPUs would be compared
    with many processes on one CPU each.
    """
    most = max(options.processes)
    if (most == 1 and options.nodes == 1) or params["threads"]:
        return dict(params)
    return {**params, "threads": max(1, cpu_count // most)}


def _with_suite_checks(case: Case, recipe: ModelRecipe, options: Options, device: Device) -> Case:
    """Return the case with its batch and processes; refused if the suite cannot run it or raises. Raises UserError."""
    suite = recipe.suite.suite
    try:
        policy, size = choose_batch(recipe.suite, options, device, case)
        limit = case.memory_limit_bytes or (default_limit(device) if policy in {"max", "fastest"} else None)
        case = replace(case, batch_policy=policy, batch_size=size, memory_limit_bytes=limit)
        if suite.check and recipe.folder:
            suite.check(case.params, recipe.folder, recipe.data)
        case = replace(case, processes=suite.ranks(case.params)) if suite.ranks else case
        return replace(case, refusal=case.refusal or suite.missing or (suite.refuse(case) if suite.refuse else ""))
    except UserError:
        raise
    except Exception as error:
        return case if case.refusal else failed_by(error, case)


def failed_by(error: Exception, case: Case) -> Case:
    """Return the case as one that cannot run because a function of its suite raised `error`."""
    reason = f"a function of the suite {case.suite} raised {type(error).__name__}: {error}"
    return replace(case, refusal=reason, refusal_status="failed")


def _refusal(suite: LoadedSuite, device: Device, precision: str, processes: int) -> str:
    """Return why the case cannot run, or an empty text."""
    if processes > 1 and not suite.suite.processes:
        return f"the suite {suite.name} trains in one process"
    if not suite.suite.torch and precision not in UNPROVED:
        return ""
    if precision in LINEAR_ONLY and suite.suite.large_linears is False:
        return NO_LARGE_LINEAR
    return f"torch cannot compute on it: {device.problem}" if device.problem else device.unsupported.get(precision, "")
