"""The classes that declare a suite (Suite, Param, Blueprint), the parameters of every suite, the names of studies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from gpubench.errors import UserError
from gpubench.suite.precisions import PRECISIONS

ParamValue = bool | int | float | str


@dataclass(frozen=True)
class Param:
    """A suite's parameter. Its type is the type of `default`; `choices`, where given, are the only values."""

    default: ParamValue
    help: str
    choices: tuple[ParamValue, ...] = ()
    least: float = 0
    """The smallest number allowed."""
    read: Callable[[str], str] | None = None
    """Turns the given text into the text that rows store, without spaces: it may read a file. Raises UserError."""

    def parse(self, name: str, text: str) -> ParamValue:
        """Return `text` as a value of this parameter; raises UserError that names the allowed values."""
        value: ParamValue = self.read(text) if self.read else text
        try:
            if isinstance(self.default, bool):
                value = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            elif isinstance(self.default, int | float):
                value = type(self.default)(text)
                if not self.least <= value < float("inf"):
                    raise ValueError(text)
        except (KeyError, ValueError, OverflowError):
            number = "a whole number" if isinstance(self.default, int) else "a number"
            kind = "true or false" if isinstance(self.default, bool) else f"{number}, {self.least:g} or more"
            raise UserError(f"--set {name}={text}: {name} is {kind}") from None
        if isinstance(value, str) and any(map(str.isspace, value)):
            raise UserError(f"--set {name}={text}: {name} must have no spaces, which separate parameters in a row")
        if self.choices and value not in self.choices:
            allowed = ", ".join(str(choice) for choice in self.choices)
            raise UserError(f"--set {name}={text}: {name} is one of {allowed}")
        return value


@dataclass(frozen=True)
class Imported:
    """A function that is imported when it is called."""

    module: str
    name: str

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return getattr(import_module(self.module), self.name)(*arguments)


