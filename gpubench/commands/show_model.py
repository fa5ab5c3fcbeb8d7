"""`gpubench show`: asks a child, which may import torch, for a model's network and schedule, and shows them."""

from collections.abc import Mapping
from pathlib import Path

from gpubench.errors import UserError
from gpubench.runner.process import run_child
from gpubench.show.network import Layer, NetworkSummary, lines
from gpubench.show.network_chart import save
from gpubench.suite import files
from gpubench.suite.files import LoadedSuite
from gpubench.suite.suite import ParamValue
from gpubench.suite.trial import Case, Trial, trial_to_json

TIME_LIMIT_SECONDS = 300.0


def shown(network: NetworkSummary, chart: Path | None, *, every: bool) -> list[str]:
    """Lines to print; draws the picture too, where one is wanted. Raises UserError where it cannot be."""
    if chart:
        save(network, chart)
    return [*lines(network, every=every), *(["", str(chart)] if chart else [])]


def network_of(suite: str, model: str, settings: Mapping[str, str], processes: int) -> NetworkSummary:
    """What there is to show; raises UserError where the suite does not say, or has no such model."""
    loaded = files.find(suite)
    models = loaded.suite.models
    model = model or (loaded.suite.default_models or models)[0]
    if model not in models:
        raise UserError(f"{model}: suite {loaded.name} has no such model; it has {', '.join(models)}")
    if loaded.suite.blueprint is None:
        raise UserError(f"suite {loaded.name} does not say what its networks are: {files.DOCS}, `blueprint`")
    trial = Trial(_case(loaded, model, loaded.resolve_params(settings, model), processes), index=0, seed=0)
    outcome = run_child({"task": "network", "trial": trial_to_json(trial)}, time_limit_seconds=TIME_LIMIT_SECONDS)
    answer = outcome.answer or {"reason": outcome.reason}
    if "network" not in answer:
        raise UserError(f"{loaded.name} {model} cannot be shown: {answer['reason']}")
    found = answer["network"]
    return NetworkSummary(
        title=f"{loaded.name} {model}",
        unit=loaded.suite.unit.removesuffix("s"),
        input=tuple(found["input"]),
        layers=tuple(Layer(**{**layer, "shape": tuple(layer["shape"])}) for layer in found["layers"]),
        schedule={name: tuple(map(tuple, points)) for name, points in found["schedule"].items()},
        **{name: found[name] for name in ("weights", "trained", "flops", "epochs", "note")},
    )


def _case(loaded: LoadedSuite, model: str, params: Mapping[str, ParamValue], processes: int) -> Case:
    """One that would train the model on a CPU, from random weights."""
    suite = loaded.suite
    return Case(
        suite=loaded.name,
        suite_version=suite.version,
        suite_digest=loaded.digest,
        suite_path=str(loaded.path),
        model=model,
        precision="fp32",
        device="cpu",
        params=params,
        batch_policy="fixed",
        batch_size=suite.recipe_batch(model, params) if suite.recipe_batch else suite.cpu_batch,
        mode="full",
        data="synthetic",
        weights="random" if suite.weights else "",
        processes=processes,
    )
