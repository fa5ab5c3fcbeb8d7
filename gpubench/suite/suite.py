"""What a suite is: the function that trains, its models and parameters, and what it declares of itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
    """Makes of a text the one that rows keep, without spaces: of a file's name its content, say. Raises UserError."""

    def parse(self, name: str, text: str) -> ParamValue:
        """The value that `text` stands for; raises UserError naming what is allowed."""
        value: ParamValue = self.read(text) if self.read else text
        try:
            if isinstance(self.default, bool):
                value = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            elif isinstance(self.default, int | float):
                value = type(self.default)(text)
                if not self.least <= value < float("inf"):
                    raise ValueError(text)
        except (KeyError, ValueError, OverflowError):
            kind = "true or false" if isinstance(self.default, bool) else f"a number, {self.least:g} or more"
            raise UserError(f"--set {name}={text}: {name} is {kind}") from None
        if self.choices and value not in self.choices:
            allowed = ", ".join(str(choice) for choice in self.choices)
            raise UserError(f"--set {name}={text}: {name} is one of {allowed}")
        return value


_SCALED = [name for name, each in PRECISIONS.items() if each.scaled]
_PURE = " and ".join(name for name, each in PRECISIONS.items() if each.pure)

# Fixed, recorded and the same for all precisions; every suite accepts them through --set.
COMMON_PARAMS: Mapping[str, Param] = {
    "threads": Param(0, "CPU threads torch computes with; 0 leaves torch's default"),
    "cudnn_benchmark": Param(True, "let cuDNN try its algorithms and keep the fastest"),
    "reduced_reduction": Param(
        False, "allow 16-bit accumulation inside fp16 and bf16 matmuls (torch's default is true)"
    ),
    "huge_pages": Param(True, "on a CPU: large tensors in huge pages where Linux gives them, so that few pages fault"),
    "loss_scale": Param(0, f"fixed loss scale of {', '.join(_SCALED)} and {_PURE}; 0 is dynamic, and 1 in {_PURE}"),
}


STUDIES: Mapping[str, str] = {
    "ladder": "each model is the one before it with one change, so that the gain of each step means something",
    "ablation": "each model is `plain` with a change, so that what each change buys means something",
    "batch": "runs differ in the parameter `global_batch`, so that accuracy by batch means something",
    "stages": "a run has stages, whose hours are in its table",
    "scaling": "it is meant to run in several processes",
    "placing": "its models are those that others publish speeds of, so that a card can be placed among theirs",
}
"""Kinds of question that a suite can name."""


@dataclass(frozen=True)
class Blueprint:
    """A model's network and schedule, as `gpubench show` draws them; nothing of it is trained."""

    network: object
    """A torch module as it is trained: what is frozen needs no gradient."""
    inputs: tuple[object, ...]
    """What its forward takes in a step, two samples of it say. Only their shapes matter."""
    samples: int
    """Samples in these inputs, counted in the suite's unit."""
    epochs: int
    schedule: Mapping[str, Callable[[float], float]]
    """By name (`learning rate`) the value after so many epochs, from 0 to `epochs`, by the code that trains."""
    note: str = ""
    """What is to be known of the schedule, in a sentence without a full stop."""
    batch_dimension: int = 0
    """Of the inputs and of what layers give: shapes are shown without it."""


@dataclass(frozen=True)
class Suite:
    """One benchmark: a function that trains, and what may be asked of it.

    `train(trial, clock)` builds model and data for `trial`, runs every epoch through `clock`, and
    returns its qualities by name (fractions, losses, perplexities); `quality` names the one that counts.
    """

    train: Callable[..., Mapping[str, float]]
    models: tuple[str, ...]
    params: Mapping[str, Param]
    version: int
    """Raised when an edit can change a timing or a result."""
    default_models: tuple[str, ...] = ()
    """What runs without --models; all of them where it is empty."""
    quality: str = ""
    goal: float | str | None = None
    """The least quality of a full run on real data, or the parameter that holds it (0: none). A run that ends below it
    is `goal_missed`, unless the suite itself gives a `success_rate` of 1: it was reached on the way, say."""
    studies: tuple[str, ...] = ()
    """What its models answer beside how fast they train: names of STUDIES, which its rows carry."""
    unit: str = "samples"
    batch: str = "max"
    """The default --batch on an accelerator: `max`, `fastest` or a number."""
    cpu_batch: int = 16
    """The default --batch on a CPU, whose memory is not a card's."""
    recipe_batch: Callable[[str, Mapping[str, ParamValue]], int] | None = None
    """Given model and params, the batch that the recipe itself has: the default on every device, instead of the two
    above."""
    train_samples: int | Callable[[Mapping[str, ParamValue]], int] = 0
    """Samples in one epoch, as a number or from the params; `max` is capped at a twentieth of it (0: at a million)."""
    most_elements: Callable[[str, Mapping[str, ParamValue]], int] | None = None
    """Given model and params, numbers in the largest tensor of a training step per sample: `max` keeps that tensor
    under 2^31 of them, the most that kernels with indices of 32 bits reach."""
    samples_per_unit: int = 1
    """Samples that one unit of --batch puts into a step: an image is one, a column of text is 35 tokens, say."""
    data: tuple[str, ...] = ()
    """Names of the datasets it reads (see `gpubench data list`)."""
    presets: Mapping[str, Mapping[ParamValue, Mapping[str, ParamValue]]] = field(default_factory=dict)
    """`{"recipe": {"article": {"epochs": 30}}}`: defaults that another parameter's value changes, or the `model`."""
    weights: Callable[[str, Mapping[str, ParamValue]], str] | None = None
    """Given model and params, the name of the pretrained weights it starts from, or an empty string."""
    check: Callable[[Mapping[str, ParamValue], Path, str], None] | None = None
    """Given params, the data's folder and the name that rows carry for it, raises UserError where a trial would fail
    on them. Asked once the data is there (it may have been downloaded) and before anything trains; not asked where the
    data is synthetic. Must not import torch."""
    refuse: Callable[..., str] | None = None
    """Given a Case, why it cannot run (its row is `unsupported`), or an empty string. Must not import torch."""
    precisions: Mapping[str, str] = field(default_factory=dict)
    """What --precision would be for a model, where the precision is part of what the model means: it goes before
    the one that was asked for."""
    ranks: Callable[[Mapping[str, ParamValue]], int] | None = None
    """Given the params, the number of training processes of a trial, where that is part of the recipe."""
    flops: Callable[[str, Mapping[str, ParamValue]], float] | None = None
    """Given model and params, FLOPs of forward and backward per sample of the suite's own data, where torch's counter
    cannot see them (nn.LSTM)."""
    blueprint: Callable[..., Blueprint] | None = None
    """Given a Trial, its network and schedule, for `gpubench show`. It may import torch."""
    projected_over_full: tuple[float, float] | None = None
    """Measured band of one sampled trial's projection over a full run's seconds: the error of a projection."""
    processes: bool = False
    """Whether it trains in several processes: it shards its data and wraps its model (docs/adding-a-suite.md)."""
    torch: bool = True
    """False for a suite that never touches torch (a scripted one): its rows carry no proof of precision."""