def imported(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports `name` from `module` when it is called, so that listing suites needs no torch."""
    return Imported(module, name)


MEMORY_FORMAT = Param(
    "auto",
    "layout of images and weights; auto is the faster one in this precision on this device",
    choices=("auto", "channels_last", "contiguous"),
)
"""The parameter `memory_format`, which `gpubench.training.layout` reads."""
_SCALED = [name for name, precision in PRECISIONS.items() if precision.scaled]
_PURE = " and ".join(name for name, precision in PRECISIONS.items() if precision.pure)

# Every suite accepts these through --set. Rows record them. The defaults are the same for all precisions.
COMMON_PARAMS: Mapping[str, Param] = {
    "threads": Param(0, "CPU threads that torch computes with; 0: torch's default"),
    "cudnn_benchmark": Param(
        True, "let cuDNN try its algorithms and keep the fastest; false on ROCm, where it takes minutes"
    ),
    "reduced_reduction": Param(
        False, "allow 16-bit accumulation inside fp16 and bf16 matmuls (torch's default is true)"
    ),
    "huge_pages": Param(True, "huge pages for large tensors on a CPU (Linux): fewer page faults"),
    "loss_scale": Param(0, f"loss scale; 0: dynamic for {' and '.join(_SCALED)}, 1 for {_PURE}"),
}


STUDIES: Mapping[str, str] = {
    "ladder": "each model is the previous one with one change: compares each with the one before",
    "ablation": "each model is `plain` with one change: compares each with `plain`",
    "batch": "runs differ in the parameter `global_batch`: compares accuracy by batch size",
    "stages": "a run has stages; its table has the hours of each",
    "scaling": "the suite is meant to run in several processes",
    "placing": "others publish rates of these models: ranks a card among the published ones",
}
"""Names of the studies that a suite can be used for, and what each means."""


@dataclass(frozen=True)
class Blueprint:
    """A model's network and schedule, for `gpubench show` and `gpubench fits`; it is not trained."""

    network: object
    """A torch module as it is trained: frozen parameters have requires_grad=False."""
    inputs: tuple[object, ...]
    """Arguments of its forward. Only their shapes matter."""
    epochs: int
    schedule: Mapping[str, Callable[[float], float]]
    """By name (`learning rate`), the function from epoch (0 to `epochs`) to value that the training code uses."""
    samples: int = 2
    """Number of samples in these inputs, in the suite's unit."""
    note: str = ""
    """A remark on the schedule, in a sentence without a full stop."""
    batch_dimension: int = 0
    """The batch dimension of inputs and layer outputs: shapes are shown without it."""
    optimizers: Callable[[], Sequence[Any]] | None = None
    """Makes the optimizers of a network that returns its loss, for `gpubench fits`."""


@dataclass(frozen=True)
class Suite:
    """One benchmark: a function that trains, with its models, parameters and properties.

    `train(trial, clock)` builds model and data for `trial`, runs every epoch through `clock`, and
    returns its qualities by name (fractions, losses, perplexities), or None; `quality` names the main one.
    """

    train: Callable[..., Mapping[str, float] | None]
    models: tuple[str, ...]
    params: Mapping[str, Param]
    version: int
    """Raised when an edit can change a timing or a result."""
    default_models: tuple[str, ...] = ()
    """Models that run without --models; empty: all of them."""
    quality: str = ""
    better: Literal["higher", "lower"] = "higher"
    """Whether a higher or a lower quality is better: `lower` for a loss."""
    goal: float | str | None = None
    """The quality that a full run on real data must reach, or the name of the parameter with it (0: none). A run that
    misses it is `goal_missed`, unless the suite returns a `success_rate` of 1 (the goal was reached earlier)."""
    studies: tuple[str, ...] = ()
    """Names of STUDIES that its models can be used for; its rows contain them."""
    unit: str = "samples"
    batch: str = "max"
    """The default --batch: `max`, `fastest` or a number."""
    cpu_batch: int = 0
    """The default --batch on a CPU. 0: `batch` if that is a number, else 16."""
    recipe_batch: Callable[[str, Mapping[str, ParamValue], str], int] | None = None
    """Given model, params and precision, the recipe's batch size. It replaces `batch` and `cpu_batch` as the
    default on every device. 0: the recipe names none."""
    train_samples: int | Callable[[Mapping[str, ParamValue]], int] = 0
    """Samples in one epoch, as a number or from the params. `max` searches up to 1/20 of it (0: up to 2^20)."""
    most_elements: Callable[[str, Mapping[str, ParamValue]], int] | None = None
    """Given model and params, elements per sample in the largest tensor of a training step: `max` keeps that tensor
    under 2^31 elements, the limit of kernels with 32-bit indices."""
    samples_per_unit: int = 1
    """Samples in a step per unit of --batch: 1 for an image, 35 for a column of 35 tokens."""
    data: tuple[str, ...] = ()
    """Names of the datasets it reads (see `gpubench data list`)."""
    presets: Mapping[str, Mapping[ParamValue, Mapping[str, ParamValue]]] = field(default_factory=dict)
    """`{"recipe": {"article": {"epochs": 30}}}`: defaults that depend on another parameter's value or on `model`."""
    weights: Callable[[str, Mapping[str, ParamValue]], str] | None = None
    """Given model and params, the name of the pretrained weights it starts from, or an empty string."""
    check: Callable[[Mapping[str, ParamValue], Path, str], None] | None = None
    """Given params, the data's folder and the data's name in rows, raises UserError if a trial would fail on them.
    Called after the download of the data, before any training; not for synthetic data. Must not import torch."""
    suited: Callable[[Mapping[str, ParamValue], str, str], Mapping[str, tuple[str, str]]] | None = None
    """Given params, the kind of device and the data's name in rows: values for --set, by parameter, that suit this
    device or data better than the defaults, each with its reason. `--quick` uses them, unless the user set others."""
    extra: str = ""
    """The extra of pyproject.toml that installs `needs`."""
    needs: tuple[str, ...] = ()
    """Modules of that extra. Without them no case of the suite can run."""
    refuse: Callable[..., str] | None = None
    """Given a Case, why it cannot run (its row is `unsupported`), or an empty string. Must not import torch."""
    large_linears: bool | None = None
    """Whether its models have linear layers for float8 and int8-mixed; None: a trial finds out."""
    precisions: Mapping[str, str] = field(default_factory=dict)
    """By model, the value for --precision (also `mixed`) that belongs to its definition and overrides the user's."""
    ranks: Callable[[Mapping[str, ParamValue]], int] | None = None
    """Given the params, the number of training processes of a trial, where that is part of the recipe."""
    flops: Callable[[str, Mapping[str, ParamValue]], float] | None = None
    """Given model and params, FLOPs of forward and backward per sample, if torch cannot count them (nn.LSTM)."""
    blueprint: Callable[..., Blueprint] | None = None
    """Given a Trial, its network and schedule, for `gpubench show`. It may import torch."""
    projected_over_full: tuple[float, float] | None = None
    """Measured range of projected over measured seconds of a full run: the error of a projection."""
    fits: bool = False
    """Whether `gpubench fits` can compute the memory of a step. This needs a blueprint with `optimizers`, and a
    parameter `context` that is the length of a sequence."""
    processes: bool = False
    """Whether it trains in several processes: it shards its data and wraps its model (docs/adding-a-suite.md)."""
    torch: bool = True
    """False for a suite that does not use torch (a scripted one): its rows have no proof of precision."""

    def reaches(self, value: float, goal: float, rounding: float = 0.0) -> bool:
        """Return whether a quality is at least as good as the goal; `rounding` is the relative error of `value`."""
        return value >= goal * (1 - rounding) if self.better == "higher" else value <= goal * (1 + rounding)

    @property
    def missing(self) -> str:
        """The modules of `needs` that are missing, with the command that installs them; empty if all are installed."""
        names = [name for name in self.needs if find_spec(name) is None]
        return f"not installed: {', '.join(names)} (pip install -e '.[{self.extra}]')" if names else ""
