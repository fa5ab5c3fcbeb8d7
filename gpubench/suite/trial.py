"""Case, Trial, Lap, Measurement and the statuses: frozen data that parent and worker exchange as JSON."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gpubench.errors import did_you_mean
from gpubench.suite.precisions import FLOAT32, PRECISIONS
from gpubench.suite.suite import ParamValue

MOST_INTEGER = 2**63
"""Largest whole number in a measurement."""
Mode = Literal["sampled", "full", "quick", "probe"]
COMPARES_MODELS = frozenset({"ladder", "ablation", "batch", "scaling"})
"""Studies that compare cases of one precision: all of these cases need equally many trials."""
RATE_STUDY = "placing"
"""The study of suites whose rates others publish. Nobody needs the time of a whole run of such a suite."""
Status = Literal["ok", "unsupported", "out_of_memory", "timed_out", "failed", "goal_missed", "interrupted"]


def rnn_refusal(precision: str, device: str) -> str:
    """Return why RNNs cannot compute in this precision on `device` (`cuda:0`, `cpu`), or an empty string.

    torch's autocast always casts the inputs of cuDNN's RNNs to fp16 (AutocastRNN.cpp).
    """
    if precision == "bf16" and device.startswith("cuda"):
        return "torch's autocast computes RNNs in fp16 on CUDA, not in bf16; ask for fp16"
    if precision == "bf16-pure" and device.startswith("cuda"):
        return "not all releases of cuDNN have RNNs in bf16; ask for fp16-pure"
    return ""


def autocast_refusal(precision: str) -> str:
    """Return why a suite that keeps fp32 weights cannot train in this precision, or an empty string."""
    narrow = precision in PRECISIONS and PRECISIONS[precision].weights != FLOAT32
    return "its weights are fp32: ask for fp32, tf32, fp16 or bf16" if narrow else ""


@cache
def counts_by_rate(studies: str, mode: str) -> bool:
    """Return whether trials are compared by rate, not by time: sampled and quick ones of a suite with RATE_STUDY."""
    return RATE_STUDY in studies.split() and mode in {"sampled", "quick"}


GOOD: frozenset[Status] = frozenset({"ok", "unsupported"})
"""Statuses without an error."""
TRAINED: frozenset[Status] = frozenset({"ok", "goal_missed"})
"""Statuses of a training that ran to its end, so that its seconds are known."""
FINISHED: frozenset[Status] = GOOD | TRAINED
"""Statuses that a resumed run does not repeat."""
Fault = Literal["", "crashed", "diverged", "lost_others", "waited_for_others"]
"""The kind of a failure.

`crashed`: the process ended without a result. `diverged`: the training ran, but the model did not learn.
`lost_others` and `waited_for_others`: another process of the trial ended or hangs.
"""


@dataclass(frozen=True)
class Case:
    """What a trial trains: suite, model, precision, batch, device and everything else that affects its time."""

    suite: str
    suite_version: int
    suite_digest: str
    suite_path: str
    model: str
    precision: str
    device: str
    params: Mapping[str, ParamValue]
    batch_policy: str
    """`fixed`, `max`, `fastest`, or `max-fp32`: the batch that `max` found for fp32."""
    batch_size: int | None
    """None until the batch search has ended."""
    mode: Mode
    data: str
    """Dataset names joined by +, or `synthetic`."""
    weights: str = ""
    """Name of the pretrained weights, `random` if they could not be loaded, empty if the case uses none."""
    processes: int = 1
    """Training processes (ranks), all machines together."""
    nodes: int = 1
    """Machines; each runs the same number of processes."""
    memory_limit_bytes: int | None = None
    rung: int | None = None
    """Number of the model on the suite's ladder, from 1."""
    studies: tuple[str, ...] = ()
    """The suite's studies (see suite.STUDIES)."""
    batch_capped: bool = False
    batch_curve: tuple[tuple[int, float, int], ...] = ()
    """(batch, samples/s or 0 if it did not fit, peak memory in bytes) of each probe."""
    refusal: str = ""
    """Why this case cannot run. Such a case becomes a row without a trial."""
    refusal_status: Status = "unsupported"
    """Status of that row: `unsupported` if the device cannot run it, else the status of the batch search."""

    @property
    def devices(self) -> list[str]:
        """The devices of this machine's processes, by local rank."""
        kind, colon, first = self.device.partition(":")
        return [f"{kind}:{int(first) + rank}" if colon else kind for rank in range(self.processes // self.nodes)]

    @property
    def label(self) -> str:
        """Name of the case in progress bars and messages."""
        batch = f" batch {self.batch_size}" if self.batch_size else ""
        many = f" x{self.processes}" if self.processes > 1 else ""
        return f"{self.suite} {self.model} {self.precision}{batch} {self.device}{many}"


class Params(SimpleNamespace):
    """A trial's parameters as attributes. Any other name raises an AttributeError that lists them."""

    def __getattr__(self, name: str) -> Any:
        there = ", ".join(sorted(vars(self))) + did_you_mean(name, vars(self))
        raise AttributeError(f"trial.params has no {name}; it has {there}")


@dataclass(frozen=True)
class Trial:
    """One training of one case, in one fresh process or one group of processes."""

    case: Case
    index: int
    """Number of the round, from 0."""
    seed: int
    data_dir: str = ""
    weights_dir: str = ""
    checkpoint_dir: str = ""
    """Folder for checkpoints of a full run, for resuming after a kill; empty if there are none."""
    tensorboard_dir: str = ""
    """Folder for TensorBoard events (--tensorboard)."""
    prove: bool = True
    """Whether the trial checks its precision. In a batch search, probes after the first that fits do not."""
    rank: int = 0
    """This process's number among the case's processes."""

    @property
    def params(self) -> Any:
        """The case's parameters as attributes: `trial.params.epochs`."""
        return Params(**self.case.params)

    @property
    def batch_size(self) -> int:
        """Samples in one step of one process; only valid once the batch is known."""
        assert self.case.batch_size is not None
        return self.case.batch_size

    @property
    def synthetic(self) -> bool:
        """Whether it trains on made-up data of the right shape."""
        return self.case.data == "synthetic"

    @property
    def teaches(self) -> bool:
        """Whether its quality is meaningful: every epoch trains on real data, from real weights."""
        return self.case.mode == "full" and not self.synthetic and self.case.weights != "random"


@dataclass(frozen=True)
class Lap:
    """Steps timed together, between two synchronisations."""

    phase: str
    epoch: int
    kind: Literal["warmup", "timed", "resident"]
    steps: int
    samples: int
    seconds: float
    wait_seconds: float
    """Part of `seconds` spent waiting for the loader."""
    started: float = 0.0
    """Start, in seconds of the monotonic clock, which all processes of a machine share."""
    earlier: bool = False
    """Whether an earlier process timed it, before the run was resumed. The clocks of the two processes may differ."""


@dataclass(frozen=True)
class Telemetry:
    """What the parent read from the device during the timed training laps; None or empty if it could not.

    Its fields are columns of the row; rows/row.py describes them.
    """

    device_memory_bytes: int | None = None
    mean_power_watts: float | None = None
    energy_joules: float | None = None
    energy_source: str = ""
    joules_per_sample: float | None = None
    cpu_energy_joules: float | None = None
    mean_sm_clock_mhz: float | None = None
    min_sm_clock_mhz: float | None = None
    mean_memory_clock_mhz: float | None = None
    max_temperature_celsius: float | None = None
    mean_utilisation: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    throttle: str = ""
    foreign_load: str = ""
    marks: str = ""
    """Those of `throttled`, `clock_fell` and `shared` that apply; runner/record.py adds others to the row."""


@dataclass(frozen=True)
class Measurement:
    """What one trial's process measured, or how it failed."""

    status: Status
    reason: str = ""
    """Text for people; code uses the fields below."""
    fault: Fault = ""
    error: str = ""
    """The class of the exception that ended it, for example `RuntimeError`."""
    seconds: float | None = None
    """Seconds of the whole run (all epochs, training and validation); projected unless `measured`."""
    measured: bool = False
    train_seconds: float | None = None
    valid_seconds: float | None = None
    samples_per_second: float | None = None
    epochs: int | None = None
    samples: int | None = None
    """Samples trained in laps of any kind."""
    steady: str = ""
    """How the steady state was determined, as text."""
    unsteady: bool = False
    """Whether no steady state was reached."""
    later_ratio: float = 1.0
    """Step time later in the run / step time in the sample, if the sample's trend goes on; 1 without a trend."""
    data_stall: float | None = None
    loader_wait: float | None = None
    resident_samples_per_second: float | None = None
    run_samples: int | None = None
    """Training samples of the whole run, whose time is `seconds`."""
    step_samples: int | None = None
    """Samples in the step whose FLOPs were counted."""
    flops_per_sample: float | None = None
    bytes_per_sample: float | None = None
    ops_per_step: int | None = None
    odd_flops_share: float | None = None
    low_flops_share: float | None = None
    setup_seconds: float | None = None
    """Seconds from the call of `train` to its first step: building model and data."""
    precision_error: float | None = None
    precision_proof: str = ""
    backend: str = ""
    """How several processes communicate (nccl, gloo); empty for one process."""
    interconnect: str = ""
    """What connects the processes."""
    rank_spread: float | None = None
    """Step time of the slowest process over the fastest's, minus 1, both without communication."""
    straggler: str = ""
    """The slowest process, if it is clearly slower than the others."""
    communication_share: float | None = None
    """1 - (step time without the gradients' all-reduce / step time with it)."""
    peak_memory_bytes: int | None = None
    resting_memory_bytes: int | None = None
    """Accelerator memory that stays allocated between steps."""
    loss_scale: float | None = None
    """Loss scale at the end of the training; None if the loss was not scaled."""
    skipped_steps: int | None = None
    nonfinite_losses: int | None = None
    allocator_retries: int = 0
    quality: Mapping[str, float] = field(default_factory=dict)
    threads: int | None = None
    """CPU threads that torch computed with."""
    memory_format: str = ""
    """Layout of images and weights, if the suite has several."""
    table: tuple[Mapping[str, str | int | float], ...] = ()
    """Further measurements of the suite."""
    resumed: str = ""
    """Where the trial continued after an earlier process, and what was lost; empty if it was not resumed."""
    laps: tuple[Lap, ...] = ()
    telemetry: Telemetry = Telemetry()
    """Set by the parent; a child leaves it empty."""
    start: str = ""
    """`fresh` or `forked`: how its process was started; set by the parent."""
    startup_seconds: float | None = None
    """Seconds of its process outside of training, set by the parent; None if its process sent no result."""


FORK_REPORT = struct.Struct("qq")
"""What a template process sends about a fork: (process id, 0) at its start, (0, return code) at its end."""
Record = TypeVar("Record", Lap, Measurement)
HINTS = {kind.__name__: get_type_hints(kind) for kind in (Lap, Measurement)}
"""Types of the fields, by class."""


def trial_from_json(data: Mapping[str, Any]) -> Trial:
    """Return the trial that the parent sent as `asdict(trial)`."""
    case = dict(data["case"])
    case["studies"] = tuple(case["studies"])
    case["batch_curve"] = tuple(tuple(point) for point in case["batch_curve"])
    return Trial(**{**data, "case": Case(**case)})


def measurement_from_json(data: Mapping[str, Any]) -> Measurement:
    """Return the measurement that the child sent; raises TypeError for an unknown field or a value of another type."""
    laps = tuple(_checked(Lap(**lap)) for lap in data.get("laps", ()))
    fields = {name: value for name, value in data.items() if name != "telemetry"}
    return _checked(Measurement(**{**fields, "laps": laps, "table": tuple(data.get("table", ()))}))


def _checked(record: Record) -> Record:
    """Return the record; raises TypeError if a field has a value of another type."""
    for name, hint in HINTS[type(record).__name__].items():
        if not _is(getattr(record, name), hint):
            raise TypeError(f"{name} is {getattr(record, name)!r:.100}")
    return record


def _is(value: object, hint: type) -> bool:
    """Return whether the value has the type of the hint; an int is allowed for a float."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Literal:
        return value in parts
    if kind is UnionType or kind is Union:
        return any(_is(value, part) for part in parts)
    if kind is tuple:
        return isinstance(value, tuple) and all(_is(item, parts[0]) for item in value)
    if kind is Mapping:
        return isinstance(value, Mapping)  # record.py leaves out values that are no numbers, and reports them
    if isinstance(value, int) and abs(value) > MOST_INTEGER:
        return False
    return isinstance(value, (int, float) if hint in (int, float) else hint)
